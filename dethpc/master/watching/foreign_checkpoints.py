"""Rejects reported checkpoint UUIDs that belong to another trial."""

from __future__ import annotations

from collections.abc import Sequence

from dethpc.domain.facts import Run
from dethpc.domain.reports import NAMES_ONE, Report, fault
from dethpc.master.durable.ledger import Ledger
from dethpc.master.watching.trouble import tell
from dethpc.rundir.home import Home
from dethpc.state import queries
from dethpc.state.store import SqlStore


def taken_over(ledger: Ledger, store: SqlStore, run_id: str, reports: Sequence[Report]) -> dict[str, int]:
    """Of the live run's reports: uuid -> the trial whose checkpoint it is."""
    run = ledger.state.runs.get(run_id)
    trial = None if run is None else ledger.state.trial_of(run)
    return {} if trial is None else of_others(store, trial.id, reports)


def told_others(ledger: Ledger, store: SqlStore, home: Home, run: Run, reports: Sequence[Report]) -> dict[str, int]:
    """``taken_over``; the trial's log says so."""
    owners = taken_over(ledger, store, run.id, reports)
    for uuid, trial_id in owners.items():
        message = f"the report of checkpoint {uuid} counts for nothing: it is trial {trial_id}'s"
        tell(home, run, f"{message}; save under a name of its own what this trial stores")
    return owners


def of_others(store: SqlStore, trial_id: int | None, reports: Sequence[Report]) -> dict[str, int]:
    """``taken_over`` of a trial, or of one that is not there yet (None)."""
    uuids = [str(r.data["uuid"]) for r in reports if r.kind in NAMES_ONE and not fault(r)]
    if not uuids:
        return {}
    with store.read() as connection:
        checkpoints = queries.checkpoints_by_id(connection, uuids)
    return {row.uuid: row.trial_id for row in checkpoints if row.trial_id != trial_id}
