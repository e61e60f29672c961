"""The store on PostgreSQL."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import make_url, text

from dethpc.domain.facts import Experiment
from dethpc.errors import StoreError, StoreUnavailable
from dethpc.state import SqlStore, open_store
from tests.postgresql import PostgresServer
from tests.state.contract import StoreContract
from tests.state.factories import experiment
from tests.waiting import wait_until


class TestPostgresql(StoreContract):
    @pytest.fixture
    def url(self, postgres: Callable[[], str]) -> str:
        return postgres()

    @pytest.fixture
    def another_url(self, postgres: Callable[[], str]) -> str:
        return postgres()

    @pytest.fixture
    def store(self, url: str) -> Iterator[SqlStore]:
        with open_store(url) as store:
            yield store

    def test_a_lost_connection_is_made_again(self, store: SqlStore) -> None:
        store.commit([experiment()])
        with store.read() as connection:
            connection.execute(text("SELECT 1"))
        self.end_all_connections(store)
        store.commit([experiment(2)])
        assert len(store.load().of(Experiment)) == 2

        def lose(times: list[int]) -> None:
            if times:
                times.pop()
                self.end_all_connections(store)

        once = [1]
        store.before_commit = lambda: lose(once)
        store.commit([experiment(3)])
        assert len(store.load().of(Experiment)) == 3

    @staticmethod
    def end_all_connections(store: SqlStore) -> None:
        with store.read() as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid != pg_backend_pid()"
                )
            )


def test_a_server_that_says_nothing_is_away_too() -> None:
    """A frozen one, or a machine that is off behind a router that drops what is for it."""
    pytest.importorskip("psycopg", reason="psycopg is not installed (pip install 'dethpc[postgres]')")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://tester@127.0.0.1:{silent.getsockname()[1]}/postgres?connect_timeout=2"
        with pytest.raises(StoreUnavailable, match="does not answer"):
            open_store(url)


def test_a_server_that_is_stopped_is_away_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has taken the statement and says nothing more. Who comes next is told at once."""
    silence = pytest.importorskip("dethpc.state.silence", reason="psycopg is not installed")
    monkeypatch.setattr(silence, "SILENCE", 0.1)
    monkeypatch.setattr(silence, "LOOK", 2)
    monkeypatch.setattr(silence, "REST", 3.0)
    with PostgresServer("fsync=off") as server, open_store(server.database()) as store:
        store.commit([experiment()])
        store.load()
        with server.stopped():
            for ask in (lambda: store.commit([experiment(2)]), store.load, store.load):
                with pytest.raises(StoreUnavailable, match="does not answer"):
                    ask()
        monkeypatch.setattr(silence, "SILENCE", 600.0)
        wait_until(lambda: _given(lambda: store.commit([experiment(2)])))
        assert len(store.load().of(Experiment)) == 2


def _given(ask: Callable[[], None]) -> bool:
    try:
        ask()
    except StoreUnavailable:
        return False
    return True


def test_a_statement_that_takes_long_is_waited_for(
    postgres: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    silence = pytest.importorskip("dethpc.state.silence", reason="psycopg is not installed")
    monkeypatch.setattr(silence, "SILENCE", 0.1)
    monkeypatch.setattr(silence, "LOOK", 600)
    asked: list[bool] = []
    answers = silence.Server._answers
    monkeypatch.setattr(silence.Server, "_answers", lambda *a, **k: asked.append(answers(*a, **k)) or asked[-1])
    with open_store(f"{postgres()}&connect_timeout=600") as store, store.read() as connection:
        connection.execute(text("SELECT pg_sleep(1)"))
    assert asked and all(asked)


def test_a_server_that_does_not_answer_is_a_store_error(postgres: Callable[[], str]) -> None:
    with pytest.raises(StoreError):
        open_store("postgresql://tester@/nothing?host=/nonexistent")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://tester:hunter2@[::1/x", "not a database URL"),
        ("postgresql://tester:hunter2@localhost:ter2/x", "write % as %25, @ as %40"),
        ("postgresql://tester:hun@ter2@localhost/x", "more than one @"),
        ("mysql://tester:hunter2@localhost/x", "no support for mysql"),
        ("postgresql://tester:hunter2@localhost:1/x", "does not answer"),
        ("postgresql://tester@/x?host=/nonexistent&password=hunter2", "does not answer"),
        ("postgresql://tester:hunter2@/x?host=/nonexistent&nonsense=1", "nonsense"),
    ],
)
def test_an_error_never_shows_a_password(url: str, words: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StoreError, match=words) as raised:
        open_store(url)
    shown = "".join(traceback.format_exception(raised.value))
    assert "hunter2" not in shown and "ter2" not in shown, shown


def test_a_commit_is_on_disk_whatever_the_default_of_the_database(postgres: Callable[[], str]) -> None:
    url = postgres()
    with open_store(url) as store:
        name = str(make_url(url).database)
        store.write(lambda c: c.execute(text(f"ALTER DATABASE {name} SET synchronous_commit = off")))
    with open_store(url) as store:
        assert store.write(lambda c: c.scalar(text("SHOW synchronous_commit"))) == "on"
        with store.read() as connection:
            assert connection.scalar(text("SHOW synchronous_commit")) == "off"
