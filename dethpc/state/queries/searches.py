"""What the searcher of one experiment decided from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, bindparam, select

from dethpc.domain.facts import Experiment, SearchNote, Trial
from dethpc.domain.ports import Snapshot
from dethpc.state import rows
from dethpc.state.dialects import VALUES, execute_in_chunks
from dethpc.state.queries.experiments import experiment
from dethpc.state.queries.page import Page
from dethpc.state.queries.trials import number_of_trials

_trial = rows.table(Trial).c
_note = rows.table(SearchNote).c

_IDS = select(_trial.index, _trial.id).where(_trial.experiment_id == bindparam("experiment"), _trial.index.in_(VALUES))
_NOTES = rows.query(SearchNote, _note.experiment_id == bindparam("experiment"), _note.trial_index.in_(VALUES))


def search(connection: Connection, experiment_id: int) -> Snapshot:
    """What the experiment's search is folded from: also that of one that has ended. Raises: NotFound."""
    facts: dict[type, list[Any]] = {
        Experiment: [experiment(connection, experiment_id)],
        Trial: rows.read(connection, Trial, _trial.experiment_id == experiment_id),
        SearchNote: search_notes(connection, experiment_id),
    }
    return Snapshot(facts, next_experiment_id=1, next_trial_id=1)


def places(connection: Connection, experiment_id: int, page: Page) -> tuple[list[Trial], list[SearchNote], int, int]:
    """A page of the experiment's trials by index, what the searcher noted of them, the total, and where the page begins."""
    total = number_of_trials(connection, experiment_id)
    begin = page.begin(total)
    query = (
        rows.query(Trial, _trial.experiment_id == experiment_id).order_by(_trial.index).offset(begin).limit(page.limit)
    )
    trials = [Trial(*row) for row in connection.execute(query)]
    indexes = [trial.index for trial in trials]
    of_them = execute_in_chunks(connection, _NOTES, indexes, experiment=experiment_id)
    notes = [SearchNote(*row) for row in of_them]
    notes.sort(key=lambda note: note.seq)  # here: a database that is to sort them reads them all along their key
    return trials, notes, total, begin


def ids_of_trials(connection: Connection, experiment_id: int, indexes: Iterable[int]) -> dict[int, int]:
    """Ids of trials by their index."""
    return dict(execute_in_chunks(connection, _IDS, sorted(set(indexes)), experiment=experiment_id))


def search_notes(connection: Connection, experiment_id: int, after: int = 0) -> list[SearchNote]:
    """What the searcher remembers, in order, from the note behind number ``after`` on."""
    return rows.read(connection, SearchNote, _note.experiment_id == experiment_id, _note.seq > after)
