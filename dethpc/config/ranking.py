"""Whether a search can compare a trial by what it reports: a name that is spelt otherwise would turn it off without a word."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dethpc.config.dialects.units import trained
from dethpc.config.experiment import ExperimentConfig
from dethpc.config.sections.searcher import Grid, Random, Single
from dethpc.domain.text.hints import without_metric


def unranked(
    config: ExperimentConfig, hparams: Mapping[str, Any], metrics: Mapping[str, Any], steps_completed: int
) -> str:
    """Why the searcher can do nothing with a validation of these ``metrics``, in words; empty when it can."""
    searcher = config.searcher
    if problem := without_metric(searcher.metric, "metric", metrics):
        return f"{_ended(problem)} {_no_best(config)}"
    name = searcher.time_name()
    if isinstance(searcher, (Single, Random, Grid)) or name is None:
        return ""
    if math.isnan(trained(config, hparams, metrics, steps_completed)):
        role = "time_metric" if getattr(searcher, "time_metric", None) else "measure of training"
        problem = without_metric(name, role, metrics) or f"{name}, the searcher's {role}, is reported as NaN"
        return f"{_ended(problem)} The search cannot stop this trial early"
    return ""


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith("?") else f"{sentence}."


def _no_best(config: ExperimentConfig) -> str:
    if isinstance(config.searcher, Single):
        return "No checkpoint can be called its best"
    return "The search cannot rank this trial"
