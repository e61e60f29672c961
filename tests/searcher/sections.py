"""Searchers from sections as a user writes them."""

from __future__ import annotations

from typing import Any

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.sections.searcher import Searcher as Section
from dethpc.searcher.base import Searcher
from dethpc.searcher.methods import build


def section(**settings: Any) -> Section:
    """What the section does not know is left out."""
    return ExperimentConfig.from_json({"entrypoint": "x", "searcher": {"metric": "loss", **settings}}).searcher


def searcher(settings: dict[str, Any], hyperparameters: dict[str, Any], seed: int) -> Searcher:
    stored = {"entrypoint": "x", "searcher": {"metric": "loss", **settings}, "hyperparameters": hyperparameters}
    config = ExperimentConfig.from_json(stored)
    return build(config.searcher, config.space, seed)
