"""Whether a search can compare a trial by what it reports: a name that is spelt otherwise would turn it off without a word."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from dethpc.config.dialects.units import trained
from dethpc.config.experiment import ExperimentConfig
from dethpc.config.searcher import Grid, Random, Single
from dethpc.config.wording import did_you_mean

_NAMED = 8
"""How many of the reported names a warning lists."""


def unranked(
    config: ExperimentConfig, hparams: Mapping[str, Any], metrics: Mapping[str, Any], steps_completed: int
) -> str:
    """Why the searcher can do nothing with a validation of these ``metrics``, in words; empty when it can."""
    searcher = config.searcher
    if problem := _missing(searcher.metric, "metric", metrics):
        return f"{_ended(problem)} {_no_best(config)}"
    name = searcher.time_name()
    if isinstance(searcher, (Single, Random, Grid)) or name is None:
        return ""
    if math.isnan(trained(config, hparams, metrics, steps_completed)):
        role = "time_metric" if getattr(searcher, "time_metric", None) else "measure of training"
        problem = _missing(name, role, metrics) or f"{name}, the searcher's {role}, is reported as NaN"
        return f"{_ended(problem)} The search cannot stop this trial early"
    return ""


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith("?") else f"{sentence}."


def _no_best(config: ExperimentConfig) -> str:
    if isinstance(config.searcher, Single):
        return "No checkpoint can be called its best"
    return "The search cannot rank this trial"


def _missing(name: str, role: str, metrics: Mapping[str, Any]) -> str:
    if name in metrics:
        try:
            float(metrics[name])
        except (TypeError, ValueError, OverflowError):
            return f"{name}, the searcher's {role}, is reported as something that is not a number"
        return ""
    names = sorted(set(map(str, metrics)) - {"batch_metrics"})
    if not names:
        return f"{name}, the searcher's {role}, is not reported: the validation holds no metrics"
    hint = did_you_mean(name, names)
    said = f"{name}, the searcher's {role}, is not among the reported metrics ({_listed(names)})"
    return f"{said}; {hint}" if hint else said


def _listed(names: Iterable[str]) -> str:
    some = list(names)
    more = len(some) - _NAMED
    return ", ".join(name if len(name) <= 60 else f"{name[:57]}..." for name in some[:_NAMED]) + (
        f" and {more} more" if more > 0 else ""
    )
