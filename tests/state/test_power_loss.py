"""The power fails while the store writes: any part of what was not synced is lost, as ``power_loss.py`` says."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dethpc.state import open_store
from tests.postgresql import PostgresServer
from tests.state import power_loss
from tests.state.contract import assert_whole
from tests.state.power_loss import Before

ROOT = Path(__file__).parents[2]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler on this machine (Debian: apt install gcc)")
    return power_loss.build(tmp_path)


def write(url: str, journal: Path, commits: int, env: dict[str, str] | None = None) -> None:
    """Commit, and say so in the journal, until so many commits are acknowledged; then the writer is killed."""
    with open(journal, "ab") as acknowledgements:
        writer = subprocess.Popen(
            [sys.executable, "-m", "tests.state.writes_until_killed", url, str(commits)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
            stdout=acknowledgements,
        )
    assert writer.wait(300) == -9


def failures(journal: Path, before: Before, images: Path, number: int) -> Iterator[tuple[Path, dict[int, int]]]:
    """Folders as they can be after a power failure at several moments, each with what was acknowledged until then."""
    told = list(power_loss.records(journal))
    first = next(n for n, record in enumerate(told) if record.kind == "said")
    chance = random.Random(7)
    for n in range(number):
        end = len(told) if n == 0 else chance.randrange(first, len(told)) + 1
        disk, acknowledged = power_loss.Disk(before), dict.fromkeys((1, 2, 3), 0)
        for record in told[:end]:
            if record.kind == "said":
                trial, done = map(int, record.data.split())
                acknowledged[trial] = done
            else:
                disk.take(record)
        disk.fail(chance, images / str(n))
        yield images / str(n), acknowledged


def test_nothing_that_sqlite_acknowledged_is_lost(tmp_path: Path, library: Path) -> None:
    root, journal = tmp_path / "root", tmp_path / "journal"
    root.mkdir()
    before = Before.of(root, tmp_path / "before")
    write(str(root / "dethpc.db"), journal, 250, power_loss.preload(library, root, journal))
    for image, acknowledged in failures(journal, before, tmp_path / "images", 12):
        with open_store(image / "dethpc.db") as store:
            assert_whole(store, acknowledged)


def test_nothing_that_postgresql_acknowledged_is_lost(tmp_path: Path, library: Path) -> None:
    # A small log, so that checkpoints come while it writes; a server that would acknowledge what is not on disk.
    settings = ("max_wal_size=2MB", "min_wal_size=2MB", "synchronous_commit=off")
    with PostgresServer(*settings, initdb=("--wal-segsize=1",)) as server:
        url = server.database()
        server.stop_in_order()
        root, journal = server.folder / "data", server.folder / "journal"
        before = Before.of(root, server.folder / "before")
        journal.touch()
        shutil.copy(library, server.folder)
        server.give(server.folder)
        server.start(power_loss.preload(server.folder / library.name, root, journal))
        write(url, journal, 250)
        server.stop()
        for image, acknowledged in failures(journal, before, server.folder / "images", 4):
            server.data = str(image)
            server.give(server.folder)
            (image / "postmaster.pid").unlink(missing_ok=True)
            server.start()
            with open_store(url) as store:
                assert_whole(store, acknowledged)
            server.stop()
            shutil.rmtree(image)


def test_what_was_not_synced_can_be_lost_and_what_was_cannot(tmp_path: Path, library: Path) -> None:
    root, journal = tmp_path / "root", tmp_path / "journal"
    root.mkdir()
    (root / "old").write_text("old")
    before = Before.of(root, tmp_path / "before")
    program = """
import os, sys
os.chdir(sys.argv[1])
for name, sync in (("synced", True), ("not synced", False)):
    fd = os.open(name, os.O_CREAT | os.O_WRONLY, 0o600)
    os.write(fd, b"x" * 600)
    if sync:
        os.fsync(fd)
os.rename("old", "new")
"""
    env = {**os.environ, **power_loss.preload(library, root, journal)}
    subprocess.run([sys.executable, "-c", program, root], env=env, check=True)
    found: set[tuple[int, str]] = set()
    for n in range(60):
        disk, image = power_loss.Disk(before), tmp_path / str(n)
        for record in power_loss.records(journal):
            disk.take(record)
        disk.fail(random.Random(n), image)
        assert (image / "synced").read_bytes() == b"x" * 600
        assert ((image / "new") if (image / "new").exists() else (image / "old")).read_text() == "old"
        size = (image / "not synced").stat().st_size if (image / "not synced").exists() else -1
        found.add((size, "new" if (image / "new").exists() else "old"))
    assert {(-1, "old"), (0, "old"), (600, "old"), (600, "new")} <= found
