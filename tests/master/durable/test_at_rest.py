"""Which damage is seen in files that nobody reads at the moment."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from dethpc.errors import SubmitDeferred
from dethpc.master.durable import at_rest, contexts, harness
from dethpc.rundir.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.make()
    return home


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_bit_that_flips_in_a_bundle_is_seen_unless_python_takes_no_notice_of_it(home: Home) -> None:
    bundle = harness.build(home.root)
    whole, numbers, unseen = bundle.read_bytes(), random.Random(3), 0
    names = "dethpc.exec.node, dethpc.exec.rendezvous, dethpc.core, dethpc.storage, dethpc.rundir.claim"
    program = f"import sys; sys.path.insert(0, {str(bundle)!r}); import {names}; assert '.zip' in dethpc.__file__"
    for number in range(120):  # most of a bundle is content; its directory is at the end
        flip(bundle, numbers.randrange(len(whole) - 60_000 if number % 2 else 0, len(whole)))
        if not harness.damage(bundle):
            unseen += 1
            if unseen <= 3:
                subprocess.run([sys.executable, "-S", "-c", program], cwd="/", check=True)
        bundle.write_bytes(whole)
    assert unseen < 60


def test_a_bundle_that_is_cut_off_or_holds_other_files_is_damaged(home: Home) -> None:
    bundle = harness.build(home.root)
    whole = bundle.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], whole[:-1]):
        bundle.write_bytes(damaged)
        assert harness.damage(bundle)
    bundle.write_bytes(whole)
    other = bundle.with_name("harness-0123456789abcdef.zip")
    other.write_bytes(whole)
    assert harness.damage(other) == "checksum mismatch"
    assert [damage.path for damage in at_rest.damages(home)] == [other]


def test_what_a_run_needs_is_written_again_or_the_run_waits(home: Home) -> None:
    bundle, sha256 = harness.build(home.root), contexts.keep(home, contexts.pack([]))
    assert at_rest.check_inputs(home, bundle, sha256) == []
    flip(bundle, 5000)
    (done,) = at_rest.check_inputs(home, bundle, sha256)
    assert "has been written again" in done and harness.damage(bundle) == ""
    bundle.unlink()
    assert "it is missing" in at_rest.check_inputs(home, bundle, sha256)[0] and bundle.exists()
    flip(home.context(sha256), 3)
    with pytest.raises(SubmitDeferred, match="checksum mismatch; send the folder"):
        at_rest.check_inputs(home, bundle, sha256)
    assert contexts.keep(home, contexts.pack([])) == sha256
    assert at_rest.check_inputs(home, bundle, sha256) == []
    with pytest.raises(SubmitDeferred, match="det master down"):
        at_rest.check_inputs(home, bundle.with_name("harness-0123456789abcdef.zip"), sha256)


def test_a_damaged_table_of_local_jobs_is_named(home: Home) -> None:
    (home.root / "local").mkdir()
    file = home.root / "local" / "jobs.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE jobs (id INTEGER)")
    connection.close()
    assert list(at_rest.damages(home)) == []
    flip(file, 3)
    assert [damage.path for damage in at_rest.damages(home)] == [file]
