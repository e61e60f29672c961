"""The configuration of an experiment that goes on: what its owner changes, laid over what it had."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.loading import load
from dethpc.config.source import read
from dethpc.domain.entrypoint import batch_script
from dethpc.errors import ConfigError, Problem, Refused

_FIXED = "cannot change, as the trial continues from what it has trained; to train differently: det experiment fork"
_SOURCES = ("source_trial_id", "source_checkpoint_uuid")


def continued(experiment_id: int, before: ExperimentConfig, changes: str) -> ExperimentConfig:
    """``before``, of that experiment, with the fields of ``changes``, YAML in any generation's form. Raises ConfigError with every
    mistake, and Refused where a search of several trials is to change."""
    source, problems = read(changes, "config")
    if not source.data and not problems:
        return before
    if before.searcher.name != "single":
        raise Refused(
            "override config is provided and experiment is not single searcher, got "
            f"'{before.searcher.name}' instead: its trials that did not complete can only continue unchanged. A "
            f"new search, with the changes: det experiment fork {experiment_id} --config FIELD=VALUE"
        )
    stored = deepcopy(before.to_json())
    sources = {name: stored["searcher"].pop(name, None) for name in _SOURCES}
    after = load(changes, file="config", defaults=stored).config
    if after.searcher.name != "single":
        raise Refused(f"override config must have single searcher type got '{after.searcher.name}' instead")
    origins = {name: value for name, value in sources.items() if getattr(after.searcher, name) is None}
    after = after.model_copy(
        update={"searcher": after.searcher.model_copy(update=origins), "internal": before.internal}
    )
    wrong = [
        source.placed(Problem(path, f"{_FIXED} {experiment_id}"))
        for path, was, now in _fixed(before, after)
        if was != now
    ]
    if wrong:
        raise ConfigError(wrong)
    return after


def _fixed(before: ExperimentConfig, after: ExperimentConfig) -> list[tuple[tuple[str, ...], Any, Any]]:
    """What cannot change: where each stands, what it was, what it would be."""
    fields = [("reproducibility", "experiment_seed"), ("workspace",), ("project",)]
    fields += [("searcher", name) for name in ("metric", "smaller_is_better", *_SOURCES)]
    was, now = before.to_json(), after.to_json()
    comparisons = [(path, _at(was, path), _at(now, path)) for path in fields]
    comparisons.append((("checkpoint_storage",), _place(was), _place(now)))
    if batch_script(after.entrypoint) or batch_script(
        before.entrypoint
    ):  # what it asks for is in the configuration already
        comparisons.append((("entrypoint",), before.entrypoint, after.entrypoint))
    return comparisons


def _at(config: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = config
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _place(config: Mapping[str, Any]) -> dict[str, Any]:
    """Where checkpoints are; how many are kept may change."""
    storage = config.get("checkpoint_storage") or {}
    return {name: value for name, value in storage.items() if not name.startswith("save_")}
