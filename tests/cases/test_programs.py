"""Programs and searches that people wrote for Determined, transformers, Lightning and Optuna, run as they are by ``det``."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import User, make_user, take_down
from tests.waiting import LONG_ENOUGH

MISSING = [name for name in ("torch", "transformers", "lightning", "optuna") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

HERE = Path(__file__).parent
CREATED = ("trainer", "lightning_best", "trial_context", "max_length", "weights_only")
"""Those whose every configuration is an experiment that ends well."""


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    tmp = tmp_path_factory.mktemp("cases")
    absent = tmp / "absent"
    (absent / "cmaes").mkdir(parents=True)  # Optuna's sampler needs this package, and says so when it draws
    (absent / "cmaes" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'cmaes'\", name='cmaes')\n"
    )
    path = os.pathsep.join(filter(None, (str(absent), os.environ.get("PYTHONPATH"))))
    user = make_user(tmp, DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="4", OMP_NUM_THREADS="1", PYTHONPATH=path)
    try:
        yield user
    finally:
        take_down(user)


@pytest.fixture(scope="module")
def ended(user: User) -> dict[str, dict[str, Any]]:
    """The only trial of each experiment by ``folder/config``."""
    numbers = {}
    for config in sorted(config for folder in CREATED for config in (HERE / folder).glob("*.yaml")):
        out = user.det("experiment", "create", str(config), str(config.parent))
        numbers[f"{config.parent.name}/{config.stem}"] = int(out.split()[-1])
    for number in numbers.values():
        user.det("experiment", "wait", str(number), code=None)
    return {name: user.trials(number)[0] for name, number in numbers.items()}


def test_all_come_to_a_good_end(user: User, ended: dict[str, dict[str, Any]]) -> None:
    logs = {
        name: user.det("trial", "logs", str(trial["id"]))
        for name, trial in ended.items()
        if trial["state"] != "STATE_COMPLETED"
    }
    assert not logs


@pytest.mark.parametrize("name", ["multieval", "multieval_first"])
def test_each_evaluation_set_of_a_trainer_is_reported_at_each_step(
    user: User, ended: dict[str, dict[str, Any]], name: str
) -> None:
    reports = user.metrics(ended[f"trainer/{name}"]["id"], "validation")
    assert [report["totalBatches"] for report in reports] == [2, 4, 6, 8, 10, 12]
    for report in reports:
        assert {"eval_a_loss", "eval_b_loss"} <= set(report["metrics"]["validation_metrics"])


@pytest.mark.parametrize("name", ["best", "best1"])
def test_a_trainer_ends_with_its_best_model_though_it_died_since(
    user: User, ended: dict[str, dict[str, Any]], name: str
) -> None:
    trial = ended[f"trainer/{name}"]
    assert trial["restarts"] == 1
    assert "at the end 12 checkpoint-4 True" in user.det("trial", "logs", str(trial["id"]))


@pytest.mark.parametrize("name", ["best", "bestlast", "besttest", "nomc"])
def test_lightnings_best_is_found_wherever_our_callback_stands(
    user: User, ended: dict[str, dict[str, Any]], name: str
) -> None:
    log = user.det("trial", "logs", str(ended[f"lightning_best/{name}"]["id"]))
    assert re.search(r"best path \S+\.ckpt", log) and re.search(r"tested \[\{'test_loss': 0\.\d+", log)


def test_code_reads_the_length_under_its_old_name(user: User, ended: dict[str, dict[str, Any]]) -> None:
    assert "the length is 4" in user.det("trial", "logs", str(ended["max_length/c"]["id"]))


def test_a_trials_state_loads_as_tensors_and_plain_values(user: User, ended: dict[str, dict[str, Any]]) -> None:
    import torch

    experiment = str(ended["weights_only/plain"]["experimentId"])
    uuid = user.json("experiment", "list-checkpoints", experiment)[0]["uuid"]
    folder = Path(user.det("checkpoint", "download", uuid, "--quiet").strip())
    state = torch.load(user.folder / folder / "state_dict.pth", weights_only=True)
    assert list(state["models_state_dict"][0]) == ["0.weight", "0.bias", "3.weight", "3.bias"]


def test_a_sampler_whose_package_is_missing_is_refused(user: User) -> None:
    user.det("experiment", "create", str(HERE / "sampler/o-cmaes.yaml"), str(HERE / "sampler"), code=1)
    assert "CmaEsSampler needs the package cmaes" in user.errors


def test_a_samplers_option_of_a_wrong_type_is_refused_by_its_name(user: User) -> None:
    user.det("experiment", "create", str(HERE / "sampler/o-badopt.yaml"), str(HERE / "sampler"), code=1)
    assert "searcher.sampler.n_startup_trials" in user.errors and "int" in user.errors


@pytest.mark.parametrize(("name", "length"), [("script", 3), ("trial_class", 4)])
def test_a_search_may_answer_all_of_a_trial_at_once(user: User, tmp_path: Path, name: str, length: int) -> None:
    user.det("experiment", "list")  # a master
    shutil.copytree(HERE / "search", tmp_path / "search")
    shutil.copy(HERE / "trial_context" / "model_def.py", tmp_path / "search" / "ctx")
    subprocess.run(
        [sys.executable, "run.py", f"{name}.yaml", str(length)],
        cwd=tmp_path / "search",
        env=user.env,
        check=True,
        timeout=LONG_ENOUGH,
    )
    newest = max(user.json("experiment", "list", "--all"), key=lambda experiment: int(experiment["id"]))
    user.det("experiment", "wait", str(newest["id"]))
    (trial,) = user.trials(newest["id"])
    assert [report["totalBatches"] for report in user.metrics(trial["id"], "validation")] == [length]
