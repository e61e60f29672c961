"""The DeepSpeed example: through ``det`` on two slots of this machine, whole and in a pipeline; and in test mode."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dethpc import config
from tests.e2e.conftest import User, make_user, take_down

pytest.importorskip("deepspeed", reason="DeepSpeed is not installed: pip install deepspeed")
pytest.importorskip("sklearn")

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits_deepspeed"


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    env = {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "TMPDIR": str(tmp_path)}
    user = make_user(tmp_path, DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="2", **env)
    shutil.copytree(EXAMPLE, user.folder, dirs_exist_ok=True)
    shutil.rmtree(user.folder / "context")
    yield user
    take_down(user)


@pytest.mark.everything
def test_both_ways_to_share_the_model_learn_on_two_slots(user: User) -> None:
    for name in ("zero", "pipeline"):
        loaded = config.load((EXAMPLE / f"{name}.yaml").read_text(), file=f"{name}.yaml")
        assert loaded.warnings == []
        user.det("experiment", "create", f"{name}.yaml", ".")
    for experiment in (1, 2):
        user.det("experiment", "wait", str(experiment))
        (trial,) = user.trials(experiment)
        validations = user.metrics(trial["id"], "validation")
        assert [report["metrics"]["validation_metrics"]["epochs"] for report in validations] == [1, 2, 3, 4], user.log(
            experiment
        )
        assert validations[-1]["metrics"]["validation_metrics"]["validation_loss"] < 0.6
        assert trial["restarts"] == 0
    (uuid,) = [path.parent for path in user.home.glob("checkpoints/*/model0/layer_05-model_states.pt")][-1:]
    shards = {path.name for path in uuid.glob("zero_pp_rank_0_mp_rank_0*_optim_states.pt")}
    assert len(shards) == 2  # one for each stage


@pytest.mark.everything
def test_the_example_passes_the_test_mode(user: User) -> None:
    out = user.det("experiment", "create", "--local", "--test-mode", "zero.yaml", ".")
    steps = [line.split()[:2] for line in out[out.rindex("\nStep") :].splitlines()[2:] if line.strip()]
    assert [name for name, result in steps if result == "ok"] == [
        "start",
        "train",
        "validate",
        "checkpoint",
        "restore",
    ], out
