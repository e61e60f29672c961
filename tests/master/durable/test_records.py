"""Records in the database and in their file."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from dethpc.domain.records import Token, TokenKind, User
from dethpc.errors import NotFound
from dethpc.master.durable import records
from dethpc.master.durable.records import Records
from dethpc.master.durable.row_file import RowFile
from dethpc.master.rebuild import recreate
from dethpc.rundir.home import Home
from dethpc.state import SqlStore, open_store


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.make()
    return home


@pytest.fixture
def store(home: Home) -> Iterator[SqlStore]:
    with open_store(home.root / "db") as store:
        yield store


def filled(store: SqlStore, home: Home) -> Records:
    kept = Records(store, home)
    ada = kept.add(User, username="ada", created_at=1.0, modified_at=1.0)
    for n in (1, 2, 3):
        kept.add(Token, user_id=ada.id, kind=TokenKind.ACCESS, sha256=f"digest {n}", created_at=float(n))
    return kept


def test_records_are_found_by_key_and_by_field(store: SqlStore, home: Home) -> None:
    kept = filled(store, home)
    assert kept.get(User, 1).username == "ada"
    assert [token.id for token in kept.find(Token, sha256="digest 2")] == [2]
    kept.put(replace(kept.get(Token, 2), revoked=True))
    assert [token.id for token in kept.find(Token, revoked=False)] == [1, 3]
    kept.drop(kept.get(Token, 2))
    with pytest.raises(NotFound, match="token 2 not found"):
        kept.get(Token, 2)


def test_a_rebuild_brings_records_back_and_leaves_out_what_was_dropped(store: SqlStore, home: Home) -> None:
    kept = filled(store, home)
    kept.put(replace(kept.get(Token, 1), description="mine"))
    kept.drop(kept.get(Token, 2))
    assert stat.S_IMODE(home.records.stat().st_mode) == 0o600
    with open_store(home.root / "again") as again:
        recreate(home, again)
        found = Records(again, home)
        assert found.find(User) == kept.find(User)
        assert [(token.id, token.description) for token in found.find(Token)] == [(1, "mine"), (3, "")]


def test_a_start_writes_the_file_as_the_database_says(store: SqlStore, home: Home) -> None:
    filled(store, home)
    store.put(User(2, "grace", 2.0, 2.0))  # and then the master was killed
    Records(store, home)
    first = home.records.read_bytes()
    assert b"grace" in first and not any(not line for line in first.splitlines())
    for _ in range(10):
        Records(store, home)
    assert home.records.read_bytes() == first


def test_the_file_does_not_grow_for_ever(store: SqlStore, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_LINES", 20)
    kept = filled(store, home)
    for n in range(100):
        kept.put(replace(kept.get(User, 1), display_name=str(n)))
    assert len(home.records.read_text().split()) < 20 * 40
    with open_store(home.root / "again") as again:
        recreate(home, again)
        assert Records(again, home).get(User, 1).display_name == "99"


def test_what_could_not_be_written_is_written_with_the_next_change(store: SqlStore, home: Home) -> None:
    kept = filled(store, home)
    home.records.rename(home.root / "aside")
    home.records.mkdir()  # nobody can write it
    kept.put(replace(kept.get(User, 1), display_name="Ada"))
    assert kept.get(User, 1).display_name == "Ada", "it is in the database"
    home.records.rmdir()
    kept.drop(kept.get(Token, 3))
    with open_store(home.root / "again") as again:
        recreate(home, again)
        found = Records(again, home)
        assert found.get(User, 1).display_name == "Ada" and [token.id for token in found.find(Token)] == [1, 2]


def test_changes_at_the_same_time_all_count(store: SqlStore, home: Home) -> None:
    kept = filled(store, home)
    (user,) = [one for one in kept.find(User) if one.id == 1]

    def add(n: int) -> None:
        kept.change(User, user.id, to=lambda now: replace(now, display_name=f"{now.display_name}{n}"))

    with ThreadPoolExecutor(10) as threads:
        list(threads.map(add, range(10)))
    assert sorted(kept.get(User, 1).display_name.removeprefix(user.display_name)) == list("0123456789")


def test_a_damaged_file_is_written_again_at_the_next_start(store: SqlStore, home: Home) -> None:
    filled(store, home)
    text = home.records.read_bytes()
    home.records.write_bytes(b"\xff" + text)
    Records(store, home)
    assert home.records.read_bytes().split() == text.split()


def test_what_a_thawed_master_appends_to_the_records_is_written_over(store: SqlStore, home: Home) -> None:
    kept = filled(store, home)
    old = kept.get(Token, 1)
    kept.put(replace(old, revoked=True))
    RowFile(home.records).append([old])  # it was frozen after its look at the lease
    kept.put(kept.get(Token, 2))
    with open_store(home.root / "again") as again:
        recreate(home, again)
        assert Records(again, home).get(Token, 1).revoked
    written = home.records.stat().st_size
    kept.put(kept.get(Token, 2))
    assert home.records.stat().st_size > written, "it is appended to again"
