"""The examples of Keras, Lightning and transformers through ``det``: paused in the middle, they end as if they had not been."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import determined as det
from dethpc import config
from dethpc.rundir.layout import RunDir
from tests.core.conftest import Cluster
from tests.e2e.conftest import User
from tests.waiting import LONG_ENOUGH, wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"

GATE = """
import os, pathlib, runpy, time
import determined as det

def gate():
    # The first run waits here until it has been asked to stop, so that the pause comes in the middle of the training.
    if det.get_cluster_info().latest_checkpoint is None:
        print("at the gate", flush=True)
        while not pathlib.Path(os.environ["DETHPC_INFO"]).with_name("stop.json").exists():
            time.sleep(0.05)
        time.sleep(0.3)
"""
KERAS = """
import keras

class Gate(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            gate()

fit = keras.Model.fit
keras.Model.fit = lambda self, *args, callbacks, **options: fit(self, *args, callbacks=[*callbacks, Gate()], **options)
runpy.run_path("train.py", run_name="__main__")
"""
LIGHTNING = """
import lightning.pytorch as pl

class Gate(pl.Callback):
    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == 1:
            gate()

fit = pl.Trainer.fit
def gated(self, *args, **options):
    self.callbacks.insert(0, Gate())
    fit(self, *args, **options)
pl.Trainer.fit = gated
runpy.run_path("train.py", run_name="__main__")
"""
TRANSFORMERS = """
import transformers

class Gate(transformers.TrainerCallback):
    def on_step_begin(self, args, state, control, **options):
        if state.global_step == 30:
            gate()

train = transformers.Trainer.train
def gated(self, *args, **options):
    self.add_callback(Gate())
    return train(self, *args, **options)
transformers.Trainer.train = gated
runpy.run_path("train.py", run_name="__main__")
"""


def pause_and_go_on(user: User, example: str, file: str, entrypoint: str, drive: str) -> int:
    """The experiment's id, when it has completed."""
    shutil.rmtree(user.folder / "context")
    shutil.copytree(EXAMPLES / example, user.folder / "context")
    (user.folder / "context" / "drive.py").write_text(GATE + drive)
    user.env["TMPDIR"] = str(user.folder)
    changes = ["hyperparameters.epochs=3", f"entrypoint={entrypoint} drive.py"]
    options = [word for change in changes for word in ("--config", change)]
    out = user.det("experiment", "create", str(EXAMPLES / example / file), "context", *options)
    experiment = int(out.split()[-1])
    logs = RunDir(user.home / "runs" / "1.1.1").attempt(0).logs
    wait_until(lambda: any("at the gate" in log.read_text() for log in logs.glob("node-*")))
    user.det("experiment", "pause", str(experiment))
    user.wait_state(experiment, "PAUSED")
    wait_until(lambda: checkpoints(user))
    user.det("experiment", "activate", str(experiment))
    user.det("experiment", "wait", str(experiment), timeout=LONG_ENOUGH)
    assert user.log(experiment).count("at the gate") == (2 if "launch" in entrypoint else 1)
    return experiment


def checkpoints(user: User) -> list[tuple[int, Path]]:
    """(steps, directory) of each."""
    return sorted(
        (json.loads((path / "metadata.json").read_text())["steps_completed"], path)
        for path in (user.home / "checkpoints").glob("*")
        if (path / "metadata.json").exists()
    )


def undisturbed(user: User, cluster: Cluster, example: str) -> Path:
    """The last checkpoint of the same trial, trained in this process without a stop."""
    spec = json.loads(RunDir(user.home / "runs" / "1.1.1").spec.read_text())
    cluster.info["trial"].update(trial_seed=spec["trial_seed"], hparams=spec["hparams"], config=spec["config"])
    cluster.enter()
    cluster.start_master()
    with det.core.init() as core_context:
        load(example).main(core_context)
    return cluster.storage / str(cluster.journal("checkpoint")[-1].data["uuid"])


def load(example: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"{example}_train", EXAMPLES / example / "train.py")
    assert spec and spec.loader
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def validated(user: User, experiment: int) -> list[int]:
    (trial,) = user.trials(experiment)
    return [one["totalBatches"] for one in user.metrics(trial["id"], "validation")]


@pytest.mark.everything
def test_keras(user: User, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch").set_num_threads(1)
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    pytest.importorskip("keras")
    user.env["KERAS_BACKEND"] = "torch"
    experiment = pause_and_go_on(user, "digits_keras", "const.yaml", "python3", KERAS)
    assert validated(user, experiment) == [22, 44, 66]
    (steps, last), expected = checkpoints(user)[-1], undisturbed(user, cluster, "digits_keras")
    assert steps == 66
    assert arrays(last) == arrays(expected)


def arrays(checkpoint: Path) -> dict[str, bytes]:
    """Of weights and optimizer."""
    import h5py

    found: dict[str, bytes] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item[()].tobytes()

    with h5py.File(checkpoint / "model_checkpoint.weights.h5") as file:
        file.visititems(visit)
    return found


@pytest.mark.everything
def test_lightning(user: User, cluster: Cluster) -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    pytest.importorskip("lightning")
    experiment = pause_and_go_on(user, "digits_lightning", "const.yaml", "python3", LIGHTNING)
    assert validated(user, experiment) == [22, 44, 66]
    (steps, last), expected = checkpoints(user)[-1], undisturbed(user, cluster, "digits_lightning")
    assert steps == 66
    mine, theirs = (torch.load(path / "checkpoint.ckpt", weights_only=False)["state_dict"] for path in (last, expected))
    assert mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.everything
def test_transformers_on_two_slots(user: User) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    user.env["HF_HUB_OFFLINE"] = "1"
    launcher = "python3 -m determined.launch.torch_distributed"
    experiment = pause_and_go_on(user, "digits_transformers", "dist.yaml", launcher, TRANSFORMERS)
    assert validated(user, experiment) == [22, 44, 66]
    saved = checkpoints(user)
    assert [steps for steps, _ in saved if steps % 22 == 0] == [22, 44, 66]
    (stopped,) = (steps for steps, _ in saved if steps % 22)
    assert 30 < stopped < 44
    last = saved[-1][1] / "checkpoint-66"
    assert (last / "rng_state_0.pth").exists() and (last / "rng_state_1.pth").exists()


@pytest.mark.parametrize(
    "file", sorted(EXAMPLES.glob("digits_*/*.yaml")), ids=lambda path: path.parent.name + path.stem
)
def test_their_configurations_are_valid(file: Path) -> None:
    assert config.load(file.read_text(), file=file.name).warnings == []
