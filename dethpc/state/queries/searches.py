"""What the searcher of one experiment decided from."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from dethpc.domain.facts import Experiment, SearchNote, Trial
from dethpc.domain.ports import Snapshot
from dethpc.state import rows
from dethpc.state.queries.experiments import experiment

_trial = rows.table(Trial).c
_note = rows.table(SearchNote).c


def search(connection: Connection, experiment_id: int) -> Snapshot:
    """What the experiment's search is folded from: also that of one that has ended. Raises: NotFound."""
    found: dict[type, list[Any]] = {
        Experiment: [experiment(connection, experiment_id)],
        Trial: rows.read(connection, Trial, _trial.experiment_id == experiment_id),
        SearchNote: search_notes(connection, experiment_id),
    }
    return Snapshot(found, next_experiment_id=1, next_trial_id=1)


def search_notes(connection: Connection, experiment_id: int, after: int = 0) -> list[SearchNote]:
    """What the searcher remembers, in order, from the note behind number ``after`` on."""
    return rows.read(connection, SearchNote, _note.experiment_id == experiment_id, _note.seq > after)
