"""Trials or experiments side by side: what differs is marked, what they reported stands in rows, curves lie over each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dethpc.client import experiments, trials
from dethpc.client.session import Session
from dethpc.domain.nested import leaves
from dethpc.errors import NotFound
from dethpc.web import show
from dethpc.web.asked import Answer, Asked, Goto, Page

Json = dict[str, Any]

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


def page(asked: Asked) -> Answer:
    for kind in ("trial", "experiment"):
        if asked.every(kind):  # from the boxes of a list
            return Goto(f"compare?{kind}s={','.join(str(each) for each in _numbers(asked.every(kind)))}")
    of_experiments = _numbers(asked.query.get("experiments", "").split(","))
    of_trials = _numbers(asked.query.get("trials", "").split(","))
    shown: Json = {"columns": [], "kind": "trial", "parts": [], "metrics": [], "chosen": "", "curves": [], "cut": 0}
    shown["missing"] = []
    if of_experiments:
        answers, shown["missing"] = _there(experiments.get, asked, of_experiments[:MOST])
        _experiments(asked, answers, shown)
    elif of_trials:
        found, shown["missing"] = _there(trials.get, asked, of_trials[:MOST])
        _trials(asked, found, shown)
    texts = [text for name in ("experiments", "trials") for text in asked.query.get(name, "").split(",")]
    shown["unread"] = [text[:80] for text in texts if text and not _numbers([text])][:MOST]
    shown.update(cut=max(0, len(of_experiments or of_trials) - MOST), words=asked.query.get("name", ""))
    shown.update(only=bool(asked.query.get("only")))
    return Page("compare.html", shown)


def _there(get: Callable[[Session, int], Json], asked: Asked, numbers: Sequence[int]) -> tuple[list[Json], list[int]]:
    """Those that are there, and the numbers of the others. Raises NotFound when none is."""
    found, missing = [], []
    for number in numbers:
        try:
            found.append(get(asked.session, number))
        except NotFound:
            missing.append(number)
            if len(missing) == len(numbers):
                raise
    return found, missing


def _trials(asked: Asked, found: Sequence[Json], shown: Json) -> None:
    parents = {
        number: experiments.get(asked.session, number)["experiment"] for number in {t["experimentId"] for t in found}
    }
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
        for trial in found
    ]
    shown["parts"] = [
        ("Hyperparameters", *_part(asked, [trial.get("hparams") for trial in found])),
        ("Metrics, last values", *_part(asked, [_last(trial) for trial in found], mark=False)),
    ]
    first = parents[found[0]["experimentId"]]["searcherMetric"]
    _curves(asked, found, f"validation.{first}", shown)


def _experiments(asked: Asked, answers: Sequence[Json], shown: Json) -> None:
    ids = [answer["experiment"].get("bestTrialId") for answer in answers]
    best = [trials.get(asked.session, id) if id else None for id in ids]
    shown["kind"] = "experiment"
    shown["columns"] = [
        {
            "id": each["id"],
            "path": f"experiments/{each['id']}",
            "above": each,
            "state": each["state"],
            "best": each.get("bestTrialSearcherMetric"),
            "best_name": each["searcherMetric"],
            "best_trial": each.get("bestTrialId"),
            "trials": each["numTrials"],
            "duration": each.get("duration"),
        }
        for each in (answer["experiment"] for answer in answers)
    ]
    configs = [{k: v for k, v in answer["config"].items() if k not in _OF_ONE} for answer in answers]
    shown["parts"] = [
        ("Best trial: hyperparameters", *_part(asked, [trial and trial.get("hparams") for trial in best])),
        (
            "Best trial: metrics, last values",
            *_part(asked, [_last(trial) if trial else {} for trial in best], mark=False),
        ),
        ("Configuration", *_part(asked, configs)),
    ]
    there = [trial for trial in best if trial]
    _curves(asked, there, f"validation.{answers[0]['experiment']['searcherMetric']}", shown)


def _curves(asked: Asked, found: Sequence[Json], first: str, shown: Json) -> None:
    names = {f"{group}.{name}" for trial in found for group, name in _names(trial)}
    shown["metrics"] = sorted(names, key=lambda name: (not name.startswith("validation."), name))[:2000]
    wanted = asked.query.get("metric", "")
    shown["chosen"] = wanted if wanted in names else first if first in names else next(iter(shown["metrics"]), "")
    shown["curves"] = [trial["id"] for trial in found]


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


def _part(asked: Asked, columns: Sequence[Mapping[str, Any] | None], mark: bool = True) -> tuple[list[Row], int]:
    """The rows that are shown, and how many are not. ``mark``: those that differ, which come first then."""
    flat = [dict(leaves(column or {})) for column in columns]
    names = dict.fromkeys(name for column in flat for name in column)
    words = asked.query.get("name", "").lower()
    rows = []
    for name in names:
        values = [column.get(name) for column in flat]
        differs = any(value != values[0] for value in values[1:])
        if words in name.lower() and (differs or not asked.query.get("only")):
            rows.append(Row(name, [None if value is None else _short(value) for value in values], differs and mark))
    rows.sort(key=lambda row: (not row.differs, not row.name.startswith("validation.") and not mark))
    return rows[:MOST_ROWS], max(0, len(rows) - MOST_ROWS)


def _short(value: Any) -> str:
    text = show.number(value) if isinstance(value, (int, float)) else show.compact(value)
    return text if len(text) <= 200 else text[:200] + "…"


def _numbers(texts: Iterable[str]) -> list[int]:
    return list(dict.fromkeys(int(text) for text in texts if text.isdecimal() and len(text) < 16))
