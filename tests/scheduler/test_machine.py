"""Whose processes a table of local jobs is about: what another machine, container or boot may conclude from it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from dethpc.domain.ports import JobState
from dethpc.rundir.files import read_object, write_json
from dethpc.scheduler.local import LocalScheduler, processes
from dethpc.scheduler.local.jobs import Jobs
from dethpc.scheduler.local.machine import Machine
from tests.scheduler.test_local import request
from tests.waiting import wait_until

HERE = Machine("login1", "4a", "boot1", "pid:[1]")


@pytest.mark.parametrize(
    "other, may",
    [
        (HERE, True),
        (Machine("renamed", "4a", "boot1", "pid:[1]"), True),
        (Machine("login1", "4a", "boot0", "pid:[9]"), True),  # it was booted since: its processes are gone
        (Machine("login1", "4a", "boot1", "pid:[2]"), False),  # another container of this machine
        (Machine("login2", "4a", "boot2", "pid:[1]"), False),  # a clone of its image
        (Machine("login1", "4b", "boot2", "pid:[1]"), False),  # another of its name
        (Machine("login1", "", "boot2", "pid:[1]"), False),
        (Machine("login1"), True),  # as an earlier release knew it
        (Machine("login2"), False),
    ],
)
def test_who_may_judge_of_whose_processes(other: Machine, may: bool) -> None:
    assert HERE.may_judge(other) is may


def test_a_machine_that_does_not_know_itself_judges_nobody() -> None:
    assert not Machine("a").may_judge(Machine("b"))
    assert not Machine("a", boot="x").may_judge(Machine("a", boot="y"))


def test_another_machine_has_a_table_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = LocalScheduler(tmp_path, slots=1, grace=1.0)
    job = here.submit(request(tmp_path / "run", "sleep 1000"))
    wait_until(lambda: here.jobs()[job].state is JobState.RUNNING)
    try:
        monkeypatch.setattr(Machine, "this", lambda: HERE)
        other = LocalScheduler(tmp_path, slots=1, grace=1.0)
        assert other.identity != here.identity
        assert other.jobs() == {} == other.records([job])
        assert other.pools()[0].slots_used == 0
        assert LocalScheduler(tmp_path).identity == other.identity, "it finds its own again"
        monkeypatch.undo()
        again = LocalScheduler(tmp_path, slots=1, grace=1.0)
        assert again.identity == here.identity
        assert again.jobs()[job].state is JobState.RUNNING
    finally:
        monkeypatch.undo()
        here.cancel([job])
        wait_until(lambda: not here.jobs()[job].state.live)


def test_jobs_of_before_this_machine_was_booted_are_over(tmp_path: Path) -> None:
    scheduler = LocalScheduler(tmp_path, slots=1, grace=1.0)
    job = scheduler.submit(request(tmp_path / "run", "true"))
    wait_until(lambda: not scheduler.jobs()[job].state.live)
    with Jobs(tmp_path / "local").transaction() as table:
        pid = processes.identity(1)
        assert pid is not None
        table.set(int(job), state="RUNNING", supervisor="0-boot:" + pid.partition(":")[2], ended_at=None)
    file = tmp_path / "local" / "machine.json"
    write_json(file, {**read_object(file), "boot": "0-boot", "namespace": "pid:[9]"})
    booted = LocalScheduler(tmp_path, slots=1, grace=1.0)
    assert booted.identity == scheduler.identity
    assert booted.jobs()[job].state is JobState.NODE_FAIL
    assert json.loads(file.read_text())["boot"] == processes.boot()


@pytest.mark.parametrize("node", ["otherhost", None])
def test_the_table_of_an_earlier_release_is_of_the_machine_of_its_last_job(tmp_path: Path, node: str | None) -> None:
    scheduler = LocalScheduler(tmp_path, slots=1, grace=1.0)
    job = scheduler.submit(request(tmp_path / "run", "true"))
    wait_until(lambda: not scheduler.jobs()[job].state.live)
    if node is not None:
        with Jobs(tmp_path / "local").transaction() as table:
            table.set(int(job), state="RUNNING", supervisor="b:1:2", node=node, ended_at=None, started_at=time.time())
    (tmp_path / "local" / "machine.json").unlink()
    upgraded = LocalScheduler(tmp_path, slots=1, grace=1.0)
    assert (job in upgraded.jobs()) is (node is None)
    assert upgraded.identity.startswith("local:otherhost:") is False
    assert LocalScheduler(tmp_path).identity == upgraded.identity
    if node is not None:
        assert json.loads((tmp_path / "local" / "machine.json").read_text())["host"] == "otherhost"
        with Jobs(tmp_path / "local").transaction() as table:
            assert [one.state for one in table.running()] == [JobState.RUNNING]


def test_a_damaged_note_of_the_machine_is_read_as_none(tmp_path: Path) -> None:
    scheduler = LocalScheduler(tmp_path, slots=1)
    scheduler.jobs()
    (tmp_path / "local" / "machine.json").write_text("{")
    assert LocalScheduler(tmp_path, slots=1).jobs() == {}
