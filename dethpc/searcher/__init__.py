"""Search methods: which hyperparameters to try, and when to stop a trial. Pure; one file per method.

``build`` makes the searcher that a config names. See ``base.Searcher`` for the contract.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dethpc.searcher.base import Searcher
from dethpc.searcher.grid import GridSearch
from dethpc.searcher.random import RandomSearch
from dethpc.searcher.single import SingleSearch

METHODS: dict[str, type[Searcher]] = {"single": SingleSearch, "random": RandomSearch, "grid": GridSearch}


def build(settings: Mapping[str, Any], hyperparameters: Mapping[str, Any], seed: int) -> Searcher:
    """The searcher for the ``searcher`` and ``hyperparameters`` sections of an effective config.

    Raises KeyError for an unknown method; the config room refuses those before.
    """
    return METHODS[settings["name"]](settings, hyperparameters, seed)
