"""The example of the demo: it learns, resumes exactly, and runs with no cluster at all."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.waiting import LONG_ENOUGH

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "digits_pytorch"


@pytest.fixture(scope="module")
def train() -> ModuleType:
    spec = importlib.util.spec_from_file_location("digits_train", EXAMPLE / "train.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_resumed_training_ends_with_the_same_weights_bit_for_bit(train: ModuleType, tmp_path: Path) -> None:
    images, labels, *_ = train.data()

    def fresh(seed: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(seed)
        model = train.network(train.DEFAULTS)
        return model, torch.optim.Adam(model.parameters(), lr=train.DEFAULTS["lr"])

    whole, optimizer = fresh(1)
    for epoch in (1, 2):
        train.train_epoch(whole, optimizer, images, labels, 64)
        if epoch == 1:
            train.save(tmp_path, whole, optimizer, epoch)

    resumed, optimizer = fresh(2)
    assert train.load(tmp_path, resumed, optimizer) == 1
    train.train_epoch(resumed, optimizer, images, labels, 64)

    assert all(torch.equal(a, b) for a, b in zip(whole.state_dict().values(), resumed.state_dict().values()))


def test_the_example_trains_off_the_cluster(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(EXAMPLE / "train.py")]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=LONG_ENOUGH, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "epoch 30:" in done.stdout + done.stderr
