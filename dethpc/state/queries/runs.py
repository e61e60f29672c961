"""Runs, their attempts, and what is held against nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sqlalchemy import ColumnElement, Connection, and_, or_, select

from dethpc.domain.facts import Attempt, Experiment, NodeHealth, Run
from dethpc.domain.states import RunState
from dethpc.state import rows
from dethpc.state.queries.page import one

_experiment = rows.table(Experiment).c
_run = rows.table(Run).c
_attempt = rows.table(Attempt).c


def run(connection: Connection, run_id: str) -> Run:
    """Raises: NotFound."""
    return one(connection, Run, _run.id == run_id, f"run {run_id}")


def runs_of_trial(connection: Connection, trial_id: int) -> list[Run]:
    """In the order in which they were submitted."""
    query = rows.query(Run, _run.trial_id == trial_id).order_by(_run.number)
    return [Run(*row) for row in connection.execute(query)]


def runs_with_attempts(
    connection: Connection, *, experiment_id: int | None = None, trial_id: int | None = None, since: float | None = None
) -> Iterator[tuple[Run, list[Attempt]]]:
    """Runs with their attempts in order, those on the cluster alone; by trial and number. ``since``: those that had not ended
    by then. Costs two queries, whatever the number."""
    elsewhere = select(_experiment.id).where(_experiment.unmanaged)
    where: list[ColumnElement[bool]] = [_run.experiment_id.not_in(elsewhere)]
    if experiment_id is not None:
        where.append(_run.experiment_id == experiment_id)
    if trial_id is not None:
        where.append(_run.trial_id == trial_id)
    if since is not None:
        where.append(or_(_run.ended_at.is_(None), _run.ended_at > since))
    attempts: dict[str, list[Attempt]] = {}
    of_runs = rows.query(Attempt, _attempt.run_id.in_(select(_run.id).where(*where)))
    for row in connection.execute(of_runs.order_by(_attempt.run_id, _attempt.number)):
        attempts.setdefault(row[0], []).append(Attempt(*row))
    for row in connection.execute(rows.query(Run, *where).order_by(_run.trial_id, _run.number)):
        run = Run(*row)
        yield run, attempts.get(run.id, [])


def live_runs(connection: Connection) -> list[Run]:
    """Every run that has not ended."""
    return rows.read(connection, Run, _run.state.in_([state for state in RunState if state is not RunState.ENDED]))


def jobs_of_runs(connection: Connection, job_ids: Collection[str]) -> set[str]:
    """Which of the scheduler's jobs are, or were, those of runs."""
    return {
        str(job)
        for (job,) in connection.execute(select(_run.scheduler_job_id).where(_run.scheduler_job_id.in_(job_ids)))
    }


def training_times(connection: Connection, experiment_id: int) -> list[tuple[float, float | None]]:
    """From when to when each run of the experiment ran, by start; None: it still does."""
    query = select(_run.started_at, _run.ended_at, _run.state).where(
        _run.experiment_id == experiment_id, _run.started_at.is_not(None)
    )
    times = connection.execute(query.order_by(_run.started_at))
    return [(begin, (end or begin) if state is RunState.ENDED else None) for begin, end, state in times]


def attempts_of_trial(connection: Connection, trial_id: int) -> list[Attempt]:
    return rows.read(connection, Attempt, _attempt.trial_id == trial_id)


def attempt(connection: Connection, run_id: str, k: int) -> Attempt:
    """Raises: NotFound."""
    where = and_(_attempt.run_id == run_id, _attempt.number == k)
    return one(connection, Attempt, where, f"allocation {run_id}.{k}")


def nodes(connection: Connection) -> list[NodeHealth]:
    """What is held against nodes."""
    return rows.read(connection, NodeHealth)
