"""SELECTs on the driver find what SQLAlchemy finds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import String, bindparam, select, type_coerce

from dethpc.domain.facts import Experiment, Metric, Run, Trial
from dethpc.domain.states import RunState, State
from dethpc.errors import StoreError
from dethpc.state import SqlStore, open_store, rows
from dethpc.state.queries.page import among
from dethpc.state.selections import Selection
from tests.state.factories import experiment, metric, run, trial

_trial, _run = rows.table(Trial).c, rows.table(Run).c


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlStore]:
    if request.param == "sqlite":
        url = str(tmp_path_factory.mktemp("selections") / "state.db")
    else:
        made: Callable[[], str] = request.getfixturevalue("postgres")
        url = made()
    with open_store(url) as opened:
        yield opened


def test_rows_are_those_of_the_facts_whatever_list_they_are_asked_by(store: SqlStore) -> None:
    trials = [
        trial(n, best_validation=math.nan if n % 5 == 0 else 1 / n, hparams={"a": n}, state=list(State)[n % 3])
        for n in range(1, 1100)
    ]
    store.commit([experiment(), *trials])
    by_id = Selection(rows.query(Trial, _trial.id.in_(among("ids"))))
    with store.read() as connection:
        for asked in ([7], [3, 1, 2], list(range(1, 1100)), [], [5000]):
            found = [Trial(*row) for row in by_id.rows(connection, ids=asked)]
            assert sorted(map(repr, found)) == sorted(repr(each) for each in trials if each.id in asked)


def test_constants_and_values_become_what_their_columns_hold(store: SqlStore) -> None:
    store.commit([experiment(), run("1.1.1"), run("1.2.1", trial_id=2, state=RunState.ENDED), run("1.3.1", 1, 3)])
    live = Selection(
        select(_run.id, _run.state)
        .where(_run.state.in_([RunState.RUNNING, RunState.PENDING]), _run.task_id == bindparam("task"))
        .where(_run.number.in_(among("numbers")))
    )
    with store.read() as connection:
        assert live.rows(connection, task="1.1", numbers=[1, 2, 3]) == [("1.1.1", RunState.RUNNING)]
        assert live.rows(connection, task="1.2", numbers=[1]) == []


def test_json_can_be_had_as_it_is_stored(store: SqlStore) -> None:
    store.commit([experiment(config={"name": "x", "b": [1.5, None]})])
    config = rows.table(Experiment).c.config
    with store.read() as connection:
        found = Selection(select(type_coerce(config, String))).rows(connection)
    assert found == [('{"name":"x","b":[1.5,null]}',)]


def test_many_rows_come_in_pieces(store: SqlStore) -> None:
    store.commit([experiment(), *(metric(n) for n in range(1, 2500))])
    columns = rows.table(Metric).c
    wanted = Selection(select(columns.seq).where(columns.trial_id == bindparam("trial")).order_by(columns.seq))
    with store.read() as connection:
        pieces = list(wanted.each(connection, trial=1))
    assert [len(each) for each in pieces] == [1000, 1000, 499]
    assert [seq for each in pieces for (seq,) in each] == list(range(1, 2500))


def test_what_the_driver_raises_while_it_is_read_is_ours(tmp_path: Any) -> None:
    with open_store(tmp_path / "state.db") as store:
        store.commit([replace(experiment(), id=n) for n in range(1, 400)])
        wanted = Selection(rows.query(Experiment))
        with pytest.raises(StoreError, match="interrupted"), store.read() as connection:
            driver: Any = connection.connection.driver_connection
            left = [40]

            def interrupt() -> int:
                left[0] -= 1
                return int(left[0] < 0)

            driver.set_progress_handler(interrupt, 100)
            try:
                wanted.rows(connection)
            finally:
                driver.set_progress_handler(None, 1)
