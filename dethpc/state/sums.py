"""Sums that lists show without reading every report, attempt and checkpoint. They are updated in the writer's transaction.

Summaries of metrics: a fold over the reports that count, in order of report. Folding in one more report is one step, and equals the
summary of all values, made again.

History of an experiment: the validations that were the best when they were reported, and the names of its metrics. Reports arrive
late, in any order, and may be voided. A late one takes its place in the history and removes the entries that it beats; where an
entry is voided, those that it had beaten are searched for once more.

Slot-seconds of runs that ended, and their sum for each experiment. An attempt of a run that has ended can still change: a later
one that begins at an earlier checkpoint trains a part of it again.

Checkpoints of an experiment: how many there are, how many of them are not deleted, and their bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import asdict, astuple
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, bindparam, delete, exists, func, or_, select

from dethpc.domain.facts import Attempt, Checkpoint, Experiment, Metric, Run, Task, Trial
from dethpc.domain.goodput import of_run
from dethpc.domain.states import AttemptState, CheckpointState, End, RunState
from dethpc.domain.text.not_finite import as_float
from dethpc.state import dialects
from dethpc.state.tables import TABLES, Best, MetricName, Spent, SpentSum, StoredSum, Summary

# --- summaries of metrics

Key = tuple[int, str, str]
"""Trial id, group, name of the metric."""


def bests(validations: Iterable[Best], smaller_is_better: bool, before: float | None = None) -> list[Best]:
    """Those that were the best when they were reported, of ``validations`` in order of report. ``before``: the best until then."""
    history = []
    for validation in validations:
        if before is None or (validation.value < before if smaller_is_better else validation.value > before):
            history.append(validation)
            before = validation.value
    return history


def usable(value: Any) -> float | None:
    """A metric's value as one that can be the best; None: it cannot."""
    if not isinstance(value, (int, float)):
        return None
    number = as_float(value)
    return number if math.isfinite(number) else None


def fold(summaries: MutableMapping[Key, Summary], metrics: Iterable[Metric]) -> list[Summary]:
    """Take reports, in order, into ``summaries``. Returns those that they changed.

    Raises TypeError for what JSON cannot hold; some of the reports are taken in then.
    """
    changed: dict[Key, Summary] = {}
    for metric in metrics:
        steps = metric.steps_completed
        for name, value in metric.metrics.items():
            if (
                name == "batch_metrics"
            ):  # of single batches, which are no metric: the report has their means beside them
                continue
            kind = _NAMES.get(type(value)) or type_of(value)
            number = as_float(value) if kind == "number" else None
            key = (metric.trial_id, metric.group, name)
            summary = changed.get(key) or summaries.get(key)
            if summary is None:
                bound = number if number == number else None
                summary = Summary(*key, kind, 1, number, bound, bound, value, steps)
                summaries[key] = changed[key] = summary
                continue
            changed[key] = summary
            summary.count += 1
            if summary.type != kind:
                summary.type = "string"
                summary.sum = summary.min = summary.max = None
            elif number is not None and summary.sum is not None:
                summary.sum += number
                if number == number:
                    summary.min = number if summary.min is None or number < summary.min else summary.min
                    summary.max = number if summary.max is None or number > summary.max else summary.max
            if steps >= summary.last_steps:
                summary.last, summary.last_steps = value, steps
    return list(changed.values())


class Recent:
    """The summaries of trials that reported lately, as the database has them: taking in a report reads nothing then.

    For whoever writes the database alone. ``most`` summaries are kept, of the trials that reported last, and none of one that has
    ended. What a transaction that failed did to them nobody knows: ``forget`` them all. ``whole`` are runs
    all of whose reports count.
    """

    def __init__(self, most: int = 20_000) -> None:
        self._most, self._kept = most, 0
        self.whole: set[str] = set()
        self._by_trial: dict[int, dict[Key, Summary]] = {}  # who reported last comes last

    def __len__(self) -> int:
        return self._kept

    def take(self, trial_id: int) -> dict[Key, Summary] | None:
        """Those of a trial, which are to be kept again after they were changed. None: ask the database."""
        summaries = self._by_trial.pop(trial_id, None)
        if summaries is not None:
            self._kept -= len(summaries)
        return summaries

    def keep(self, trial_id: int, summaries: dict[Key, Summary]) -> None:
        self.take(trial_id)
        self._by_trial[trial_id] = summaries
        self._kept += len(summaries)
        while self._kept > self._most:
            self.take(next(iter(self._by_trial)))
        if len(self.whole) > self._most:
            self.whole.clear()

    def forget(self) -> None:
        self._by_trial.clear()
        self.whole.clear()
        self._kept = 0


def type_of(value: Any) -> str:
    """The JSON type of a value. Raises TypeError for what JSON cannot hold."""
    for python, name in _TYPES:
        if isinstance(value, python):
            return name
    raise TypeError(f"a metric cannot be a {type(value).__name__}")


_TYPES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "boolean"),
    ((int, float), "number"),
    (str, "string"),
    (type(None), "null"),
    ((list, tuple), "array"),
    (dict, "object"),
)


_NAMES = {float: "number", int: "number", bool: "boolean", str: "string"}
"""Of the types that nearly all values have."""


# --- history of best validations, and names of metrics

_experiment, _trial = TABLES[Experiment].c, TABLES[Trial].c
_metric, _summary = TABLES[Metric].c, TABLES[Summary].c
_best, _name = TABLES[Best].c, TABLES[MetricName].c
_earlier = TABLES[Best].alias().c

_BEST = (_best.run_id, _best.attempt, _best.seq, _best.experiment_id, _best.trial_id, _best.reported_at, _best.value)
_SEARCHED = select(_experiment.id, _experiment.metric, _experiment.smaller_is_better).where(
    _experiment.id.in_(dialects.VALUES)
)
_BEFORE = (
    select(func.max(_earlier.reported_at))
    .where(_earlier.experiment_id == _best.experiment_id, _earlier.reported_at <= bindparam("first"))
    .scalar_subquery()
)
_FROM = (
    select(*_BEST)
    .where(
        _best.experiment_id.in_(dialects.VALUES),
        _best.reported_at >= func.coalesce(_BEFORE, bindparam("first")),
    )
    .order_by(_best.reported_at)
)
_GONE = select(*_BEST).where(
    _best.run_id == bindparam("run"),
    _best.attempt == bindparam("number"),
    ~exists().where(_metric.run_id == _best.run_id, _metric.attempt == _best.attempt, _metric.seq == _best.seq),
)


def add_metric_names(connection: Connection, keys: Iterable[tuple[int, str, str]]) -> None:
    """Some trial has its first summary of these: each is an experiment's id, a group and a name."""
    _add_new(connection, MetricName, [MetricName(*key) for key in sorted(keys)])


def follow_validations(connection: Connection, metrics: Sequence[Metric]) -> None:
    """Take in reports that count and that the database has, in order of report. Those that were taken in before change nothing."""
    reports = [metric for metric in metrics if metric.group == "validation"]
    searched = {
        row.id: row
        for row in dialects.execute_in_chunks(connection, _SEARCHED, {report.experiment_id for report in reports})
    }
    candidates: dict[int, list[Best]] = {}
    for report in reports:
        experiment = searched.get(report.experiment_id)
        value = None if experiment is None else usable(report.metrics.get(experiment.metric))
        if value is not None:
            candidates.setdefault(report.experiment_id, []).append(_validation(report, value))
    if not candidates:
        return
    first = min(validation.reported_at for lines in candidates.values() for validation in lines)
    stored: dict[int, list[Best]] = {}
    for row in dialects.execute_in_chunks(connection, _FROM, candidates, first=first):
        stored.setdefault(row.experiment_id, []).append(Best(*row))
    beaten: list[Best] = []
    new: list[Best] = []
    for id, lines in candidates.items():
        history = stored.get(id, [])
        smaller = searched[id].smaller_is_better
        history.sort(key=lambda best: (best.reported_at, -best.value if smaller else best.value))  # noqa: B023
        # Of the same instant those of the history came first.
        merged = bests(sorted([*history, *lines], key=lambda best: best.reported_at), smaller)
        old_keys, new_keys = {astuple(best)[:3] for best in history}, {astuple(best)[:3] for best in merged}
        beaten += [best for best in history if astuple(best)[:3] not in new_keys]
        new += [best for best in merged if astuple(best)[:3] not in old_keys]
    for best in beaten:
        own = _best.run_id == best.run_id, _best.attempt == best.attempt, _best.seq == best.seq
        connection.execute(delete(TABLES[Best]).where(*own))
    _add_new(connection, Best, new)


def mend_history(connection: Connection, run_id: str, attempt: int, experiment_ids: Iterable[int]) -> None:
    """After reports of an attempt were deleted, and the summaries made anew, of trials of these experiments."""
    for id in experiment_ids:
        _drop_names(connection, id)
    gone = [Best(*row) for row in connection.execute(_GONE, {"run": run_id, "number": attempt})]
    for id in {best.experiment_id for best in gone}:
        _rebuild_history(connection, id, [best.reported_at for best in gone if best.experiment_id == id])


def _drop_names(connection: Connection, experiment_id: int) -> None:
    """Those that no trial has a summary of any more."""
    summaries = TABLES[Summary].join(TABLES[Trial], _trial.id == _summary.trial_id)
    same = and_(_trial.experiment_id == experiment_id, _summary.group == _name.group, _summary.name == _name.name)
    some = select(_summary.trial_id).select_from(summaries).where(same).correlate(TABLES[MetricName]).exists()
    connection.execute(delete(TABLES[MetricName]).where(_name.experiment_id == experiment_id, ~some))


def _rebuild_history(connection: Connection, experiment_id: int, times: Sequence[float]) -> None:
    """For what the lines of these times had beaten. What comes after the next line that is left was beaten by that, too."""
    (of,) = connection.execute(_SEARCHED, {"values": [experiment_id]})
    own, first = _best.experiment_id == experiment_id, min(times)
    until = connection.scalar(select(func.min(_best.reported_at)).where(own, _best.reported_at > max(times)))
    touched = [own, _best.reported_at >= first, *([] if until is None else [_best.reported_at <= until])]
    connection.execute(delete(TABLES[Best]).where(*touched))
    better = _best.value.asc() if of.smaller_is_better else _best.value.desc()
    last = select(_best.value).where(own, _best.reported_at < first).order_by(_best.reported_at.desc(), better).limit(1)
    before = connection.scalar(last)
    _add_new(connection, Best, bests(_reported(connection, of, before, first, until), of.smaller_is_better, before))


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


def _validation(metric: Metric, value: float) -> Best:
    return Best(
        metric.run_id, metric.attempt, metric.seq, metric.experiment_id, metric.trial_id, metric.reported_at, value
    )


def _add_new(
    connection: Connection, kind: type[Best] | type[MetricName], rows: Sequence[Best] | Sequence[MetricName]
) -> None:
    """Those that are not there yet."""
    if rows:
        insert = dialects.insert(TABLES[kind], connection.dialect.name)
        connection.execute(insert.on_conflict_do_nothing(), [asdict(row) for row in rows])


# --- slot-seconds of runs

_runs, _attempts, _tasks = TABLES[Run], TABLES[Attempt], TABLES[Task]
_spent, _spent_sum = TABLES[Spent].c, TABLES[SpentSum].c


class RunTimes(NamedTuple):
    """When a run was wanted and ended, and what it asked for."""

    id: str
    experiment_id: int
    trial_id: int
    pool: str
    slots: int
    created_at: float
    ended_at: float | None


class AttemptTimes(NamedTuple):
    """When an attempt was at what, as ``facts.Attempt`` has it."""

    state: AttemptState
    started_at: float
    ended_at: float | None
    end: End | None
    resumed_steps: int
    first_at: float | None
    first_steps: int | None
    last_at: float | None
    last_steps: int | None
    saved_at: float | None
    saving: float | None
    kept_at: float | None


_RUN = tuple((_tasks if name == "trial_id" else _runs).c[name] for name in RunTimes._fields)
_ATTEMPT = tuple(_attempts.c[name] for name in AttemptTimes._fields)
_SPENT = tuple(_spent[name] for name in Spent.__slots__)
_SPENT_SUM = tuple(_spent_sum[name] for name in SpentSum.__slots__)


def times(connection: Connection, *where: ColumnElement[bool]) -> Iterator[tuple[RunTimes, list[AttemptTimes]]]:
    """Runs of trials with their attempts in order. One query, which reads what times are made of alone: these may be ten
    thousands."""
    query = (
        select(*_RUN, *_ATTEMPT)
        .join_from(_runs, _tasks, _tasks.c.id == _runs.c.task_id)
        .join(_attempts, _attempts.c.run_id == _runs.c.id, isouter=True)
        .where(_runs.c.experiment_id.is_not(None), _tasks.c.trial_id.is_not(None), *where)
        .order_by(_runs.c.id, _attempts.c.number)
    )
    run: RunTimes | None = None
    attempts: list[AttemptTimes] = []
    for row in connection.execute(query.execution_options(yield_per=1000)):
        if run is None or run.id != row[0]:
            if run is not None:
                yield run, attempts
            run, attempts = RunTimes(*row[: len(_RUN)]), []
        if row[len(_RUN)] is not None:
            attempts.append(AttemptTimes(*row[len(_RUN) :]))
    if run is not None:
        yield run, attempts


def of_run_that_ended(run: RunTimes, attempts: Sequence[AttemptTimes]) -> Spent:
    end = run.created_at if run.ended_at is None else run.ended_at
    went = of_run(run._replace(ended_at=end), attempts, end)
    return Spent(
        run.id, run.experiment_id, run.trial_id, run.pool, end, went.useful, went.lost, went.overhead, went.waiting
    )


def follow_runs(connection: Connection, run_ids: Sequence[str]) -> tuple[list[Spent], list[SpentSum]]:
    """What is to be written after these runs, or attempts of them, changed: at most as many as fit into one IN list."""
    ended = times(connection, _runs.c.id.in_(run_ids), _runs.c.state == RunState.ENDED)
    new = [of_run_that_ended(run, attempts) for run, attempts in ended]
    if not new:
        return [], []
    before = select(*_SPENT).where(_spent.run_id.in_([spent.run_id for spent in new]))
    old = [Spent(*row) for row in connection.execute(before)]
    of = sorted({spent.experiment_id for spent in new})
    sums = {
        row[0]: SpentSum(*row)
        for row in connection.execute(select(*_SPENT_SUM).where(_spent_sum.experiment_id.in_(of)))
    }
    _add_spent(sums, old, -1)
    _add_spent(sums, new, 1)
    return new, list(sums.values())


def _add_spent(sums: dict[int, SpentSum], runs: Iterable[Spent], sign: int) -> None:
    for spent in runs:
        total = sums.setdefault(spent.experiment_id, SpentSum(spent.experiment_id))
        total.useful += sign * spent.useful
        total.lost += sign * spent.lost
        total.overhead += sign * spent.overhead
        total.waiting += sign * spent.waiting


# --- checkpoints of experiments

_checkpoint, _stored_sum = TABLES[Checkpoint].c, TABLES[StoredSum].c
_STORED_SUM = tuple(_stored_sum[name] for name in StoredSum.__slots__)


def follow_checkpoints(connection: Connection, checkpoints: Sequence[Checkpoint]) -> list[StoredSum]:
    """What is to be written with these, of which each has a key of its own: at most as many as fit into one IN list."""
    uuids = [checkpoint.uuid for checkpoint in checkpoints]
    columns = (_checkpoint.uuid, _checkpoint.experiment_id, _checkpoint.size, _checkpoint.state)
    old = {row.uuid: row for row in connection.execute(select(*columns).where(_checkpoint.uuid.in_(uuids)))}
    changed = [new for new in checkpoints if new.uuid not in old or _counted(old[new.uuid]) != _counted(new)]
    before = [old[new.uuid] for new in changed if new.uuid in old]
    of = {checkpoint.experiment_id for checkpoint in changed} | {row.experiment_id for row in before}
    stored = select(*_STORED_SUM).where(_stored_sum.experiment_id.in_(sorted(of)))
    sums = {id: StoredSum(id) for id in of}
    sums.update((row[0], StoredSum(*row)) for row in (connection.execute(stored) if of else ()))
    for row in before:
        _add_stored(sums, row, -1)
    for checkpoint in changed:
        _add_stored(sums, checkpoint, 1)
    return list(sums.values())


def _add_stored(sums: dict[int, StoredSum], checkpoint: Any, sign: int) -> None:
    """``checkpoint``: a fact, or its row."""
    experiment_id, size, not_deleted = _counted(checkpoint)
    total = sums[experiment_id]
    total.count += sign
    total.size += sign * size
    total.kept += sign * not_deleted


def _counted(checkpoint: Any) -> tuple[int, int, bool]:
    """What of it a sum holds."""
    return checkpoint.experiment_id, checkpoint.size, checkpoint.state is not CheckpointState.DELETED
