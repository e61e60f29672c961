"""The scripts that a newcomer runs first."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [*(ROOT / "scripts").iterdir(), ROOT / ".ci" / "run"]
PYTHON = b"#!/usr/bin/env python3\n"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_whole(script: Path) -> None:
    if script.read_bytes().startswith(PYTHON):
        compile(script.read_text(), script.name, "exec")
    else:
        assert subprocess.run(["bash", "-n", str(script)], capture_output=True).returncode == 0
    assert script.suffix == ".sh" or script.stat().st_mode & 0o111


def test_a_failed_installation_is_not_taken_for_done(tmp_path: Path) -> None:
    script = f"source scripts/venv.sh; make_venv {tmp_path}/venv x --no-index ./no-such-folder"
    for _ in range(2):
        done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode != 0 and "Installing" in done.stdout
    assert not (tmp_path / "venv" / ".installed-x").exists()


def test_an_environment_is_made_once_per_set_of_requirements(tmp_path: Path) -> None:
    script = f"source scripts/venv.sh; make_venv {tmp_path}/venv x "
    outputs = [
        subprocess.run(["bash", "-ec", script + what], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for what in ("--no-index pip", "--no-index pip", "--no-index --no-deps pip")
    ]
    assert ["Installing" in output for output in outputs] == [True, False, True]


def test_constraints_pin_versions_and_name_no_host() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert line.startswith("#") or re.fullmatch(r'[\w.-]+==[\w.]+(; python_version >= "3\.\d+")?', line), line
