from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dethpc.errors import LeaseHeld, Refused
from dethpc.master.durable import lease
from dethpc.master.durable.lease import Lease, alive
from dethpc.rundir.files import write_json

ROOT = Path(__file__).parents[3]


def held_by_another_process(path: Path) -> subprocess.Popen[str]:
    code = (
        "import sys, time; from pathlib import Path; from dethpc.master.durable.lease import Lease\n"
        "lease = Lease(Path(sys.argv[1]), 'c'); lease.take(); lease.publish('http://there'); print('taken', flush=True)\n"
        "time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "taken\n"
    return process


def test_a_second_master_is_refused_while_the_first_lives_and_welcome_after_its_death(tmp_path: Path) -> None:
    path = tmp_path / "master.json"
    other = held_by_another_process(path)
    try:
        with pytest.raises(LeaseHeld, match="http://there"):
            Lease(path, "c").take()
    finally:
        other.kill()
        other.wait()
    mine = Lease(path, "c")
    mine.take()
    assert mine.generation == 2


def test_a_master_that_was_replaced_notices_before_it_does_anything(tmp_path: Path) -> None:
    mine = Lease(tmp_path / "master.json", "c")
    mine.take()
    mine.check()
    found = json.loads(mine._path.read_text())
    mine._path.write_text(json.dumps({**found, "generation": found["generation"] + 1}))
    mine._checked_at = 0.0
    with pytest.raises(LeaseHeld, match="taken over"):
        mine.check()


def test_a_master_on_another_host_lives_as_long_as_its_heart_beats() -> None:
    there = {"host": "elsewhere", "pid": 1, "heartbeat": time.time()}
    assert alive(there)
    assert not alive({**there, "heartbeat": time.time() - lease.FRESH - 1})
    assert not alive({**there, "pid": 0})


def test_a_released_lease_leaves_no_address(tmp_path: Path) -> None:
    mine = Lease(tmp_path / "master.json", "c")
    mine.take()
    mine.publish("http://here")
    mine.release()
    assert json.loads(mine._path.read_text())["url"] == ""
    Lease(tmp_path / "master.json", "c").take()


def test_a_pid_that_was_given_to_another_process_is_not_taken_for_the_master(tmp_path: Path) -> None:
    mine = Lease(tmp_path / "master.json", "c")
    mine.take()
    found = json.loads(mine._path.read_text())
    assert alive(found)
    assert not alive({**found, "pid_started": found["pid_started"] - 1})


DAMAGE = ["", "{", "[]", '{"pid": "y"}', '{"generation": []}']


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_master_whose_file_is_damaged_writes_it_again(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "master.json"
    mine = Lease(path, "c")
    mine.take()
    mine.publish("http://here")
    path.write_text(damage)
    mine._checked_at = 0.0
    mine.check()
    assert json.loads(path.read_text())["url"] == "http://here"


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_that_nobody_mends_keeps_no_master_from_starting(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "PATIENCE", 0.0)
    path = tmp_path / "master.json"
    path.write_text(damage)
    Lease(path, "c").take()
    assert json.loads(path.read_text())["pid"] == os.getpid()


def test_a_directory_in_the_place_of_the_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "PATIENCE", 0.0)
    path = tmp_path / "master.json"
    path.mkdir()
    with pytest.raises(Refused, match=rf"{path} is a directory, where a file belongs: rm -r {path}"):
        Lease(path, "c").take()


def test_a_master_that_stood_still_while_it_renewed_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have written over the word of a master that took over meanwhile."""
    path = tmp_path / "master.json"
    first = Lease(path, "c")
    first.take()
    write, now = lease.write_json, time.monotonic()

    def slowly(*arguments: object) -> None:
        monkeypatch.setattr(time, "monotonic", lambda: now + 2 * lease.FRESH)
        write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(lease, "RENEW", 0.0)
    monkeypatch.setattr(lease, "write_json", slowly)
    with pytest.raises(LeaseHeld, match="stood still"):
        first.renew()


def test_a_renewal_that_is_not_due_does_not_touch_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A master renews in each of its rounds, twice a second: a file server would hear of all of them."""
    mine = Lease(tmp_path / "master.json", "c")
    mine.take()
    mine.publish("http://here")
    mine._path.unlink()
    mine.renew()
    monkeypatch.setattr(lease, "RENEW", 0.0)
    with pytest.raises(LeaseHeld):
        mine.renew()


def test_what_its_holder_has_done_stands_although_the_lease_cannot_be_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A rebuild that raised then would not say what it could not read, although its database is in place."""
    mine = Lease(tmp_path / "master.json", "c")
    mine.take()

    def fails(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(lease, "write_json", fails)
    mine.release()
    assert "Input/output error" in caplog.text


AHEAD = {"url": "http://there", "host": "elsewhere", "pid": 1, "generation": 1, "cluster_id": "c"}


def test_a_host_that_died_with_its_clock_ahead_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last heartbeat would be a young one for as long as its clock was ahead."""
    monkeypatch.setattr(lease, "PATIENCE", 0.3)
    path = tmp_path / "master.json"
    path.write_text(json.dumps({**AHEAD, "heartbeat": time.time() + 86400}))
    Lease(path, "c").take()
    assert json.loads(path.read_text())["generation"] == 2


def test_a_master_whose_clock_is_ahead_keeps_its_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "master.json"
    beat = time.time() + 86400
    path.write_text(json.dumps({**AHEAD, "heartbeat": beat}))

    def sleep(_: float) -> None:  # meanwhile it renews
        write_json(path, {**AHEAD, "heartbeat": beat + 15})

    monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises(LeaseHeld, match="http://there"):
        Lease(path, "c").take()


def test_a_master_renews_its_lease_although_its_clock_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Lease(tmp_path / "master.json", "c")
    mine.take()
    mine.publish("http://here")
    before = json.loads(mine._path.read_text())["heartbeat"]
    monkeypatch.setattr(time, "time", lambda: before - 3600)
    mine.renew()
    assert json.loads(mine._path.read_text())["heartbeat"] == before - 3600
