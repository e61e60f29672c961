"""The configuration of an experiment that goes on from another one, made of the other's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from dethpc.domain.trial_config import SearcherConfig

Json = dict[str, Any]


def forked(config: Mapping[str, Any]) -> Json:
    """That of an experiment like it, from what it started from."""
    searcher = dict(config["searcher"])
    if searcher.get("source_checkpoint_uuid"):
        searcher.pop("source_trial_id", None)  # that checkpoint is what it meant then
    return {**config, "searcher": searcher}


def of_trial(config: Mapping[str, Any], hparams: Mapping[str, Any], trial_id: int, checkpoint: Optional[str]) -> Json:
    """That of one trial with the hyperparameters of a trial of ``config``, from its latest checkpoint or this one, until the length
    at which the search would have ended its longest trial."""
    searcher = SearcherConfig.of(config)
    single: Json = {"name": "single", "metric": searcher.metric, "smaller_is_better": searcher.smaller_is_better}
    if searcher.full_length is not None:
        single["max_length"] = {searcher.unit: searcher.full_length} if searcher.unit else searcher.full_length
    source = {"source_checkpoint_uuid": checkpoint} if checkpoint else {"source_trial_id": trial_id}
    return {**config, "hyperparameters": _constants(hparams), "searcher": {**single, **source}}


def _constants(values: Mapping[str, Any]) -> Json:
    """Hyperparameters that have these values. A group of them that could be taken for a description of one is marked."""
    return {
        name: {"type": "const", "val": value}
        if isinstance(value, dict) and "type" in value
        else _constants(value)
        if isinstance(value, dict)
        else value
        for name, value in values.items()
    }
