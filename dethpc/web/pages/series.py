"""The data of charts, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from starlette.responses import Response

from dethpc.client.nouns import experiments, trials
from dethpc.domain.nested import leaves
from dethpc.domain.text.not_finite import SPELLINGS, spelled
from dethpc.errors import NotFound
from dethpc.web import show
from dethpc.web.asked import Answer, PageRequest
from dethpc.web.pages.experiment import pins
from dethpc.web.pages.trial import SYSTEM

POINTS = 1000
"""Of one curve: more than a screen has columns."""

_AXES = ("batches", "epochs", "epoch")
"""Metrics that are what others are drawn over: straight lines, of which the training APIs report two with each report."""

MOST_TRIALS = 200
"""Curves of one picture."""


def of_trial(request: PageRequest) -> Answer:
    """Every metric of a trial but those that tell how far it is, or with ``system`` those of its machines:

    {"groups": [{"group", "steps", "times", "epochs", "metrics": {name: values}}]}.
    """
    system = bool(request.query.get("system"))
    answers = trials.series(request.session, [request.number("trial")], points=POINTS, figures=False)
    every = [series for answer in answers for series in answer["metrics"]]
    groups = [_columns(series) for series in every if (series["group"] in SYSTEM) is system]
    for group in groups:
        others = {name: values for name, values in group["metrics"].items() if name not in _AXES}
        group["metrics"] = others or group["metrics"]
    return _json({"groups": groups})


def of_experiment(request: PageRequest) -> Answer:
    """One metric of the best trials, and of those that are pinned: {"trials": [{"id", "hparams", "steps", "times", "values"}]}."""
    number = request.number("experiment")
    group, name = request.query.get("group", ""), request.query.get("name", "")
    most = request.count("most", 20, MOST_TRIALS)
    best = _best(request, number, max(most, 1))
    best += _pinned(request, number, {id for id, _ in best})
    hparams = {id: show.plain_values(values) for id, values in best}
    curves = _curves(request, list(hparams), group, name)
    return _json({"trials": [{**curve, "hparams": hparams.get(curve["id"], "")} for curve in curves]})


def _best(request: PageRequest, number: int, most: int) -> list[tuple[int, dict[str, Any]]]:
    """The best trials with their hyperparameters. What has no value yet comes last, and is asked for where there is room for it."""
    answer = experiments.points(request.session, number, most)
    if len(answer["trials"]) == most:
        return list(zip(answer["trials"], answer["hparams"], strict=True))
    listed = experiments.trials(request.session, number, sort_by="SORT_BY_BEST_VALIDATION_METRIC", limit=most)
    return [(trial["id"], trial.get("hparams") or {}) for trial in listed]


def _pinned(request: PageRequest, experiment: int, drawn: set[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Trials of the experiment that the address names; what is none of them is left out."""
    for id in pins(request):
        if id not in drawn:
            with suppress(NotFound):
                trial = trials.get(request.session, id)
                if trial["experimentId"] == experiment:
                    yield id, trial.get("hparams") or {}


def of_trials(request: PageRequest) -> Answer:
    """One metric of chosen trials, of any experiments, as ``of_experiment`` has it; "at": their places in the address."""
    texts = request.query.get("trials", "").split(",")[:MOST_TRIALS]
    ids = [int(text) for text in texts if text.isdecimal() and len(text) < 16]
    curves = _curves(request, ids, request.query.get("group", ""), request.query.get("name", ""))
    return _json({"trials": [{**curve, "at": ids.index(curve["id"])} for curve in curves]})


def _curves(request: PageRequest, ids: list[int], group: str, name: str) -> list[dict[str, Any]]:
    curves = []
    points = POINTS if len(ids) <= 50 else 300
    for answer in (
        trials.series(request.session, ids, names=[name], group=group, points=points, figures=False) if ids else ()
    ):
        for series in answer["metrics"]:
            if series["group"] == group:
                columns = _columns(series)
                values = columns.pop("metrics").get(name, [])
                curves.append({"id": answer["trial"]["id"], **columns, "values": values})
    return curves


def points(request: PageRequest) -> Answer:
    """Hyperparameters and the searcher's metric of the best trials, as ``experiments.points`` has them."""
    content = experiments.points_as_json(request.session, request.number("experiment"))
    return Response(content, media_type="application/json")


def _columns(series: dict[str, Any]) -> dict[str, Any]:
    data = series["data"]
    names = sorted({name for point in data for name, _ in leaves(point["values"])})
    rows = [dict(leaves(point["values"])) for point in data]
    return {
        "group": series["group"],
        "steps": [point["batches"] for point in data],
        "times": [at.timestamp() if (at := show.moment(point.get("time"))) else None for point in data],
        "epochs": [point.get("epoch") for point in data],
        "metrics": {name: [_drawable(row.get(name)) for row in rows] for name in names},
    }


def _drawable(value: Any) -> float | str | None:
    """A number; the text for one that is not finite, which a curve marks; nothing for what no curve can show."""
    if isinstance(value, str):
        return value if value in SPELLINGS else None
    return None if isinstance(value, bool) or not isinstance(value, (int, float)) else spelled(value)


def _json(value: dict[str, Any]) -> Response:
    return Response(json.dumps(value, separators=(",", ":"), allow_nan=False), media_type="application/json")
