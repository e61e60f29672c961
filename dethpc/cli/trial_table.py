"""Trials in a table: one column for each hyperparameter that is searched, the constants once below, the best trial marked."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from dethpc.cli import output, tables
from dethpc.cli.output import Json
from dethpc.client.nouns import experiments
from dethpc.client.session import Session
from dethpc.domain.text.rungs import place_of
from dethpc.domain.trial_config import SearcherConfig, TrialConfig

_MANY = 50  # trials that are drawn
_FEW = 10  # trials of a summary
_POINTS = 40  # of each, asked of the master
_SORTS = {
    "id": "SORT_BY_ID",
    "state": "SORT_BY_STATE",
    "metric": "SORT_BY_BEST_VALIDATION_METRIC",
    "steps": "SORT_BY_BATCHES_PROCESSED",
    "start": "SORT_BY_START_TIME",
    "end": "SORT_BY_END_TIME",
    "restarts": "SORT_BY_RESTARTS",
}
"""What the master sorts by; any other column is sorted here."""


def found_trials(
    session: Session,
    about: Json,
    *,
    limit: int,
    offset: int,
    layout: tables.Layout,
    states: Sequence[str] = (),
) -> tuple[list[Json], tables.Layout]:
    """The trials that a list is to show, in its order, and what is left to do for the table. ``about``: the master's answer for
    the experiment."""
    experiment_id = int(about["experiment"]["id"])
    by, backwards = layout.sort.removeprefix("-").lower() or "id", layout.sort.startswith("-")
    sorts, pages = by in _SORTS, by in _SORTS and "STOPPED" not in states  # whether the master can
    rows = list(
        experiments.trials(
            session,
            experiment_id,
            sort_by=_SORTS[by if sorts else "id"],
            descending=backwards and sorts,
            limit=limit if pages else 0,
            offset=offset if pages else 0,
            states=["COMPLETED" if state == "STOPPED" else state for state in states],
        )
    )
    if not pages:
        rows = [trial for trial in rows if _among(trial, states)]
        rows = rows if sorts else tables.in_order(trial_table(about, rows), layout.sort)
        rows = rows[offset:][: limit or None]
    return rows, layout._replace(sort="")


def _among(trial: Json, states: Sequence[str]) -> bool:
    """Whether it is one of those that ``states`` ask for, of what the master lists for them: STOPPED leaves out what is completed
    otherwise."""
    return "STOPPED" not in states or "COMPLETED" in states or output.standing(trial) != "COMPLETED"


def with_curves(session: Session, about: Json, trials: Sequence[Json]) -> None:
    """Give each trial the curve of the searcher's metric over its validations, for a terminal. A list that is long has none: the
    master would read every validation for it."""
    if not sys.stdout.isatty() or not 0 < len(trials) <= _MANY or "utf" not in (sys.stdout.encoding or "").lower():
        return
    from dethpc.cli.commands.chart import sparkline
    from dethpc.client.nouns import trials as of_trials

    metric = SearcherConfig.of(about.get("config") or {}).metric
    ids = [int(trial["id"]) for trial in trials]
    answers = of_trials.series(session, ids, names=[metric], group="validation", points=_POINTS)
    drawn = {}
    for answer in answers:
        data = [point["values"].get(metric) for series in answer["metrics"] for point in series["data"]]
        drawn[int(answer["trial"]["id"])] = sparkline([value for value in data if isinstance(value, (int, float))])
    for trial in trials:
        trial["curve"] = drawn.get(int(trial["id"]), "")


def best_few(session: Session, about: Json) -> list[Json]:
    """The ten best, best first, as the master finds them; all of them where there are no more."""
    if int(about["experiment"].get("numTrials") or 0) <= _FEW:
        return list(experiments.trials(session, int(about["experiment"]["id"])))
    return list(experiments.trials(session, int(about["experiment"]["id"]), sort_by=_SORTS["metric"], limit=_FEW))


def trial_table(about: Json, trials: Sequence[Json], *, more: str = "") -> tables.Table:
    """``about``: the master's answer for the experiment that they are of; ``more``: what is said of those that are left out."""
    config, experiment = TrialConfig.from_json(about.get("config") or {}), about["experiment"]
    return tables.Table(
        trial_columns(config.searcher.metric, trials, config.hyperparameters),
        trials,
        below=[more, constants(trials, config.hyperparameters)],
        best=lambda trial: len(trials) > 1 and trial["id"] == experiment.get("bestTrialId"),
    )


def started(trial: Json) -> Optional[str]:
    """None for a trial that has never run: on the wire it begins when it is created."""
    return trial.get("startTime") if trial.get("wallClockTime") else None


def trial_columns(metric: Optional[str], trials: Sequence[Json], hyperparameters: Json) -> list[tables.Column]:
    """A terminal shows the hyperparameters that are searched or differ; a pipe has them all."""
    settings = {trial["id"]: output.flat(trial.get("hparams")) for trial in trials}
    names = list(dict.fromkeys(name for one in settings.values() for name in one))
    varying = _varying(trials, hyperparameters)
    return [
        tables.Column("Trial", "id", tables.COUNT),
        tables.Column("State", output.standing, tables.STANDING),
        tables.Column("Steps", "totalBatchesProcessed", tables.COUNT),
        tables.Column(f"Best {metric or 'metric'}", best_metric, tables.METRIC, heading=metric or "Best"),
        tables.Column("Restarts", "restarts", _SOME, rank=4),
        *([tables.Column("Curve", "curve", rank=5, pipe=False)] if any("curve" in trial for trial in trials) else []),
        *(_setting(name, settings, name in varying) for name in names),
        tables.Column("Took", lambda trial: trial.get("wallClockTime") or None, tables.DURATION, rank=3, pipe=False),
        tables.Column("Started", started, tables.AGE, rank=6),
        tables.Column("Ended", "endTime", tables.AGE, terminal=False),
        tables.Column("Held slots", "heldSlots", tables.COUNT, terminal=False, pipe=False),
        tables.Column("Reason", "reason", _NEWS, rank=1, least=44),
    ]


# What is as expected needs no room on a terminal: that a trial never restarted, that it trained as long as it was to, or which
# values a search compared where it stopped the trial. An error needs room more than the hyperparameters do.
_SOME = tables.Kind(lambda count: output.plain(count or ""), right=True, whole=True)
_NEWS = tables.Kind(
    lambda reason: (
        ""
        if str(reason).startswith("trained to the full length")
        else place_of(str(reason or "")) or output.plain(reason)
    ),
    whole=True,
)


def _setting(name: str, settings: Mapping[Any, Mapping[str, Any]], varies: bool) -> tables.Column:
    """``settings``: the flat hyperparameters of each trial by its id. To flatten them for each column took half a minute of a trial
    with 9,000."""
    return tables.Column(name, lambda trial: settings[trial["id"]].get(name), tables.SETTING, rank=2, terminal=varies)


def constants(trials: Sequence[Json], hyperparameters: Json) -> str:
    """``constants: batch_size=64 epochs=16``; "" without any."""
    varying = _varying(trials, hyperparameters)
    first = output.flat(trials[0].get("hparams")) if trials else {}
    same = [f"{name}={output.digits(value)}" for name, value in first.items() if name not in varying]
    return f"constants: {' '.join(same)}" if same else ""


def _varying(trials: Sequence[Json], hyperparameters: Json) -> set[str]:
    seen = [output.flat(trial.get("hparams")) for trial in trials]
    names = {name for one in seen for name in one}
    return set(_searched(hyperparameters)) | {
        name for name in names if any(one.get(name) != seen[0].get(name) for one in seen)
    }


def _searched(hyperparameters: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Names of those that the configuration does not say a value for."""
    for name, about in hyperparameters.items():
        if isinstance(about, dict) and isinstance(about.get("type"), str):
            if about["type"] != "const":
                yield prefix + name
        elif isinstance(about, dict):
            yield from _searched(about, f"{prefix}{name}.")


def best_metric(trial: Json) -> Any:
    """The searcher metric of the best validation, as the master names it or as the validation holds it."""
    if trial.get("searcherMetricValue") is not None:
        return trial["searcherMetricValue"]
    averages = ((trial.get("bestValidation") or {}).get("metrics") or {}).get("avgMetrics") or {}
    return next(iter(averages.values())) if len(averages) == 1 else None
