"""The run directory made by hand, and launchers started as programs, for this room."""

import os
import subprocess
import sys
from pathlib import Path

from tests.exec.fixtures import run
from tests.waiting import LONG_ENOUGH

__all__ = ["launch", "module", "run"]

ROOT = Path(__file__).resolve().parents[2]


def module(name: str) -> list:
    """The entrypoint's first words for launcher ``name``."""
    return [sys.executable, "-m", f"determined.launch.{name}"]


def launch(*arguments: str, env=None) -> subprocess.CompletedProcess:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DETHPC_", "DET_"))}
    clean.update(env or {}, PYTHONPATH=str(ROOT))
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(
        command, env=clean, capture_output=True, text=True, timeout=LONG_ENOUGH, stdin=subprocess.DEVNULL
    )
