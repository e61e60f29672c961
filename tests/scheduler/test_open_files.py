"""A master may open many files; what it starts may open as many as its user's shell allows."""

from __future__ import annotations

import subprocess
import sys


def test_the_limit_is_raised_for_the_master_and_not_for_what_it_starts() -> None:
    code = """
import resource, subprocess
from pathlib import Path
from dethpc.scheduler.open_files import as_started, raise_limit
from dethpc.scheduler.slurm.runner import SubprocessRunner

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (123, hard))
raise_limit()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
shown = SubprocessRunner().run(["sh", "-c", 'ulimit -n; echo "$1"', "sh", "a b"], env={}, cwd=None, timeout=60).stdout
assert shown == "123\\na b\\n", shown
assert subprocess.check_output(as_started(["sh", "-c", "ulimit -n"])) == b"123\\n"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_command_is_as_it_was_where_there_was_nothing_to_raise() -> None:
    from dethpc.scheduler.open_files import as_started

    assert as_started(("squeue", "-h")) == ["squeue", "-h"]
