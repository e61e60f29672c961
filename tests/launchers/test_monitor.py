"""The monitor under every launcher."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.launchers.conftest import ROOT
from tests.waiting import LONG_ENOUGH

MONITOR = """
import json, sys
from dethpc.launch import _monitor
sys.exit(_monitor.run([_monitor.Worker(command) for command in json.loads(sys.argv[1])]))
"""


def monitor(*commands: list) -> int:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", MONITOR, json.dumps(commands)], env=env, timeout=LONG_ENOUGH
    ).returncode


def test_the_monitor_waits_for_all_and_the_first_failure_ends_all(tmp_path: Path) -> None:
    assert monitor(["true"], ["sh", "-c", f"sleep 0.5; touch {tmp_path}/done"]) == 0
    assert (tmp_path / "done").exists()
    sleeper = ["sh", "-c", f"trap '' TERM; echo $$ > {tmp_path}/pid; sleep 600 & wait; sleep 600"]
    assert monitor(sleeper, ["sh", "-c", f"while ! test -s {tmp_path}/pid; do sleep 0.1; done; exit 4"]) == 4
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
