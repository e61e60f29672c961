"""Trial classes and Trainer scripts as entrypoints of real node processes."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch

from determined import pytorch
from dethpc.domain.reports import Report
from dethpc.rundir.journal import read
from tests.core.conftest import Cluster
from tests.pytorch.small import HPARAMS, SmallTrial, same, weights

SMALL = (Path(__file__).parent / "small.py").read_text()
PATH = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"  # entrypoints without a launcher run python3
TORCHRUN = [sys.executable, "-m", "determined.launch.torch_distributed"]


def config(length: Any, **changes: Any) -> Dict[str, Any]:
    return {
        "searcher": {"name": "single", "metric": "loss", "smaller_is_better": True, "max_length": length},
        "min_validation_period": {"batches": 10},
        "min_checkpoint_period": {"epochs": 1},
        "scheduling_unit": 5,
        "checkpoint_policy": "none",
        **changes,
    }


def make(run: Any, entrypoint: Any, files: Dict[str, str], **changes: Any) -> Path:
    storage = run.dir.path / "checkpoints"
    fields = {
        "hparams": {"lr": 0.05, "global_batch_size": 8},
        "checkpoint_storage": {"type": "shared_fs", "host_path": str(storage)},
        "environment": {"OMP_NUM_THREADS": "1"},
    }
    run.make(entrypoint, files, **{**fields, **changes})
    return storage


def journal(run: Any, kind: str, k: int = 0) -> List[Report]:
    return [event for event in read(run.attempt(k).journal)[0] if event.kind == kind]


def reports(run: Any, group: str, k: int = 0) -> List[Dict[str, Any]]:
    return [event.data for event in journal(run, "metrics", k) if event.data["group"] == group]


def final_weights(run: Any, storage: Path, k: int = 0) -> Dict[str, Any]:
    uuid = journal(run, "checkpoint", k)[-1].data["uuid"]
    checkpoint = torch.load(storage / uuid / "state_dict.pth", weights_only=True)
    weights: Dict[str, Any] = checkpoint["models_state_dict"][0]
    return weights


def whole_weights(cluster: Cluster, off: Dict[str, Any]) -> Dict[str, Any]:
    """Of the same trial, trained in this process without a stop."""
    cluster.info["trial"].update(trial_seed=99, hparams=HPARAMS, config=off)
    cluster.enter()
    with pytorch.init(hparams=HPARAMS) as context:
        trial = SmallTrial(context)
        pytorch.Trainer(trial, context).fit(max_length=pytorch.Epoch(3), checkpoint_policy="none")
    return weights(trial)


@pytest.mark.everything
def test_a_legacy_entrypoint_stops_and_goes_on_to_the_same_weights(run: Any, cluster: Cluster) -> None:
    settings = config({"epochs": 3})
    storage = make(run, "model_def:SmallTrial", {"model_def.py": SMALL}, config=settings)
    assert run.finish(run.start(PATH=PATH, STOP_AT="16"))[0] == 0, run.text()
    assert run.end()["acked"]
    assert run.finish(run.start(k=1, PATH=PATH))[0] == 0, run.text(k=1)
    assert run.end(1)["finished"]

    assert [m["steps_completed"] for m in reports(run, "validation")] == [10]
    assert [m["steps_completed"] for m in reports(run, "validation", 1)] == [20, 30, 39]
    assert [e.data["steps_completed"] for e in journal(run, "checkpoint")] == [13, 17]
    assert [e.data["steps_completed"] for e in journal(run, "checkpoint", 1)] == [26, 39]
    training = reports(run, "training")
    assert [m["steps_completed"] for m in training][:4] == [5, 10, 13, 15]
    assert training[2]["metrics"].keys() == {"batches", "epochs", "loss", "lr"}
    assert (training[2]["metrics"]["batches"], training[2]["metrics"]["epochs"]) == (13, 1)
    assert journal(run, "progress", 1)[-1].data == {"progress": 1.0}
    saved = storage / journal(run, "checkpoint")[-1].data["uuid"]
    assert (saved / "code" / "model_def.py").read_text() == SMALL
    assert same(final_weights(run, storage, 1), whole_weights(cluster, settings))


def test_a_stop_and_a_kill_in_the_middle_of_a_checkpoint_change_no_weight(run: Any, cluster: Cluster) -> None:
    settings = config({"epochs": 3})
    storage = make(run, "model_def:SmallTrial", {"model_def.py": SMALL}, config=settings)
    assert run.finish(run.start(PATH=PATH, IN_CHECKPOINT="stop"))[0] == 0, run.text()
    (first,) = journal(run, "checkpoint")
    assert run.end()["acked"] and first.data["steps_completed"] == 13
    # The restart of a trial goes on from the checkpoint before the one that was being written.
    assert run.finish(run.start(k=1, PATH=PATH, IN_CHECKPOINT="kill"))[0] != 0
    assert not run.end(1)["finished"] and not journal(run, "checkpoint", 1)
    assert len(list(storage.glob("[!.]*/state_dict.pth"))) == 1
    assert run.finish(run.start(k=2, PATH=PATH))[0] == 0, run.text(k=2)
    assert run.end(2)["finished"]
    assert [m["steps_completed"] for m in reports(run, "validation", 2)] == [20, 30, 39]
    assert same(final_weights(run, storage, 2), whole_weights(cluster, settings))


needs_horovod = pytest.mark.skipif(
    importlib.util.find_spec("horovod") is None, reason="Horovod is not installed: scripts/build-horovod builds it"
)


@pytest.mark.everything
@needs_horovod
def test_horovod_trains_as_torchrun_does_and_resumes(run: Any) -> None:
    """An average of gradients is the same whoever computes it, and so are the weights, but for the order of additions."""
    settings = config({"epochs": 3}, optimizations={"tensor_fusion_threshold": 8})
    said = '\nprint("by Horovod:", os.environ.get("USE_HOROVOD"), flush=True)\n'
    files, shape = {"model_def.py": SMALL + said}, {"config": settings, "slots": 2, "slots_per_node": 2}
    trial = ["--trial", "model_def:SmallTrial"]
    storage = make(run, [*TORCHRUN, *trial], files, **shape)
    assert run.finish(run.start(PATH=PATH))[0] == 0, run.text()
    torchs = final_weights(run, storage)
    run.attempt(0).journal.unlink()  # the next attempt is of another training
    make(run, "model_def:SmallTrial", files, **shape)  # an entrypoint without a launcher takes Horovod
    assert run.finish(run.start(k=1, PATH=PATH, STOP_AT="16"))[0] == 0, run.text(k=1)
    assert run.end(1)["acked"] and "by Horovod: 1" in run.text(k=1) and "by Horovod: None" in run.text()
    assert run.finish(run.start(k=2, PATH=PATH))[0] == 0, run.text(k=2)
    assert run.end(2)["finished"]
    horovods = final_weights(run, storage, 2)
    assert torchs.keys() == horovods.keys()
    assert all(torch.allclose(torchs[name], horovods[name], atol=1e-4) for name in torchs)


@pytest.mark.everything
def test_two_slots_resume_exactly_and_every_optimization_has_its_effect(run: Any, tmp_path: Path) -> None:
    files = {"model_def.py": SMALL, "several.py": (Path(__file__).parent / "several.py").read_text()}
    settings = config({"epochs": 3})
    make(run, [*TORCHRUN, "several.py"], files, config=settings, slots=2, slots_per_node=2)
    assert run.finish(run.start(OUT=str(tmp_path / "out.json")))[0] == 0, run.text()
    out = json.loads((tmp_path / "out.json").read_text())

    for aggregation in (1, 3):  # three batches to a step: the stop leaves gradients behind
        assert out[f"resumed {aggregation}"] == [[1.0, 0.0]] * 2

    have_their_effect(out)
    assert out["half"]["dtypes"] == ["inside torch.bfloat16", "torch.float32"]
    assert out["plain"]["dtypes"] == ["inside torch.float32", "torch.float32"]
    assert out["fused"]["bucket"] == 3 * 1024 * 1024 != out["plain"]["bucket"]


@needs_horovod
def test_every_optimization_has_its_effect_by_horovod(run: Any, tmp_path: Path) -> None:
    files = {"model_def.py": SMALL, "several.py": (Path(__file__).parent / "several.py").read_text()}
    launched = [sys.executable, "-m", "determined.launch.horovod", "several.py"]
    settings = config({"epochs": 3}, optimizations={"auto_tune_tensor_fusion": True})
    make(run, launched, files, config=settings, slots=2, slots_per_node=2)
    assert run.finish(run.start(OUT=str(tmp_path / "out.json")))[0] == 0, run.text()
    out = json.loads((tmp_path / "out.json").read_text())
    have_their_effect(out)
    assert out["tuned"] == "1"


def have_their_effect(out: Dict[str, Any]) -> None:
    def learned(name: str) -> torch.Tensor:
        return torch.tensor(out[name]["weights"])

    exact = [learned(name) for name in ("plain", "chief", "fused")]
    assert all(torch.equal(one, exact[0]) for one in exact)
    difference = (learned("compressed") - learned("plain")).abs().max()
    assert 0 < difference < 1e-2
    difference = (learned("half") - learned("plain")).abs().max()
    assert 0 < difference < 1e-1
    # One step of the mean of two batches' gradients, against one of their sum.
    torch.manual_seed(99)
    start = torch.nn.Linear(4, 2).weight.detach().flatten()
    steps = [learned(name) - start for name in ("aggregated", "summed")]
    assert torch.allclose(2 * steps[0], steps[1], atol=1e-6)
    assert not torch.allclose(learned("aggregated"), learned("plain"), atol=1e-4)
    assert (out["plain"]["metrics"]["rank"], out["chief"]["metrics"]["rank"]) == (0.5, 0.0)
