"""An IN list of any length, of which older SQLite takes 999 values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import bindparam, select

from dethpc.domain.facts import Run, Trial
from dethpc.domain.states import RunState, State
from dethpc.state import SqlStore, open_store, rows
from dethpc.state.dialects import VALUES, execute_in_chunks
from tests.state.factories import experiment, run, trial

_trial, _run = rows.table(Trial).c, rows.table(Run).c


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlStore]:
    if request.param == "sqlite":
        url = str(tmp_path_factory.mktemp("dialects") / "state.db")
    else:
        make: Callable[[], str] = request.getfixturevalue("postgres")
        url = make()
    with open_store(url) as opened:
        yield opened


def test_rows_are_those_of_the_list_however_long_it_is(store: SqlStore) -> None:
    trials = [
        trial(n, best_validation=math.nan if n % 5 == 0 else 1 / n, hparams={"a": n}, state=list(State)[n % 3])
        for n in range(1, 2100)
    ]
    store.commit([experiment(), *trials])
    by_id = rows.query(Trial, _trial.id.in_(VALUES))
    with store.read() as connection:
        for ids in ([7], [3, 1, 2], list(range(1, 2100)), [], [5000]):
            rows_read = [Trial(*row) for row in execute_in_chunks(connection, by_id, ids)]
            assert sorted(map(repr, rows_read)) == sorted(repr(trial) for trial in trials if trial.id in ids)


def test_a_statement_takes_other_values_beside_its_list(store: SqlStore) -> None:
    store.commit([experiment(), run("1.1.1"), run("1.2.1", trial_id=2, state=RunState.ENDED), run("1.3.1", 1, 3)])
    live = (
        select(_run.id, _run.state)
        .where(_run.state.in_([RunState.RUNNING, RunState.PENDING]), _run.task_id == bindparam("task"))
        .where(_run.number.in_(VALUES))
    )

    def read(task: str, numbers: list[int]) -> list[tuple[Any, ...]]:
        with store.read() as connection:
            return [tuple(row) for row in execute_in_chunks(connection, live, numbers, task=task)]

    assert read("1.1", [1, 2, 3]) == [("1.1.1", RunState.RUNNING)]
    assert read("1.2", [1]) == []
