"""Why is it waiting?"""

from __future__ import annotations

from collections.abc import Sequence

from dethpc.master.http.access import Owner, TheStore, TheWaits
from dethpc.master.http.router import new_router
from dethpc.master.http.wire.waiting import AllWaits, ExperimentWaits, Reason, TrialWaits
from dethpc.master.watching.wait_reasons import Group
from dethpc.state import queries
from dethpc.state.store import SqlStore

router = new_router(prefix="/api/v1", tags=["waiting"])


# The database is read before or after the scheduler is asked, never meanwhile: it may take its time.


@router.get("/experiments/{experiment_id}/waiting")
def of_experiment(experiment_id: int, store: TheStore, waits: TheWaits, who: Owner) -> ExperimentWaits:
    """What the experiment's trials wait for, and what would start them sooner."""
    return _waits(store, experiment_id, waits.of_experiment(experiment_id))


@router.get("/trials/{trial_id}/waiting")
def of_trial(trial_id: int, store: TheStore, waits: TheWaits, who: Owner) -> TrialWaits:
    """What the trial waits for, if it does."""
    with store.read() as connection:
        queries.trial(connection, trial_id)
    waiting = waits.of_trial(trial_id)
    return TrialWaits(trial_id=trial_id, waiting=Reason.of(waiting) if waiting is not None else None)


@router.get("/waiting")
def every(store: TheStore, waits: TheWaits, who: Owner) -> AllWaits:
    """What every experiment that has not ended waits for; those that wait for nothing are left out."""
    groups = {id: waits.of_experiment(id) for id in waits.live()}
    return AllWaits(experiments=[_waits(store, id, waits) for id, waits in groups.items() if waits])


def _waits(store: SqlStore, experiment_id: int, groups: Sequence[Group]) -> ExperimentWaits:
    with store.read() as connection:
        return ExperimentWaits.of(queries.experiment(connection, experiment_id), groups)
