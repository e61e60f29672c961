"""Entrypoints that name a trial class, as the configuration and the compute node both see them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dethpc.domain.entrypoint import by_module, filled, is_trial_class, named_script, trains_a_trial_class
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


HPARAMS = {
    "lr": 0.1,
    "tiny": 1e-05,
    "name": 'it\'s a "b" $HOME `x`; rm',
    "optimizer": {"momentum": 0.9, "nesterov": True},
    "layers": [64, 32],
    "amp": False,
    "warm": None,
}


@pytest.mark.parametrize(
    ("typed", "becomes"),
    [
        ("python3 train.py --lr {lr}", "python3 train.py --lr 0.1"),
        ("python3 train.py --lr={tiny} -m {optimizer.momentum}", "python3 train.py --lr=1e-05 -m 0.9"),
        ("python3 train.py --nesterov {optimizer.nesterov} {layers}", "python3 train.py --nesterov true '[64, 32]'"),
        (
            "python3 train.py --lr ${lr} {unknown} {} {lr,x} {{lr}}",
            "python3 train.py --lr ${lr} {unknown} {} {lr,x} {0.1}",
        ),
        ("for i in {1..3}; do awk '{print $1}' f; done", "for i in {1..3}; do awk '{print $1}' f; done"),
        ("find . -exec rm {} \\;", "find . -exec rm {} \\;"),
        (
            "python3 train.py {hparams...}",
            "python3 train.py --lr 0.1 --tiny 1e-05 --name 'it'\"'\"'s a \"b\" $HOME `x`; rm' --optimizer.momentum 0.9 "
            "--optimizer.nesterov --layers 64 32",
        ),
    ],
)
def test_hyperparameters_are_put_in_by_name_and_nothing_else_changes(typed: str, becomes: str) -> None:
    assert filled(typed, HPARAMS) == becomes


@pytest.mark.parametrize("typed", ["{name}", "'{name}'", '"{name}"', "a\\'{name}\"{name}\"'{name}'"])
def test_a_value_is_one_word_for_the_shell_whatever_it_holds(typed: str) -> None:
    line = filled(f"printf '%s\\0' {typed}", HPARAMS)
    printed = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True).stdout  # type: ignore[list-item]
    value = HPARAMS["name"]
    assert printed == (f"a'{value}{value}{value}\0" if typed.startswith("a") else f"{value}\0")


@given(text=st.text(alphabet="abc {}$'\"\\.;", max_size=30))
def test_what_names_no_hyperparameter_stays_as_it_is_typed(text: str) -> None:
    assert filled(text, {"other": 1}) == text
    assert filled([text], {"other": 1}) == [text]


def test_in_a_list_values_are_put_in_without_quotes() -> None:
    words = ["python3", "train.py", "--name={name}", "{hparams...}"]
    assert filled(words, {"name": "a b", "on": True}) == [
        "python3", "train.py", "--name=a b", "--name", "a b", "--on",
    ]  # fmt: skip
