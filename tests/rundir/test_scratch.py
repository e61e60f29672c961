"""Folders on a node's own disk: nobody foresees their names, and none stays when its process has ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dethpc.rundir import scratch
from tests.waiting import wait_until

MAKE = """
import os, sys
from dethpc.rundir import scratch
print(scratch.{call}, flush=True)
{then}
sys.stdin.read()
"""


def making(base: Path, call: str, then: str = "") -> tuple[subprocess.Popen[str], Path]:
    code = MAKE.format(call=call, then=then)
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(base), "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def ended(process: subprocess.Popen[str], *, killed: bool) -> None:
    if killed:
        process.send_signal(signal.SIGKILL)
    process.communicate()


def test_a_folder_is_for_its_user_alone_and_has_another_name_each_time(tmp_path: Path) -> None:
    one, other = (scratch.make("7.1.2.0-0", str(tmp_path)) for _ in range(2))
    assert one != other and scratch.is_own(str(one))
    assert one.stat().st_mode & 0o777 == 0o700


def test_the_folder_of_a_killed_process_goes_when_any_other_makes_one(tmp_path: Path) -> None:
    process, killed = making(tmp_path, f"make('7.1.2.0-0', {str(tmp_path)!r})")
    (killed / "work").mkdir()
    alive = scratch.make("8.1.1.0-0", str(tmp_path))
    assert killed.exists()
    ended(process, killed=True)
    new = scratch.make("9.1.1.0-0", str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == sorted([alive.name, new.name])


def test_a_folder_of_a_container_stays_while_its_process_lives_whose_number_means_nothing_here(tmp_path: Path) -> None:
    code = MAKE.format(call=f"make('7.1.2.0-0', {str(tmp_path)!r})", then="")
    inside = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*inside, "true"], capture_output=True).returncode:
        pytest.skip("no user namespaces here")
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        [*inside, sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    )
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    assert json.loads((folder / "owner.json").read_text())["pid"] == 1
    scratch.remove_left_over(str(tmp_path))
    assert folder.exists()
    ended(process, killed=True)
    wait_until(lambda: scratch.remove_left_over(str(tmp_path)) or not folder.exists())


def test_a_folder_for_a_process_goes_when_it_ends_and_not_when_its_child_does(tmp_path: Path) -> None:
    then = "os.fork() or sys.exit()\nos.wait()\nprint(os.listdir(os.environ['TMPDIR']), flush=True)"
    process, folder = making(tmp_path, "make_until_exit('t')", then)
    assert process.stdout is not None
    assert process.stdout.readline() == f"['{folder.name}']\n"
    ended(process, killed=False)
    assert os.listdir(tmp_path) == []


def test_what_may_be_used_elsewhere_stays(tmp_path: Path) -> None:
    """A base that several nodes share; what an earlier release made; somebody else's; a link."""
    there = scratch.make("1.1.1.0-0", str(tmp_path))
    (there / "owner.json").write_text(json.dumps({"node": "another", "pid": 1 << 22, "pid_started": 1}))
    (tmp_path / "dethpc-c0ffee00-7.1.20.0-0-abc").mkdir(mode=0o700)
    (tmp_path / "dethpc-link").symlink_to(there)
    left = {there.name, "dethpc-c0ffee00-7.1.20.0-0-abc", "dethpc-link"}
    if os.getuid() == 0:
        foreign = scratch.make("2.1.1.0-0", str(tmp_path))
        owner = json.loads((foreign / "owner.json").read_text())
        (foreign / "owner.json").write_text(json.dumps({**owner, "pid": 1 << 22}))
        os.chown(foreign, 65534, 65534)
        left.add(foreign.name)
    scratch.remove_left_over(str(tmp_path))
    assert set(os.listdir(tmp_path)) == left


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"node": 3, "pid": "x"}', "\0"])
def test_a_damaged_word_about_the_owner_removes_nothing(tmp_path: Path, content: str) -> None:
    folder = scratch.make("1.1.1.0-0", str(tmp_path))
    (folder / "owner.json").write_text(content)
    scratch.remove_left_over(str(tmp_path))
    assert folder.exists()


def test_sockets_get_a_folder_of_their_own_where_the_path_is_long(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 80)
    deep.mkdir()
    folder = scratch.make("1.1.1.0-0", str(deep))
    sockets = scratch.for_sockets(folder, "1.1.1.0-0")
    try:
        assert len(str(sockets)) <= 70 and scratch.is_own(str(sockets))
    finally:
        scratch.remove(sockets)
    assert scratch.for_sockets(Path("/tmp"), "x") == Path("/tmp")
