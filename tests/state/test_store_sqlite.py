"""The store on SQLite, its default."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dethpc.errors import StoreError
from dethpc.state import SqlStore, open_store
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


@pytest.mark.parametrize("url", ["mysql://a/b", "sqlite://", "sqlite:///:memory:", "://"])
def test_a_database_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(StoreError):
        open_store(url)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_text("not a database, whatever its name says\n" * 100)
    with pytest.raises(StoreError, match="not a database"):
        open_store(tmp_path / "state.db")
    with pytest.raises(StoreError, match="cannot open"):
        open_store("/proc/state.db")
