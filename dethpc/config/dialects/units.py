"""Lengths of training, from one unit to another.

A batch is ``hyperparameters.global_batch_size`` records, an epoch ``records_per_epoch`` records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.trial_config import UNITS


class Unknown(Exception):
    """Two units cannot be compared. ``field``: the dotted name of what the configuration would have to say."""

    def __init__(self, field: str) -> None:
        super().__init__(f"{field} is not known")
        self.field = field


def split(length: Any) -> tuple[str, int] | None:
    """``{"epochs": 3}`` as ``("epochs", 3)``; None for anything that is not a length with its unit."""
    if not isinstance(length, Mapping) or len(length) != 1:
        return None
    [(unit, count)] = length.items()
    number = whole(count)
    return None if unit not in UNITS or number is None else (unit, number)


def whole(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def records(unit: str, records_per_epoch: Any, hparams: Mapping[str, Any]) -> int:
    """How many records one of ``unit`` is, with the plain values in ``hparams``. Raises Unknown."""
    if unit == "records":
        return 1
    if unit == "epochs":
        number = whole(records_per_epoch)
        if not number or number < 1:
            raise Unknown("records_per_epoch")
        return number
    size = hparams.get("global_batch_size")
    if isinstance(size, Mapping):
        if size.get("type") != "const":
            raise Unknown("hyperparameters.global_batch_size")
        size = size.get("val")
    number = whole(size)
    if not number or number < 1:
        raise Unknown("hyperparameters.global_batch_size")
    return number


def convert(count: float, unit: str, to: str, records_per_epoch: Any, hparams: Mapping[str, Any]) -> float:
    """``count`` of ``unit`` in the unit ``to``, exactly; the caller rounds. Raises Unknown naming what is missing."""
    if unit == to:
        return count
    return count * records(unit, records_per_epoch, hparams) / records(to, records_per_epoch, hparams)


def trained(
    config: ExperimentConfig, hparams: Mapping[str, Any], metrics: Mapping[str, Any], steps_completed: int
) -> float:
    """How long a trial has trained, in the unit that its searcher compares by, when it reports ``metrics``.

    That is the metric of this name. Where a report lacks it and the name is a unit, the steps (batches) tell. NaN: the report
    does not say. A bare length may be of any unit: only an operation that was completed tells then.
    """
    name = config.searcher.time_name()
    if name is not None and name in metrics:
        try:
            return float(metrics[name])
        except (TypeError, ValueError, OverflowError):
            return math.nan
    if name not in UNITS:
        return math.nan
    per_epoch = config.records_per_epoch
    try:
        per_step = (
            1
            if name == "batches"
            else Fraction(records("batches", per_epoch, hparams), records(name, per_epoch, hparams))
        )
    except Unknown:
        return math.nan
    # So many batches may be all there is of a length that is no whole number of batches.
    whole_length = math.ceil((steps_completed + 1) * per_step) - 1 if steps_completed > 0 else 0
    return float(max(steps_completed * per_step, whole_length))
