"""What the master knows stays in it: no core dump, no password of a client in what it starts."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from dethpc.cli.master_process import environment
from dethpc.master.submitting.job_environment import of_master
from dethpc.scheduler.slurm.environment import scrub

SECRET = {"DET_PASS": "hush", "DET_USER_TOKEN": "hush", "PGPASSWORD": "hush"}


def crashed(tmp_path: Path, before: str) -> bool:
    """Whether a process that aborts after ``before`` dumps core."""
    code = f"import os, resource\nresource.setrlimit(resource.RLIMIT_CORE, (1 << 20, -1))\n{before}\nos.abort()"
    child = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.DEVNULL)
    _, status = os.waitpid(child.pid, 0)
    child.returncode = status
    assert os.WIFSIGNALED(status)
    return os.WCOREDUMP(status)


def test_a_master_that_crashes_dumps_no_core(tmp_path: Path) -> None:
    if resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY or not crashed(tmp_path, ""):
        pytest.skip("nothing dumps core here")
    assert not crashed(tmp_path, "from dethpc.master.__main__ import _keep_to_itself; _keep_to_itself()")


def test_what_it_starts_dumps_core_as_its_user_wants(tmp_path: Path) -> None:
    if resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY or not crashed(tmp_path, ""):
        pytest.skip("nothing dumps core here")
    code = (
        "from dethpc.master.__main__ import _keep_to_itself; _keep_to_itself(); import sys\n"
        "os.execv(sys.executable, [sys.executable, '-c', 'import os; os.abort()'])"
    )
    assert crashed(tmp_path, code)


def test_neither_the_master_nor_what_it_starts_gets_what_belongs_to_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRET.items():
        monkeypatch.setenv(name, value)
    assert set(SECRET) & set(environment()) == {"PGPASSWORD"}, "it is the master's own"
    assert "hush" not in of_master().values()
    assert "hush" not in scrub(environment()).values()
