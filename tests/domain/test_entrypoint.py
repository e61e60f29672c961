"""Entrypoints that name a trial class, as the configuration and the compute node both see them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dethpc.domain.entrypoint import by_module, is_trial_class, named_script, trains_a_trial_class
from dethpc.exec import harness


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("model_def:MyTrial", True),
        (" package.model:Outer.Inner ", True),
        ("python3 train.py", False),
        ("model_def:", False),
        ("model_def:MyTrial.", False),
        ("9:MyTrial", False),
    ],
)
def test_trial_class_is_a_module_and_a_class(word: str, named: bool) -> None:
    assert is_trial_class(word) is named


@pytest.mark.parametrize(
    ("entrypoint", "trains"),
    [
        ("model_def:MyTrial", True),
        ("python3 -m determined.launch.torch_distributed --trial model_def:MyTrial", True),
        (["python3", "-m", "determined.launch.torch_distributed", "model_def:MyTrial"], True),
        ("python3 serve.py host:Port", False),
        (None, False),
        (7, False),
    ],
)
def test_entrypoint_may_name_a_trial_class_for_a_launcher(entrypoint: object, trains: bool) -> None:
    assert trains_a_trial_class(entrypoint) is trains


@pytest.mark.parametrize(
    "entrypoint, script",
    [
        ("python3 train.py", "train.py"),
        ("LR=1 /opt/x/bin/python3.11 -u ./src/train.py --config a.py", "src/train.py"),
        ("python3 -m dethpc.launch.torch_distributed --trial-args x python3 train.py", "train.py"),
        (["bash", "run.sh", "--x"], "run.sh"),
        ("torchrun --nproc_per_node 2 train.py", "train.py"),
        ("./run", "run"),
        ("python3 -m pkg.train --schedule later.py", ""),  # a module; its arguments are its own matter
        ("python3 -c 'import x' a.py", ""),
        ("cd sub && python3 train.py", ""),
        ("python3 $SCRIPT.py", ""),
        ("python3 /app/train.py", ""),
        ("make train.py", ""),
        ("model_def:MNistTrial", ""),
        ("train.sbatch 7", ""),
    ],
)
def test_the_script_that_an_entrypoint_runs_is_told_where_that_is_certain(entrypoint: Any, script: str) -> None:
    assert named_script(entrypoint) == script


@pytest.mark.parametrize(
    "spec", ["pkg.of_trial:T.Inner", "pkg/of_trial:T.Inner", "pkg/of_trial.py:T.Inner", " ./pkg/of_trial.py:T.Inner"]
)
def test_a_trial_class_is_found_by_its_module_and_by_its_file(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert by_module(spec) == "pkg.of_trial:T.Inner"
    (tmp_path / "pkg").mkdir()
    code = "class T:\n    class Inner:\n        def _train_on_cluster(self): pass\n"
    (tmp_path / "pkg" / "of_trial.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("pkg", "pkg.of_trial"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert harness.load(spec).__qualname__ == "T.Inner"
