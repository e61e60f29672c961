"""What the tests promise of themselves: they leave nothing running, and blame nobody else's processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import MARK, ROOT
from tests.waiting import wait_until

LEAVES = """
import subprocess, sys

def test_that_leaves_a_master():
    code = "import time; print(1, flush=True); time.sleep(3600)"
    process = subprocess.Popen([sys.executable, "-c", code, "dethpc.master"], stdout=subprocess.PIPE, start_new_session=True)
    process.stdout.readline()  # until a program has begun, nobody can read its environment
    open("pid", "w").write(str(process.pid))
"""


def test_a_process_that_a_test_leaves_behind_fails_the_tests_and_is_named_and_ended(tmp_path: Path) -> None:
    others = {**os.environ, "STARTED_BY_TESTS_OF": f"{os.getpid()}-of-others"}
    with subprocess.Popen(
        [sys.executable, "-c", "input()", "dethpc.master"], stdin=subprocess.PIPE, env=others
    ) as other:
        (tmp_path / "test_it.py").write_text(LEAVES)
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "test_it.py"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "DETHPC_TEST_WAIT_FOR_ENDS": "0"},
            stdout=subprocess.PIPE,
            text=True,
        )
        pid = int((tmp_path / "pid").read_text())
        assert ran.returncode == 1 and "1 passed, 1 error" in ran.stdout, ran.stdout
        (named,) = {line for line in ran.stdout.splitlines() if line.startswith(f"{pid} ")}  # twice where CI is set
        assert "dethpc.master" in named and "test_it.py::test_that_leaves_a_master" in named
        assert f"{other.pid} " not in ran.stdout and other.poll() is None
        other.communicate(b"\n")
    wait_until(lambda: _gone(pid))


def test_the_mark_is_in_the_environment_of_what_tests_start() -> None:
    name, _, value = MARK.partition("=")
    assert os.environ[name] == value


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True
