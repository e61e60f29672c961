"""The tutorial of the trial classes: its configurations load, and it runs by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dethpc import config
from tests.waiting import LONG_ENOUGH

pytest.importorskip("torch")
pytest.importorskip("sklearn")

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "mnist_pytorch"


@pytest.mark.parametrize("name", ["const.yaml", "dist.yaml"])
def test_its_configurations_are_valid(name: str) -> None:
    assert config.load((EXAMPLE / name).read_text(), file=name).warnings == []


def test_it_learns_off_the_cluster(tmp_path: Path) -> None:
    env = {n: v for n, v in os.environ.items() if not n.startswith(("DET_", "DETHPC_", "USE_"))}
    env.update(PYTHONPATH=str(ROOT), DETHPC_HOME=str(tmp_path / "home"), TMPDIR=str(tmp_path), OMP_NUM_THREADS="1")
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=EXAMPLE, env=env, capture_output=True, text=True, timeout=LONG_ENOUGH
    )
    assert done.returncode == 0, done.stderr
    last = [line for line in done.stderr.splitlines() if "report_validation_metrics" in line][-1]
    assert "'epochs': 3" in last and float(last.rpartition("'accuracy': np.float64(")[2].rstrip(")}")) > 0.8
    saved = list((tmp_path / "home" / "checkpoints").glob("*/code/model_def.py"))
    assert len(saved) == 3
