"""Entrypoints that name a trial class, as the configuration and the compute node both see them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dethpc.domain.entrypoint import (
    by_module,
    filled,
    is_trial_class,
    named_class,
    named_script,
    trains_a_trial_class,
    unset_variables,
)
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


@pytest.mark.parametrize("quote", ["'", '"'])
def test_flags_inside_of_quotes_are_words_for_the_shell_that_gets_them(quote: str) -> None:
    hparams = {"name": HPARAMS["name"], "lr": 0.1}
    line = str(filled(f"sh -c {quote}printf %s, {{hparams...}}{quote}", hparams))
    printed = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True).stdout
    assert printed == f"--name,{HPARAMS['name']},--lr,0.1,"


PUBLISHED = [
    "model_def:TrialClass",
    "python3 script.py arg1 arg2",
    "python step0-run.py --dataset=torch/cifar10 --dataset-download data --input-size 3 32 32 --epochs 5",
    "python -m determined.launch.torch_distributed\npython step1-distributed.py --input-size 3 32 32 --epochs 5",
    "python3 -m determined.launch.autohorovod --trial model_def:MnistTrial",
    "python3 -m determined.launch.deepspeed --trial model_def:MyTrial",
    "python3 -m determined.launch.deepspeed -h",
    "python3 -m determined.launch.horovod --fusion-threshold-mb 1 --cycle-time-ms 2 -- --trial model_def:MyTrial",
    "python3 -m determined.launch.torch_distributed --rdzv_endpoint=$CUSTOM_RDZV_ADDR -- --trial model_def:MyTrial",
    "python3 -m determined.launch.wrap_rank $RANK python3 train.py",
    "python3 -m determined.launch.torch_distributed accelerate launch --config_file cfg.yaml train.py --model ${MODEL}",
    'torchrun --nnodes=$SLURM_NNODES --nproc_per_node=4 main.py --batch-size {} --json \'{"a": {"b": 1}}\'',
    "python main.py model={small,large} hydra.run.dir=outputs/${now:%Y} 'optimizer={name: adam}'",
    "for i in {1..3}; do awk '{ print $1 }' log; done",
    ["python3", "train.py", "--grid", "{1,2}"],
]
"""Entrypoints of Determined's documents and examples, and of programs that use braces themselves."""


@pytest.mark.parametrize("entrypoint", PUBLISHED, ids=str)
def test_published_entrypoints_run_as_they_are_typed(entrypoint: Any) -> None:
    hparams = {"learning_rate": 0.1, "global_batch_size": 64, "n_filters1": 8, "dropout1": 0.5}
    assert filled(entrypoint, hparams) == entrypoint


@pytest.mark.parametrize(
    ("entrypoint", "unset"),
    [
        ("python3 train.py --lr $LR --seed ${SEED}", ["LR", "SEED"]),
        ("LR=1 && python3 train.py --lr $LR", []),
        ("python3 train.py --lr '$LR' \\$LR ${LR:-0.1} ${LR-}", []),
        ('python3 train.py "--lr=$LR" $LR', ["LR"]),
        ("for lr in 1 2; do python3 train.py $lr; done", []),
        ("read -r one two <f; echo $one $two", []),
        ("torchrun --nnodes=$SLURM_NNODES --node_rank $RANK $HOME/train.py $DET_TRIAL_ID $? $1", []),
        ("python3 train.py $GIVEN", []),
        ("python3 train.py --epochs $EPOCHS --at $EPOCHSECONDS", ["EPOCHS"]),
        (["python3", "train.py", "$LR"], []),  # no shell
    ],
)
def test_variables_that_nobody_sets_are_found(entrypoint: Any, unset: list[str]) -> None:
    assert unset_variables(entrypoint, {"GIVEN"}) == unset


def test_trial_as_the_last_word_names_no_module() -> None:
    assert named_class("python3 -m determined.launch.horovod --trial") == ("", "")
    assert named_class("python3 -m determined.launch.horovod --trial=pkg/model.py:T.In") == ("pkg.model", "T.In")
