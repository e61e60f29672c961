"""A connection that sees some workspaces alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from dethpc.domain import facts
from dethpc.domain.filters import parse
from dethpc.domain.records import (
    LogDays,
    Model,
    ModelVersion,
    Project,
    Template,
    Webhook,
    WebhookMode,
    WebhookType,
    Workspace,
)
from dethpc.state import SqlStore, open_store, queries, rows
from dethpc.state.queries import ExperimentFilter, Order, Page, listings
from dethpc.state.queries import records as stored
from dethpc.state.tables import TABLES
from tests.state.factories import attempt, checkpoint, experiment, metric, run, trial


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlStore]:
    """Experiment 1 is in workspace 2, experiment 2 in workspace 3; each has one of everything."""
    url = str(tmp_path / "state.db")
    if request.param == "postgresql":
        postgres: Callable[[], str] = request.getfixturevalue("postgres")
        url = postgres()
    with open_store(url) as store:
        for id in (1, 2):
            for record in _records(id):
                store.put(record)
            at: dict[str, Any] = {"experiment_id": id, "trial_id": id}
            name = f"{id}.{id}.1"
            store.commit(
                [
                    experiment(id, project_id=id + 1),
                    trial(id, id),
                    run(name, **at),
                    attempt(name, **at),
                    checkpoint(f"c-{id}", **at),
                    metric(1, name, trial_id=id),
                ]
            )
        yield store


def _records(id: int) -> list[Any]:
    space = id + 1
    return [
        Workspace(space, f"w{id}", 1, 1.0),
        Project(space, space, f"p{id}", f"K{id}", 1, 1.0),
        Template(f"t{id}", {}, space),
        Model(id, f"m{id}", 1, 1.0, 1.0, workspace_id=space),
        ModelVersion(f"m{id}", 1, f"c-{id}", 1.0),
        Webhook(id, f"h{id}", "http://x", WebhookType.DEFAULT, WebhookMode.WORKSPACE, [], 1, 1.0, space),
        LogDays("experiment", id, 3),
        LogDays("trial", id, 3),
    ]


KINDS = (
    *(Workspace, Project, Template, Model, ModelVersion, Webhook, LogDays),
    *(facts.Experiment, facts.Trial, facts.Run, facts.Attempt, facts.Checkpoint),
)


def test_every_table_shows_the_rows_of_its_workspaces_and_no_others(store: SqlStore) -> None:
    for kind in KINDS:
        with store.read() as connection:
            both = rows.read(connection, kind)
        with store.read([2]) as connection:
            first = rows.read(connection, kind)
        with store.read([2, 3]) as connection:
            assert rows.read(connection, kind) == both
        with store.read([]) as connection:
            assert rows.read(connection, kind) == []
        assert first == both[::2] and first, kind


def test_lists_counts_and_joins_see_no_more(store: SqlStore) -> None:
    with store.read([3]) as connection:
        page = queries.list_experiments(connection, ExperimentFilter(), Order(), Page())
        assert ([one.id for one in page[0]], page[1]) == ([2], 1)
        assert listings.ids_of_runs(connection, None, parse(""), [], Page())[:2] == ([2], 1)
        assert listings.ids_of_experiments(connection, None, parse(""), [], Page())[:2] == ([2], 1)
        assert [row.trial.id for row in listings.run_rows(connection, [1, 2])] == [2]
        criteria = queries.CheckpointFilter()
        checkpoints = queries.list_checkpoints(connection, criteria, Order("uuid"), Page())
        assert ([one.uuid for one in checkpoints[0]], checkpoints[1]) == (["c-2"], 1)
        assert stored.find(connection, Template, name="t1") == []


def test_the_next_connection_sees_everything_again(store: SqlStore) -> None:
    count = select(func.count()).select_from(rows.table(facts.Experiment))
    with store.read([3]) as connection:
        assert connection.scalar(count) == 1
    with store.read() as connection:
        assert connection.scalar(count) == 2


def test_a_kind_of_which_nothing_says_where_it_belongs_is_not_seen(store: SqlStore) -> None:
    for kind in TABLES:
        with store.read([2]) as connection:
            rows.read(connection, kind)  # each of them can be asked for
