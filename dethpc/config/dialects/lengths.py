"""Lengths (Determined 0.12.13 to 0.37): ``{batches: n}``, ``{records: n}`` or ``{epochs: n}``.

Where trials are compared while they train, the present form says by which metric time is measured, and up to which value. The
trial classes report metrics of these names. ``core_context.searcher.operations()`` has the length in the same unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from dethpc.config.dialects.edit import Edit
from dethpc.config.dialects.steps import PERIODS
from dethpc.config.dialects.units import Unknown, convert, split, whole
from dethpc.config.sections.searcher import Searcher
from dethpc.errors import Problem


def _by_time() -> frozenset[str]:
    models = get_args(get_args(Searcher)[0])
    return frozenset(
        name
        for model in models
        if "max_time" in model.model_fields
        for name in get_args(model.model_fields["name"].annotation)
    )


BY_TIME = _by_time()
"""The search methods whose length is a ``time_metric`` and a ``max_time`` today."""


def translate(data: Mapping[str, Any]) -> tuple[list[Edit], list[Problem]]:
    """A length of a search that compares trials, as time; a period without a unit, as batches; a budget, in the length's unit."""
    edits: list[Edit] = []
    for name in PERIODS:
        number = whole(data.get(name))
        if number is not None:
            edits.append(Edit((name,), number, {name: {"batches": number}}, "its unit when it names none"))

    searcher = data.get("searcher")
    if not isinstance(searcher, Mapping):
        return edits, []
    length, budget = split(searcher.get("max_length")), searcher.get("budget")
    problems: list[Problem] = []
    if length is not None and split(budget) is not None:
        problems += _in_one_unit(data, length[0], budget, edits)
    given = [name for name in ("time_metric", "max_time") if searcher.get(name) is not None]
    if length is not None and length[1] >= 1 and searcher.get("name") in BY_TIME and not given:
        unit, count = length
        fields = {"time_metric": unit, "max_time": count}
        edits.append(Edit(("searcher", "max_length"), dict(searcher["max_length"]), fields))
    return edits, problems


def _in_one_unit(data: Mapping[str, Any], unit: str, budget: Any, edits: list[Edit]) -> list[Problem]:
    path = ("searcher", "budget")
    length = split(budget)
    assert length is not None
    if length[0] == unit:
        return []
    hparams = data.get("hyperparameters")
    try:
        count = convert(
            length[1], length[0], unit, data.get("records_per_epoch"), hparams if isinstance(hparams, Mapping) else {}
        )
    except Unknown as missing:
        message = f"is in {length[0]}, and max_length is in {unit}: they can be compared only in one unit"
        return [Problem(path, message, f"give both in {unit}, or set {missing.field} to a number")]
    edits.append(Edit(path, dict(budget), {"budget": {unit: max(1, int(count))}}, f"{unit}, as max_length has"))
    return []
