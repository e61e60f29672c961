from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.facts import Experiment, Row, Run, Trial
from dethpc.domain.ports import Snapshot
from dethpc.domain.records import Workspace
from dethpc.domain.states import State
from dethpc.engine import ClusterState, events
from dethpc.engine.changes import ExperimentChanges
from dethpc.errors import MasterError, NotFound, Refused, ShuttingDown, StoreError, StoreUnavailable
from dethpc.master.durable import ledger as ledger_module
from dethpc.master.durable.ledger import MAX_BATCH, Ledger, Plan
from dethpc.searcher.methods import build
from dethpc.state import SqlStore, open_store
from dethpc.state.queries import records
from tests.waiting import LONG_ENOUGH, wait_until

CONFIG = {
    "name": "test",
    "entrypoint": "train",
    "searcher": {"name": "random", "metric": "loss", "max_trials": 3, "max_concurrent_trials": 3},
    "hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": 1}},
    "resources": {"slots_per_trial": 1, "resource_pool": "main"},
}


def creation() -> events.CreateExperiment:
    uuid = "00000000-0000-4000-8000-000000000001"
    return events.CreateExperiment(
        "me", ExperimentConfig.from_json(CONFIG), "", "", seed=1, queue_id=uuid, activate=True, at=1.0
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    with open_store(tmp_path / "db") as opened:
        yield opened


@pytest.fixture
def ledger(store: SqlStore) -> Iterator[Ledger]:
    made = Ledger(store, build)
    made.start()
    yield made
    made.stop()


def test_what_was_decided_is_in_the_database_when_do_returns(ledger: Ledger, store: SqlStore) -> None:
    ledger.do(creation())
    assert len(store.load().of(Trial)) == 3
    assert len(store.load().of(Run)) == 3


def test_listeners_hear_of_committed_rows_only_and_in_order(ledger: Ledger, store: SqlStore) -> None:
    heard: list[Row] = []

    def listen(rows: Sequence[Row]) -> None:
        assert store.load().of(Experiment), "told before it was committed"
        heard.extend(rows)

    ledger.listen(listen)
    assert ledger.do(creation()) == heard


def test_a_refused_wish_changes_nothing_and_hurts_nobody_else(ledger: Ledger) -> None:
    wishes = [ledger.post(event) for event in (events.Pause(99, 1.0), creation(), events.Activate(99, 1.0))]
    with pytest.raises(NotFound):
        wishes[0].result()
    assert wishes[1].result()
    with pytest.raises(NotFound):
        wishes[2].result()
    with pytest.raises(Refused, match="experiment 1 is QUEUED; end it before you delete it: det experiment kill 1"):
        ledger.do(events.Delete(1, "gc", 2.0))


def test_after_a_failed_commit_memory_is_what_the_database_holds(ledger: Ledger, store: SqlStore) -> None:
    ledger.do(creation())

    def fail() -> None:
        raise StoreError("disk full")

    store.before_commit = fail
    with pytest.raises(StoreError, match="disk full"):
        ledger.do(creation())
    store.before_commit = None
    assert list(ledger.state.experiments) == [1]
    assert ledger.state.next_trial_id == 4
    ledger.do(creation())
    assert list(ledger.state.experiments) == [1, 2]


def test_many_threads_are_served(ledger: Ledger, store: SqlStore) -> None:
    threads = [threading.Thread(target=lambda: ledger.do(creation())) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ledger.state.experiments) == list(range(1, 21))
    assert len(store.load().of(Experiment)) == 20


def test_what_is_posted_while_the_ledger_ends_is_answered(store: SqlStore) -> None:
    """The thread has taken the end mark already, and is still busy with what came before it."""
    ledger = Ledger(store, build)
    looking, looked, telling, told = (threading.Event() for _ in range(4))

    def look(state: ClusterState) -> None:
        looking.set()
        assert looked.wait(LONG_ENOUGH)

    def listen(rows: Sequence[Row]) -> None:
        telling.set()
        assert told.wait(LONG_ENOUGH)

    ledger.listen(listen)
    ledger.start()
    with ThreadPoolExecutor() as threads:
        threads.submit(ledger.look, look)
        assert looking.wait(LONG_ENOUGH)
        first = ledger.post(creation())
        threads.submit(ledger.stop)
        wait_until(lambda: len(ledger._wishes) == 2)  # the creation and the end mark, which are taken together
        looked.set()
        assert telling.wait(LONG_ENOUGH)
        late = ledger.post(creation())
        last = threads.submit(ledger.look, lambda state: len(state.experiments))
        told.set()
        assert first.result(LONG_ENOUGH)
        with pytest.raises(MasterError, match="shutting down"):
            late.result(LONG_ENOUGH)
        assert last.result(LONG_ENOUGH) == 1


def test_a_listener_that_cannot_write_hears_the_same_rows_again_in_order(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dethpc.master.durable.ledger.RETRY", 0.01)
    tries, heard = iter(range(100)), list[Row]()
    done = threading.Event()
    expected: list[Row] = []

    def listen(rows: Sequence[Row]) -> None:
        if next(tries) < 3:
            raise OSError(28, "No space left on device")
        heard.extend(rows)
        if len(heard) >= len(expected) > 0:
            done.set()

    ledger.listen(listen)
    expected += [*ledger.do(creation()), *ledger.do(creation())]
    assert done.wait(LONG_ENOUGH)
    assert heard == expected


def test_a_listener_that_fails_for_good_ends_the_ledger_and_whoever_serves_it(store: SqlStore) -> None:
    ended = threading.Event()
    ledger = Ledger(store, build, on_broken=ended.set)
    after: list[Sequence[Row]] = []
    ledger.listen(lambda rows: {}["a mistake of ours"])
    ledger.listen(after.append)
    ledger.start()
    rows = ledger.do(creation())
    assert ended.is_set() and after == [rows], "it is committed, and the others hear of it"
    with pytest.raises(MasterError, match="shutting down"):
        ledger.do(creation())
    ledger.stop()


def test_nothing_changes_between_what_an_event_reads_and_its_decision(ledger: Ledger, store: SqlStore) -> None:
    ledger.do(creation())

    def add(label: str) -> None:
        def read() -> events.Event:
            (row,) = store.load().of(Experiment)
            return events.ChangeExperiment(1, ExperimentChanges(labels=[*row.labels, label]), 2.0)

        ledger.do_after(read)

    with ThreadPoolExecutor(20) as threads:
        list(threads.map(add, map(str, range(20))))
    (row,) = store.load().of(Experiment)
    assert sorted(row.labels, key=int) == [str(n) for n in range(20)]


def test_events_that_belong_together_are_committed_together(ledger: Ledger, store: SqlStore) -> None:
    heard: list[Sequence[Row]] = []
    ledger.listen(heard.append)
    rows = ledger.do_all([creation(), events.Pause(1, 2.0)])
    assert heard == [rows]
    with pytest.raises(Refused):
        ledger.do_all([events.Activate(1, 3.0), events.Delete(1, "gc", 3.0)])
    kept = ledger.look(lambda state: state.experiments[1].row)
    assert kept == store.load().of(Experiment)[0], "what was decided is kept"
    assert kept.state is State.ACTIVE


def test_a_plan_is_committed_with_its_records_or_not_at_all(ledger: Ledger, store: SqlStore) -> None:
    space = Workspace(7, "Vision", 1, 1.0)

    def places() -> list[Workspace]:
        with store.read() as connection:
            return records.find(connection, Workspace)

    with pytest.raises(NotFound):
        ledger.do_planned(lambda: Plan([events.Pause(1, 2.0)], [space]))
    assert places() == []
    ledger.do_planned(lambda: Plan([creation()], [space]))
    assert places() == [space] and len(store.load().of(Experiment)) == 1
    ledger.do_planned(lambda: Plan([], [replace(space, deleted=True)]))
    assert places() == [replace(space, deleted=True)]


def test_what_may_wait_is_committed_with_what_comes_meanwhile_in_order(ledger: Ledger) -> None:
    ledger.do(creation())
    heard: list[Sequence[Row]] = []
    ledger.listen(heard.append)
    first, second = (ledger.post(describing(name), within=LONG_ENOUGH) for name in ("first", "second"))
    third = ledger.do(describing("third"))
    assert heard == [[*first.result(), *second.result(), *third]]
    assert [row.name for row in heard[0] if isinstance(row, Experiment)] == ["first", "second", "third"]


def describing(name: str) -> events.Event:
    return events.ChangeExperiment(1, ExperimentChanges(name=name), 2.0)


def test_what_may_wait_is_committed_alone_when_nothing_else_comes_or_the_ledger_ends(
    ledger: Ledger, store: SqlStore
) -> None:
    ledger.do(creation())
    ledger.post(describing("alone"), within=0.01).result(LONG_ENOUGH)
    last = ledger.post(describing("last"), within=10 * LONG_ENOUGH)
    ledger.stop()
    assert last.done() and store.load().of(Experiment)[0].name == "last"


def test_rows_that_come_back_into_memory_are_not_written_again(ledger: Ledger) -> None:
    heard: list[Row] = []
    ledger.do_all([creation(), events.Kill(1, 2.0)])
    row = replace(ledger.state.experiments[1].row, id=2, queue_id="q", state=State.COMPLETED)
    ledger.listen(heard.extend)
    ledger.do(events.LoadExperiment(row, (), events.ChangeExperiment(2, ExperimentChanges(archived=True), 3.0)))
    assert heard == [replace(row, archived=True)]


def broken(store: SqlStore, monkeypatch: pytest.MonkeyPatch, tries: int) -> None:
    """The next commit fails, and so do that many tries to read the database."""
    monkeypatch.setattr(ledger_module, "FOLD_PAUSES", (0.0, 0.0))
    load, failures = store.load, [StoreError("input/output error")] * tries

    def fail() -> None:
        store.before_commit = None
        raise StoreError("input/output error")

    def read() -> Snapshot:
        if failures:
            raise failures.pop()
        return load()

    store.before_commit = fail
    monkeypatch.setattr(store, "load", read)


def test_a_database_that_cannot_be_read_for_a_moment_is_read_again(
    ledger: Ledger, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(store, monkeypatch, 2)
    with pytest.raises(StoreError):
        ledger.do(creation())
    assert ledger.do(creation()) and ledger.alive


def away(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, names: Sequence[str] = ("commit", "load")
) -> threading.Event:
    """Nobody answers where the database is, until the event is set."""
    back = threading.Event()

    def asked(name: str) -> Callable[..., Any]:
        works = getattr(store, name)

        def ask(*arguments: Any) -> Any:
            if not back.is_set():
                raise StoreUnavailable("the database server does not answer: connection refused")
            return works(*arguments)

        return ask

    for name in names:
        monkeypatch.setattr(store, name, asked(name))
    return back


def test_a_servers_restart_is_waited_for_and_noticed_by_nobody(
    ledger: Ledger, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = away(store, monkeypatch)
    asked = ledger.post(creation())
    wait_until(lambda: len(ledger._wishes) == 0)
    back.set()
    assert asked.result(LONG_ENOUGH)
    assert len(store.load().of(Experiment)) == 1


def test_what_was_decided_when_the_server_went_away_is_committed_and_heard_when_it_is_back(
    ledger: Ledger, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "PATIENCE", 0.0)
    heard: list[Row] = []
    ledger.listen(heard.extend)
    back = away(store, monkeypatch)
    with pytest.raises(StoreUnavailable, match=r"connection refused\. The master waits for it: .* may still happen"):
        ledger.do(creation())
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="Nothing was started; running trials continue"):
            ledger.do(creation())
        with pytest.raises(StoreUnavailable):
            ledger.look(lambda state: state)
    assert ledger.alive and heard == []
    back.set()
    wait_until(lambda: heard)
    assert [row.id for row in store.load().of(Experiment)] == [1]
    assert ledger.do(creation()) and [row.id for row in store.load().of(Experiment)] == [1, 2]


def test_a_ledger_ends_while_the_server_is_away(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Ledger(store, build)
    made.start()
    back = away(store, monkeypatch)
    asked = made.post(creation())
    wait_until(lambda: len(made._wishes) == 0)
    made.stop()
    assert isinstance(asked.exception(LONG_ENOUGH), StoreUnavailable) and not made.alive
    back.set()
    assert store.load().of(Experiment) == []


def test_a_ledger_that_cannot_go_on_answers_everybody_and_ends_its_master(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    made = Ledger(store, build, on_broken=ended.set)
    broken(store, monkeypatch, 99)
    gate = threading.Event()
    made.start()
    held = ThreadPoolExecutor(1).submit(made.look, lambda state: gate.wait(LONG_ENOUGH))
    wait_until(lambda: len(made._wishes) == 0)
    first, *others = [made.post(creation()) for _ in range(2 * MAX_BATCH)]
    gate.set()
    assert held.result(LONG_ENOUGH)
    assert isinstance(first.exception(LONG_ENOUGH), StoreError)
    assert {type(other.exception(LONG_ENOUGH)) for other in others} <= {StoreError, ShuttingDown}
    assert ended.wait(LONG_ENOUGH)
    wait_until(lambda: not made.alive)
    for late in (lambda: made.do(creation()), lambda: made.look(lambda state: state)):
        with pytest.raises(MasterError, match="cannot continue and exits"):
            late()
    made.stop()
