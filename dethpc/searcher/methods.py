"""Every search method by its name in a configuration, and ``build``, which makes the one that a configuration names."""

from __future__ import annotations

from dethpc.config.sections.hyperparameters import Space
from dethpc.config.sections.searcher import Method
from dethpc.searcher.adaptive import Adaptive
from dethpc.searcher.adaptive_simple import AdaptiveSimple
from dethpc.searcher.asha import AdaptiveASHA, AsyncHalving
from dethpc.searcher.base import Searcher
from dethpc.searcher.custom import CustomSearch
from dethpc.searcher.grid import GridSearch
from dethpc.searcher.pbt import PBT
from dethpc.searcher.random import RandomSearch
from dethpc.searcher.single import SingleSearch
from dethpc.searcher.sync_halving import SyncHalving

METHODS: dict[str, type[Searcher]] = {
    "single": SingleSearch,
    "random": RandomSearch,
    "grid": GridSearch,
    "adaptive_asha": AdaptiveASHA,
    "async_halving": AsyncHalving,
    "adaptive": Adaptive,
    "adaptive_simple": AdaptiveSimple,
    "sync_halving": SyncHalving,
    "pbt": PBT,
    "custom": CustomSearch,
}


def build(section: Method, space: Space, seed: int) -> Searcher:
    """The searcher that the ``searcher`` section of a configuration names, over the space of its hyperparameters."""
    return METHODS[section.name](section, space, seed)
