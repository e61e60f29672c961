"""Compares the training length of a Trainer with that of the search."""

from __future__ import annotations

from typing import Any, Dict, Optional

import transformers

from dethpc.domain.text.hints import without_metric
from dethpc.domain.trial_config import SearcherConfig
from dethpc.errors import MetricMissing


def check_length(searcher: SearcherConfig, args: transformers.TrainingArguments) -> None:
    """Raises ValueError where both say a length and they differ."""
    if args.max_steps > 0:
        unit, length, argument = "batches", float(args.max_steps), "--max_steps"
    else:
        unit, length, argument = "epochs", float(args.num_train_epochs), "--num_train_epochs"
    field, configured = "max_length", searcher.max_length
    theirs: Optional[str]
    target: Optional[int]
    if configured is not None and configured.unit is not None:
        target, theirs = configured
    elif configured is not None:
        raise ValueError(
            f"searcher.max_length is {configured.number}, without a unit: leave it out, and say the length by {argument} alone"
        )
    else:
        field, theirs, target = "max_time", searcher.time_metric, searcher.max_time
        if theirs not in ("batches", "epochs") or target is None:
            return  # a length in a metric of the user's own
    if (theirs, float(target)) != (unit, length):
        raise ValueError(
            f"the Trainer trains {length:g} {unit} ({argument}), and searcher.{field} says {target} {theirs}: make them the same"
            + (", or leave searcher.max_length out" if field == "max_length" else "")
        )


def check_metrics(searcher: SearcherConfig, metrics: Dict[str, Any]) -> None:
    """Raises MetricMissing when an evaluation lacks what the search compares trials by."""
    for role, name in (("metric", searcher.metric), ("time_metric", searcher.time_metric)):
        if name and name not in metrics:
            raise MetricMissing(without_metric(name, role, metrics))
