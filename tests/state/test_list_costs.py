"""What a list costs, counted: in statements, and in steps of the database, however large the experiment is that it is a page of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Select

from dethpc.domain.facts import Task
from dethpc.domain.ids import task_id
from dethpc.domain.states import CheckpointState, RunState, State, TaskKind
from dethpc.state import SqlStore, open_store, queries
from dethpc.state.queries import CheckpointFilter, ExperimentFilter, Order, Page
from tests.state.factories import attempt, checkpoint, experiment, metric, note, run, trial

PAGE = Page(0, 5)
SMALL, LARGE = 20, 400  # trials

LISTS: dict[str, Callable[[Connection], Any]] = {
    "reports of another experiment": lambda c: queries.metrics_of_experiment(c, 2),
    "validation history": lambda c: queries.validation_history(c, 1),
    "names of metrics": lambda c: queries.metric_names(c, [1]),
    "where slots went": lambda c: queries.goodput_of_experiment(c, 1, 9.0),
    "where slots of trials went": lambda c: queries.goodput_of_trials(c, 1, PAGE, 9.0),
    "where slots of pools went": lambda c: queries.goodput_of_pools(c, 1e9, 2e9),
    "experiments": lambda c: queries.experiment_figures(
        c, [e.id for e in queries.list_experiments(c, ExperimentFilter(), Order(), PAGE)[0]]
    ),
    "external id of a trial": lambda c: queries.trial_of_external_id(c, 1, "mine"),
    "places in a search": lambda c: queries.places(c, 1, PAGE),
    "trials by id": lambda c: _page(c, "id"),
    **{
        f"trials by {key}": lambda c, key=key: _page(c, key)
        for key in ("best_validation_metric", "latest_validation_metric", "batches_processed", "restarts", "end_time")
    },
    "curves of trials": lambda c: list(queries.series(c, range(1, 6), ["validation"], None, None)),
    "newest checkpoints": lambda c: queries.list_checkpoints(
        c, CheckpointFilter(experiment_id=1), Order("end_time", True), PAGE
    ),
    "best trial": lambda c: queries.best_trials(c, [1]),
    "trials": lambda c: queries.trial_figures(c, queries.trials_by_id(c, [1, 2, 3, 4, 5])),
    "checkpoints of a trial": lambda c: queries.checkpoints_of_trial(c, 3),
    "a trial's reports": lambda c: queries.workloads(
        c, 3, groups=None, checkpoint_states=list(CheckpointState), descending=False, page=PAGE
    ),
}
"""They cost the same however many trials there are."""

PAGES: dict[str, tuple[int, Callable[[Connection], Any]]] = {
    "ids of an experiment's trials": (15, lambda c: queries.experiment_figures(c, [1], trial_ids=True)),
    "trials by checkpoint_size": (40, lambda c: _page(c, "checkpoint_size")),
    "trials that run": (60, lambda c: queries.list_trials(c, 1, frozenset({"RUNNING"}), Order(), PAGE)),
    "trials that wait": (75, lambda c: queries.list_trials(c, 1, frozenset({"QUEUED"}), Order(), PAGE)),
    "checkpoints by metric": (
        30,
        lambda c: queries.list_checkpoints(c, CheckpointFilter(experiment_id=1, metric="loss"), Order(), PAGE),
    ),
    **{f"trials by {key}": (20, lambda c, key=key: _page(c, key)) for key in ("start_time", "duration")},
}
"""Each with the steps that it may take for each trial beside: to count it along an index, or to sort by a column of it. Nothing but
the page is read whole."""


def _page(connection: Connection, key: str) -> Any:
    return queries.trial_figures(connection, queries.list_trials(connection, 1, frozenset(), Order(key), PAGE)[0])


def fill(path: Path, trials: int) -> SqlStore:
    store = open_store(path)
    store.commit([experiment(1, State.COMPLETED, metric="loss")])
    for n in range(1, trials + 1):
        reports = [
            replace(metric(seq, f"1.{n}.1", trial_id=n, group="validation"), reported_at=float(seq))
            for seq in (1, 2, 3)
        ]
        rows = [
            trial(n, 1, best_validation=1 / n),
            replace(note(n), trial_index=n - 1),
            replace(checkpoint(f"c-{n}", 1, n, resources={"a": n}), reported_at=float(n)),
            Task(task_id(1, n), TaskKind.TRIAL, "job-1", "ada", State.ACTIVE, 1.0, 1, n),
            run(f"1.{n}.1", trial_id=n, state=RunState.RUNNING if n < 5 else RunState.ENDED),
            attempt(f"1.{n}.1", trial_id=n),
        ]
        store.commit([*rows, *reports])
    return store


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SqlStore, SqlStore]]:
    folder = tmp_path_factory.mktemp("lists")
    with fill(folder / "small.db", SMALL) as small, fill(folder / "large.db", LARGE) as large:
        yield small, large


class Cost:
    def __init__(self) -> None:
        self.statements = self.steps = 0

    def step(self) -> int:
        self.steps += 1
        return 0

    def execute(self, statement: str) -> None:
        self.statements += 1


@contextmanager
def counted(store: SqlStore) -> Iterator[tuple[Connection, Cost]]:
    cost = Cost()
    with store.read() as connection:
        driver: Any = connection.connection.driver_connection
        driver.set_trace_callback(cost.execute)
        driver.set_progress_handler(cost.step, 1)
        try:
            yield connection, cost
        finally:
            driver.set_progress_handler(None, 1)
            driver.set_trace_callback(None)


def cost_of(store: SqlStore, ask: Callable[[Connection], Any]) -> Cost:
    with counted(store) as (connection, cost):
        ask(connection)
    return cost


@pytest.mark.parametrize("name", LISTS)
def test_a_list_costs_what_it_shows_however_large_its_experiment_is(
    name: str, stores: tuple[SqlStore, SqlStore]
) -> None:
    small, large = (cost_of(store, LISTS[name]) for store in stores)
    assert large.statements == small.statements
    assert large.steps <= 1.5 * small.steps + 100, (small.steps, large.steps)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_asks_as_often_and_reads_few_columns_of_the_rest(name: str, stores: tuple[SqlStore, SqlStore]) -> None:
    most, ask = PAGES[name]
    small, large = (cost_of(store, ask) for store in stores)
    assert large.statements == small.statements
    assert large.steps <= small.steps + most * (LARGE - SMALL), (small.steps, large.steps)


@pytest.mark.parametrize(
    "ask",
    [
        lambda connection: queries.trial_figures(connection, [queries.trial(connection, 1)]),
        lambda connection: queries.experiment_figures(
            connection, [queries.experiment(connection, 1).id], trial_ids=True
        ),
        lambda connection: queries.runs_of_trial(connection, 1),
        lambda connection: queries.checkpoint(connection, "c-1"),
        lambda connection: queries.tried(connection, 1, 10),
    ],
)
def test_what_is_asked_all_the_time_makes_no_statement_anew(
    ask: Callable[[Connection], Any], stores: tuple[SqlStore, SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    with stores[0].read() as connection:
        ask(connection)
        monkeypatch.setattr(Select, "__init__", lambda self, *columns, **options: made.append(columns))
        ask(connection)
    assert made == []


def test_the_figures_of_a_trial_cost_the_same_however_much_it_has_reported(tmp_path: Path) -> None:
    costs = []
    for reports in (5, 500):
        with open_store(tmp_path / f"{reports}.db") as store:
            store.commit([experiment(1), trial(1, best_validation_steps=10)])
            store.commit([metric(seq, group="validation") for seq in range(1, reports + 1)])
            costs.append(cost_of(store, lambda c: queries.trial_figures(c, [trial(1)])).steps)
            with store.read() as connection:
                latest = queries.trial_figures(connection, [trial(1)])[1].latest
            assert latest is not None and latest.seq == reports
    assert costs[1] <= costs[0] + 20, costs
