"""Where slots went, of experiments, trials and pools: a sum over runs that have ended, and the times of those that have not."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from dethpc.domain.facts import Experiment, Run, Task, Trial
from dethpc.domain.goodput import Goodput, of_run
from dethpc.domain.states import RunState, TaskKind
from dethpc.state import rows
from dethpc.state.queries.page import Page
from dethpc.state.queries.tasks import of_trial
from dethpc.state.queries.trials import number_of_trials
from dethpc.state.sums import times
from dethpc.state.tables import Spent, SpentSum

_experiment = rows.table(Experiment).c
_trial = rows.table(Trial).c
_task = rows.table(Task).c
_run = rows.table(Run).c
_spent = rows.table(Spent).c
_sum = rows.table(SpentSum).c

_LIVE = _run.state.in_([state for state in RunState if state is not RunState.ENDED])
_ON_THE_CLUSTER = _experiment.kind.in_([kind for kind in TaskKind if kind.submitted])
_SUMS = tuple(func.sum(_spent[name]) for name in ("useful", "lost", "overhead", "waiting"))


def goodput_of_experiment(connection: Connection, experiment_id: int, now: float) -> Goodput:
    """Of all runs of its trials on the cluster."""
    if not _on_the_cluster(connection, experiment_id):
        return Goodput()
    query = select(_sum.useful, _sum.lost, _sum.overhead, _sum.waiting).where(_sum.experiment_id == experiment_id)
    ended = connection.execute(query).first()
    total = Goodput() if ended is None else Goodput(*ended)
    for run, attempts in times(connection, _run.experiment_id == experiment_id, _LIVE):
        total.add(of_run(run, attempts, now))
    return total


def goodput_of_trials(
    connection: Connection, experiment_id: int, page: Page, now: float
) -> tuple[dict[int, Goodput], int, int]:
    """Of each trial of a page of the experiment's that had a run on the cluster, by id; how many trials there are, and where the
    page begins."""
    total = number_of_trials(connection, experiment_id) if _on_the_cluster(connection, experiment_id) else 0
    begin = page.begin(total)
    of_page = select(_trial.id).where(_trial.experiment_id == experiment_id).order_by(_trial.id)
    ids = list(connection.scalars(of_page.offset(begin).limit(page.limit))) if total else []
    if not ids:
        return {}, total, begin
    query = select(_spent.trial_id, *_SUMS).where(
        _spent.experiment_id == experiment_id, _spent.trial_id.between(ids[0], ids[-1])
    )
    by_trial = {id: Goodput(*sums) for id, *sums in connection.execute(query.group_by(_spent.trial_id))}
    of_them = _task.trial_id.between(ids[0], ids[-1])
    for run, attempts in times(connection, _run.experiment_id == experiment_id, _LIVE, of_them):
        by_trial.setdefault(run.trial_id, Goodput()).add(of_run(run, attempts, now))
    return dict(sorted(by_trial.items())), total, begin


def goodput_of_trial(connection: Connection, trial_id: int, now: float) -> Goodput:
    total = Goodput()
    for run, attempts in times(connection, _run.task_id.in_(of_trial(trial_id))):
        if _on_the_cluster(connection, run.experiment_id):
            total.add(of_run(run, attempts, now))
    return total


def goodput_of_pools(connection: Connection, since: float, now: float) -> dict[str, Goodput]:
    """Of the runs that had not ended by ``since``, by pool."""
    cluster = select(_experiment.id).where(_ON_THE_CLUSTER)
    # Which are elsewhere: asked which are not, a database goes through them and not through the runs of late.
    elsewhere = select(_experiment.id).where(~_ON_THE_CLUSTER)
    query = select(_spent.pool, *_SUMS).where(_spent.ended_at > since, _spent.experiment_id.not_in(elsewhere))
    by_pool = {pool: Goodput(*sums) for pool, *sums in connection.execute(query.group_by(_spent.pool))}
    for run, attempts in times(connection, _run.experiment_id.in_(cluster), _LIVE):
        by_pool.setdefault(run.pool, Goodput()).add(of_run(run, attempts, now))
    return dict(sorted(by_pool.items()))


def _on_the_cluster(connection: Connection, experiment_id: int) -> bool:
    query = select(_experiment.id).where(_experiment.id == experiment_id, _ON_THE_CLUSTER)
    return connection.scalar(query) is not None
