"""Where slots went, kept of every run that has ended and summed over each experiment, so that nobody reads all its attempts.

It follows runs and attempts in the writer's transaction. An attempt of a run that has ended can still change: a later one that
begins at an earlier checkpoint trains a part of it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, select

from dethpc.domain.facts import Attempt, Run, Task
from dethpc.domain.goodput import of_run
from dethpc.domain.states import AttemptState, End, RunState
from dethpc.state.summaries import Spent, SpentSum
from dethpc.state.tables import TABLES

_runs, _attempts, _tasks = TABLES[Run], TABLES[Attempt], TABLES[Task]
_spent, _sum = TABLES[Spent].c, TABLES[SpentSum].c


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
_SUM = tuple(_sum[name] for name in SpentSum.__slots__)


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


def follow(connection: Connection, run_ids: Sequence[str]) -> tuple[list[Spent], list[SpentSum]]:
    """What is to be written after these runs, or attempts of them, changed: at most as many as fit into one IN list."""
    ended = times(connection, _runs.c.id.in_(run_ids), _runs.c.state == RunState.ENDED)
    new = [of_run_that_ended(run, attempts) for run, attempts in ended]
    if not new:
        return [], []
    before = select(*_SPENT).where(_spent.run_id.in_([each.run_id for each in new]))
    old = [Spent(*row) for row in connection.execute(before)]
    of = sorted({each.experiment_id for each in new})
    sums = {row[0]: SpentSum(*row) for row in connection.execute(select(*_SUM).where(_sum.experiment_id.in_(of)))}
    _add(sums, old, -1)
    _add(sums, new, 1)
    return new, list(sums.values())


def _add(sums: dict[int, SpentSum], spent: Iterable[Spent], sign: int) -> None:
    for each in spent:
        total = sums.setdefault(each.experiment_id, SpentSum(each.experiment_id))
        total.useful += sign * each.useful
        total.lost += sign * each.lost
        total.overhead += sign * each.overhead
        total.waiting += sign * each.waiting
