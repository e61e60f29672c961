"""What is kept of an experiment's reports so that nobody reads them all: its history of best validations, its metrics' names.

Both follow the reports that count, in the writer's transaction, and say at any time what could be made again from all of them.
Reports come late, in any order, and may be voided: a late one takes its place in the history and ends the lines that it beats;
where a line is voided, those that it had beaten are looked for once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, delete, exists, func, or_, select

from dethpc.domain.facts import Experiment, Metric, Trial
from dethpc.state import dialects
from dethpc.state.summaries import Best, MetricName, Summary, bests, usable
from dethpc.state.tables import TABLES

_AT_ONCE = 500
"""Values in one IN list."""

_experiment, _trial = TABLES[Experiment].c, TABLES[Trial].c
_metric, _summary = TABLES[Metric].c, TABLES[Summary].c
_best, _name = TABLES[Best].c, TABLES[MetricName].c
_earlier = TABLES[Best].alias().c

_BEST = (_best.run_id, _best.attempt, _best.seq, _best.experiment_id, _best.trial_id, _best.reported_at, _best.value)
_SEARCHED = select(_experiment.id, _experiment.metric, _experiment.smaller_is_better).where(
    _experiment.id.in_(bindparam("ids", expanding=True))
)
_BEFORE = (
    select(func.max(_earlier.reported_at))
    .where(_earlier.experiment_id == _best.experiment_id, _earlier.reported_at <= bindparam("first"))
    .scalar_subquery()
)
_FROM = (
    select(*_BEST)
    .where(
        _best.experiment_id.in_(bindparam("ids", expanding=True)),
        _best.reported_at >= func.coalesce(_BEFORE, bindparam("first")),
    )
    .order_by(_best.reported_at)
)
_GONE = select(*_BEST).where(
    _best.run_id == bindparam("run"),
    _best.attempt == bindparam("number"),
    ~exists().where(_metric.run_id == _best.run_id, _metric.attempt == _best.attempt, _metric.seq == _best.seq),
)


def name(connection: Connection, found: Iterable[tuple[int, str, str]]) -> None:
    """Some trial has its first summary of these: each is an experiment's id, a group and a name."""
    _add(connection, MetricName, [MetricName(*key) for key in sorted(found)])


def follow(connection: Connection, metrics: Sequence[Metric]) -> None:
    """Take in reports that count and that the database has, in order of report. Those that were taken in before change nothing."""
    reports = [metric for metric in metrics if metric.group == "validation"]
    searched = {row.id: row for row in _in_chunks(connection, _SEARCHED, {report.experiment_id for report in reports})}
    found: dict[int, list[Best]] = {}
    for report in reports:
        experiment = searched.get(report.experiment_id)
        value = None if experiment is None else usable(report.metrics.get(experiment.metric))
        if value is not None:
            found.setdefault(report.experiment_id, []).append(_line(report, value))
    if not found:
        return
    first = min(each.reported_at for lines in found.values() for each in lines)
    known: dict[int, list[Best]] = {}
    for row in _in_chunks(connection, _FROM, set(found), first=first):
        known.setdefault(row.experiment_id, []).append(Best(*row))
    beaten: list[Best] = []
    new: list[Best] = []
    for id, lines in found.items():
        there = known.get(id, [])
        smaller = searched[id].smaller_is_better
        there.sort(key=lambda each: (each.reported_at, -each.value if smaller else each.value))  # noqa: B023
        history = {astuple(each)[:3] for each in there}
        # Of the same instant those that are there came first.
        kept = bests(sorted([*there, *lines], key=lambda each: each.reported_at), smaller)
        left = {astuple(each)[:3] for each in kept}
        beaten += [each for each in there if astuple(each)[:3] not in left]
        new += [each for each in kept if astuple(each)[:3] not in history]
    for each in beaten:
        own = _best.run_id == each.run_id, _best.attempt == each.attempt, _best.seq == each.seq
        connection.execute(delete(TABLES[Best]).where(*own))
    _add(connection, Best, new)


def mend(connection: Connection, run_id: str, attempt: int, experiment_ids: Iterable[int]) -> None:
    """After reports of an attempt were deleted, and the summaries made anew, of trials of these experiments."""
    for id in experiment_ids:
        _drop_names(connection, id)
    gone = [Best(*row) for row in connection.execute(_GONE, {"run": run_id, "number": attempt})]
    for id in {each.experiment_id for each in gone}:
        _look_again(connection, id, [each.reported_at for each in gone if each.experiment_id == id])


def _drop_names(connection: Connection, experiment_id: int) -> None:
    """Those that no trial has a summary of any more."""
    summaries = TABLES[Summary].join(TABLES[Trial], _trial.id == _summary.trial_id)
    same = and_(_trial.experiment_id == experiment_id, _summary.group == _name.group, _summary.name == _name.name)
    some = select(_summary.trial_id).select_from(summaries).where(same).correlate(TABLES[MetricName]).exists()
    connection.execute(delete(TABLES[MetricName]).where(_name.experiment_id == experiment_id, ~some))


def _look_again(connection: Connection, experiment_id: int, times: Sequence[float]) -> None:
    """For what the lines of these times had beaten. What comes after the next line that is left was beaten by that, too."""
    (of,) = connection.execute(_SEARCHED, {"ids": [experiment_id]})
    own, first = _best.experiment_id == experiment_id, min(times)
    until = connection.scalar(select(func.min(_best.reported_at)).where(own, _best.reported_at > max(times)))
    touched = [own, _best.reported_at >= first, *([] if until is None else [_best.reported_at <= until])]
    connection.execute(delete(TABLES[Best]).where(*touched))
    better = _best.value.asc() if of.smaller_is_better else _best.value.desc()
    last = select(_best.value).where(own, _best.reported_at < first).order_by(_best.reported_at.desc(), better).limit(1)
    before = connection.scalar(last)
    _add(connection, Best, bests(_reported(connection, of, before, first, until), of.smaller_is_better, before))


def _reported(
    connection: Connection, of: tuple[int, str, bool], before: float | None, first: float, until: float | None
) -> Iterator[Best]:
    """Validations of the experiment between two times, of trials that may have beaten ``before``."""
    id, name, smaller = of
    bound = _summary.min if smaller else _summary.max
    trials = select(_summary.trial_id).where(
        _summary.trial_id.in_(select(_trial.id).where(_trial.experiment_id == id)),
        _summary.group == "validation",
        _summary.name == name,
    )
    if before is not None:
        trials = trials.where(or_(bound.is_(None), bound < before if smaller else bound > before))
    columns = (_metric.run_id, _metric.attempt, _metric.seq, _metric.trial_id, _metric.reported_at, _metric.metrics)
    reports = select(*columns).where(
        _metric.trial_id.in_(trials), _metric.group == "validation", _metric.reported_at >= first
    )
    if until is not None:
        reports = reports.where(_metric.reported_at <= until)
    ordered = reports.order_by(_metric.reported_at, _metric.id)
    for run_id, attempt, seq, trial_id, at, metrics in connection.execute(ordered.execution_options(yield_per=1000)):
        if (value := usable(metrics.get(name))) is not None:
            yield Best(run_id, attempt, seq, id, trial_id, at, value)


def _line(metric: Metric, value: float) -> Best:
    return Best(
        metric.run_id, metric.attempt, metric.seq, metric.experiment_id, metric.trial_id, metric.reported_at, value
    )


def _in_chunks(connection: Connection, asked: Select[Any], ids: Iterable[int], **values: float) -> Iterator[Any]:
    ordered = sorted(ids)
    for start in range(0, len(ordered), _AT_ONCE):
        yield from connection.execute(asked, {"ids": ordered[start : start + _AT_ONCE], **values})


def _add(
    connection: Connection, kind: type[Best] | type[MetricName], rows: Sequence[Best] | Sequence[MetricName]
) -> None:
    """Those that are not there yet."""
    if rows:
        insert = dialects.insert(TABLES[kind], connection.dialect.name)
        connection.execute(insert.on_conflict_do_nothing(), [asdict(row) for row in rows])
