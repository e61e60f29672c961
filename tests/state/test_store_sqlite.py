"""The store on SQLite, its default."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from dethpc.errors import StoreError
from dethpc.state import SqlStore, open_store, queries
from dethpc.state.engines import store_error
from tests.state.contract import StoreContract
from tests.state.factories import experiment


class TestSqlite(StoreContract):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path / 'a ☃ folder' / 'state.db'}"

    @pytest.fixture
    def another_url(self, tmp_path: Path) -> str:
        return str(tmp_path / "another.db")

    @pytest.fixture
    def store(self, url: str) -> Iterator[SqlStore]:
        with open_store(url) as store:
            yield store


def test_the_files_are_the_users_alone_and_commits_are_durable(tmp_path: Path) -> None:
    with open_store(tmp_path / "home" / "state.db") as store:
        store.commit([experiment()])
        files = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "home").iterdir()}
        assert files == {"state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600}
        pragmas = ("journal_mode", "synchronous")
        asked = store.write(lambda c: [c.exec_driver_sql(f"PRAGMA {name}").scalar() for name in pragmas])
        assert asked == ["wal", 2]
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["state.db"]


def test_names_are_found_in_any_case_also_of_letters_beyond_ascii(tmp_path: Path) -> None:
    with open_store(tmp_path / "state.db") as store:
        store.commit([experiment(1, name="Опыт 1"), experiment(2, name="Übung 1", description="MÜHSAM")])

        def found(**text: str) -> list[int]:
            with store.read() as connection:
                wanted = queries.ExperimentFilter(**text)  # type: ignore[arg-type]
                return [
                    each.id for each in queries.list_experiments(connection, wanted, queries.Order(), queries.Page())[0]
                ]

        assert found(name="Опыт") == found(name="опыт") == [1]
        assert found(name="Übung") == found(name="ÜBUNG") == found(description="mühsam") == [2]


@pytest.mark.parametrize("url", ["mysql://a/b", "sqlite://", "sqlite:///:memory:", "://"])
def test_a_database_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(StoreError):
        open_store(url)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_text("not a database, whatever its name says\n" * 100)
    with pytest.raises(StoreError, match="not a database\n[^$]*det master down; det master rebuild"):
        open_store(tmp_path / "state.db")
    with pytest.raises(StoreError, match="cannot open"):
        open_store("/proc/state.db")


def test_damage_that_is_met_while_running_names_the_way_to_mend_it(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with open_store(path) as store:
        for number in range(1, 200):
            store.commit([experiment(number)])
    content = path.read_bytes()
    with open_store(path) as store:
        path.write_bytes(content[: 4096 * 4] + b"Z" * (len(content) - 4096 * 4))
        with pytest.raises(StoreError, match=r"malformed\n[^$]*det master rebuild"):
            store.commit([experiment(number) for number in range(200)])
        with pytest.raises(StoreError, match=r"malformed\n[^$]*det master rebuild"), store.read() as connection:
            connection.execute(text("SELECT config FROM experiments")).all()


def test_a_full_disk_is_told_with_what_to_do(tmp_path: Path) -> None:
    with open_store(tmp_path / "state.db") as store:
        pages = store.write(lambda c: c.exec_driver_sql("PRAGMA page_count").scalar())
        store.write(lambda c: c.exec_driver_sql(f"PRAGMA max_page_count={pages}").scalar())  # as full as a disk can be
        with pytest.raises(StoreError, match=r"database or disk is full\n[^$]*make room"):
            store.commit([experiment(number) for number in range(1, 500)])


def test_a_path_that_sqlite_does_not_take_is_refused_in_words(tmp_path: Path) -> None:
    def path(length: int) -> Path:
        folder = tmp_path
        while length - len(str(folder)) > 200:
            folder /= "d" * 150
        return folder / ("x" * (length - len(str(folder)) - 1))

    open_store(path(504)).close()
    with pytest.raises(StoreError, match="has 505 bytes, and SQLite takes 504. Use a DETHPC_HOME with a shorter path"):
        open_store(path(505))


@pytest.mark.parametrize(
    "words, remedy",
    [
        ("attempt to write a readonly database", "\nIts file or its file system is read-only"),
        # What a database with a -wal file says once its file system has become read-only.
        ("disk I/O error", "\nIts disk or file server failed, or is read-only by now"),
    ],
)
def test_a_read_only_file_system_is_told_in_words(words: str, remedy: str) -> None:
    told = str(store_error(OperationalError("INSERT INTO runs ...", {}, sqlite3.OperationalError(words))))
    assert told.startswith(f"the database failed: {words}{remedy}")
    assert "INSERT" not in told and "sqlalche.me" not in told


def test_what_may_be_a_mistake_of_ours_quotes_its_statement() -> None:
    assert "INSERT" in str(
        store_error(OperationalError("INSERT ...", {}, sqlite3.OperationalError("no such column: x")))
    )
