"""Comparison of trials or experiments side by side: rows that are equal in all are left out unless ``all`` is on, reported values
are rows, curves share one chart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dethpc.client.nouns import experiments, trials
from dethpc.client.session import Json, Session
from dethpc.domain.nested import leaves
from dethpc.errors import NotFound
from dethpc.web import show
from dethpc.web.asked import Answer, Goto, Page, PageRequest

MOST = 20
"""Columns."""

MOST_ROWS = 300
"""Of one part of the table; a filter finds the others."""

_GROUPS = {"avg_metrics": "training", "validation_metrics": "validation"}
_OF_ONE = ("name", "description", "labels", "notes")
"""Fields of a configuration that say nothing of what is trained."""


class Row(NamedTuple):
    """One value for each column; None where it has none."""

    name: str
    values: list[Any]
    differs: bool


class Part(NamedTuple):
    """A part of the table. ``cut``: how many rows are beyond its limit; ``equal``: how many are left out."""

    title: str
    rows: list[Row]
    cut: int
    equal: int


def page(request: PageRequest) -> Answer:
    for kind in ("trial", "experiment"):
        if request.every(kind):  # from the boxes of a list
            return Goto(f"compare?{kind}s={','.join(str(number) for number in _numbers(request.every(kind)))}")
    of_experiments = _numbers(request.query.get("experiments", "").split(","))
    of_trials = _numbers(request.query.get("trials", "").split(","))
    shown: Json = {"columns": [], "kind": "trial", "parts": [], "metrics": [], "chosen": "", "curves": [], "cut": 0}
    shown["missing"] = []
    shown["trials_too"] = bool(of_experiments and of_trials)
    if of_experiments:
        answers, shown["missing"] = _there(experiments.get, request, of_experiments[:MOST])
        _experiments(request, answers, shown)
    elif of_trials:
        answers, shown["missing"] = _there(trials.get, request, of_trials[:MOST])
        _trials(request, answers, shown)
    texts = [text for name in ("experiments", "trials") for text in request.query.get(name, "").split(",")]
    shown["unread"] = [text[:80] for text in texts if text and not _numbers([text])][:MOST]
    shown.update(cut=max(0, len(of_experiments or of_trials) - MOST), words=request.query.get("name", ""))
    shown.update(all=bool(request.query.get("all")))
    return Page("compare.html", shown)


def _there(
    get: Callable[[Session, int], Json], request: PageRequest, numbers: Sequence[int]
) -> tuple[list[Json], list[int]]:
    """Those that are there, and the numbers of the others. Raises NotFound when none is."""
    answers, missing = [], []
    for number in numbers:
        try:
            answers.append(get(request.session, number))
        except NotFound:
            missing.append(number)
            if len(missing) == len(numbers):
                raise
    return answers, missing


def _trials(request: PageRequest, answers: Sequence[Json], shown: Json) -> None:
    parents = {n: experiments.get(request.session, n)["experiment"] for n in {t["experimentId"] for t in answers}}
    shown["columns"] = [
        {
            "id": trial["id"],
            "best_trial": None,
            "path": f"trials/{trial['id']}",
            "above": parents[trial["experimentId"]],
            "state": trial["state"],
            "best": trial["searcherMetricValue"],
            "best_name": parents[trial["experimentId"]]["searcherMetric"],
            "steps": trial["totalBatchesProcessed"],
            "duration": trial["wallClockTime"],
        }
        for trial in answers
    ]
    shown["parts"] = [
        _part(request, "Hyperparameters", [trial.get("hparams") for trial in answers]),
        _part(request, "Metrics, last values", [_last(trial) for trial in answers], mark=False),
    ]
    first = parents[answers[0]["experimentId"]]["searcherMetric"]
    _curves(request, answers, f"validation.{first}", shown)


def _experiments(request: PageRequest, answers: Sequence[Json], shown: Json) -> None:
    ids = [answer["experiment"].get("bestTrialId") for answer in answers]
    best = [trials.get(request.session, id) if id else None for id in ids]
    shown["kind"] = "experiment"
    shown["columns"] = [
        {
            "id": experiment["id"],
            "path": f"experiments/{experiment['id']}",
            "above": experiment,
            "state": experiment["state"],
            "best": experiment.get("bestTrialSearcherMetric"),
            "best_name": experiment["searcherMetric"],
            "best_trial": experiment.get("bestTrialId"),
            "trials": experiment["numTrials"],
            "duration": experiment.get("duration"),
        }
        for experiment in (answer["experiment"] for answer in answers)
    ]
    configs = [{k: v for k, v in answer["config"].items() if k not in _OF_ONE} for answer in answers]
    shown["parts"] = [
        _part(request, "Best trial: hyperparameters", [trial and trial.get("hparams") for trial in best]),
        _part(
            request,
            "Best trial: metrics, last values",
            [_last(trial) if trial else {} for trial in best],
            mark=False,
        ),
        _part(request, "Configuration", configs),
    ]
    there = [trial for trial in best if trial]
    _curves(request, there, f"validation.{answers[0]['experiment']['searcherMetric']}", shown)


def _curves(request: PageRequest, rows: Sequence[Json], first: str, shown: Json) -> None:
    names = {f"{group}.{name}" for trial in rows for group, name in _names(trial)}
    shown["metrics"] = sorted(names, key=lambda name: (not name.startswith("validation."), name))[:2000]
    metric = request.query.get("metric", "")
    shown["chosen"] = metric if metric in names else first if first in names else next(iter(shown["metrics"]), "")
    shown["curves"] = [trial["id"] for trial in rows]


def _names(trial: Json) -> Iterable[tuple[str, str]]:
    for group, metrics in (trial.get("summaryMetrics") or {}).items():
        for name, summary in metrics.items():
            if summary.get("type") == "number" or _is_number(summary.get("last")):
                yield _GROUPS.get(group, group), name


def _is_number(value: Any) -> bool:
    """Of a summary, which calls a metric text as soon as one of its values is not finite."""
    return (isinstance(value, (int, float)) and not isinstance(value, bool)) or value in (
        "NaN",
        "Infinity",
        "-Infinity",
    )


def _last(trial: Json) -> Json:
    summary = trial.get("summaryMetrics") or {}
    return {
        _GROUPS.get(g, g): {name: one.get("last") for name, one in metrics.items()} for g, metrics in summary.items()
    }


def _part(request: PageRequest, title: str, columns: Sequence[Mapping[str, Any] | None], mark: bool = True) -> Part:
    """``mark``: the rows that differ, which come first then."""
    flat = [dict(leaves(column or {})) for column in columns]
    names = dict.fromkeys(name for column in flat for name in column)
    search = request.query.get("name", "").lower()
    everything = len(columns) < 2 or bool(request.query.get("all"))
    rows, equal = [], 0
    for name in names:
        values = [column.get(name) for column in flat]
        differs = any(value != values[0] for value in values[1:])
        if search not in name.lower():
            continue
        if not differs and not everything:
            equal += 1
        else:
            rows.append(Row(name, [None if value is None else _short(value) for value in values], differs and mark))
    rows.sort(key=lambda row: (not row.differs, not row.name.startswith("validation.") and not mark))
    return Part(title, rows[:MOST_ROWS], max(0, len(rows) - MOST_ROWS), equal)


def _short(value: Any) -> str:
    text = show.number(value) if isinstance(value, (int, float)) else show.compact(value)
    return text if len(text) <= 200 else text[:200] + "…"


def _numbers(texts: Iterable[str]) -> list[int]:
    return list(dict.fromkeys(int(text) for text in texts if text.isdecimal() and len(text) < 16))
