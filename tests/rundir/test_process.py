"""A process is known by its number and its start together."""

from __future__ import annotations

import os
import subprocess
import sys

from dethpc.rundir import process


def test_a_process_lives_until_it_has_ended_and_its_number_alone_proves_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = process.started(child.pid)
    held = {"pid": child.pid, "pid_started": started}
    assert process.lives(held)
    assert not process.lives({**held, "pid_started": (started or 0) - 1})  # it was another's then
    assert not process.lives({"pid": child.pid})
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not process.lives(held), "nobody has collected it yet, and it has ended"
    child.wait()
    assert process.started(child.pid) is None


def test_a_process_may_have_a_name_that_ends_within_a_character() -> None:
    rename = "import ctypes; ctypes.CDLL(None).prctl(15, b'caf\\xc3', 0, 0, 0); print(flush=True); input()"
    words = [sys.executable, "-c", rename]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdout.readline()
        assert process.lives({"pid": child.pid, "pid_started": process.started(child.pid)})
        child.stdin.close()


def test_no_process_wrote_a_file_without_a_number() -> None:
    assert not process.lives({}) and not process.lives({"pid": 0, "pid_started": None})
