"""Two slots, by DeepSpeed's launcher: every way to share a model, and trial classes that stop and go on in another process."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any, List

import pytest
import torch

from tests.pytorch.deepspeed.small import hparams
from tests.pytorch.test_on_cluster import config, journal, make, reports

HERE = Path(__file__).parent
FILES = {"model_def.py": (HERE / "small.py").read_text(), "several.py": (HERE / "several.py").read_text()}


LAUNCH = [sys.executable, "-m", "determined.launch.deepspeed"]
TWO = {"slots": 2, "slots_per_node": 2, "environment": {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}}


@pytest.mark.everything
def test_each_way_to_share_a_model_resumes_exactly_and_so_does_another_process(run: Any, tmp_path: Path) -> None:
    settings = config({"epochs": 2}, min_validation_period={"batches": 5})
    storage = make(run, [*LAUNCH, "several.py"], FILES, config=settings, **TWO)
    assert run.finish(run.start(OUT=str(tmp_path / "out.json")))[0] == 0, run.text()
    assert run.text().count("left True") == 2  # a process group still there can end what has finished by SIGABRT
    out = json.loads((tmp_path / "out.json").read_text())
    for name, found in out.items():
        assert [slot["resumed"] for slot in found["slots"]] == [[True, False]] * 2, name
        assert {"det_state_dict_rank0.pth", "det_state_dict_rank1.pth", "trial_state.pkl"} <= set(found["files"])
    # 100 records in micro-batches of 4, on two slots, two to a batch; the whole set on each stage of a pipeline.
    assert [out[name]["slots"][1]["epoch"] for name in ("zero 1", "pipeline")] == [[6, 11], [12, 23]]
    for name in ("zero 1", "zero 2", "zero 3"):
        one, other = out[name]["slots"]
        assert one["weights"] == other["weights"]
        assert [slot["mpu"]["data_parallel_rank"] for slot in (one, other)] == [0, 1]
        assert {f"zero_pp_rank_{n}_mp_rank_00_optim_states.pt" for n in (0, 1)} <= set(out[name]["files"]), out[name]
    one, other = out["pipeline"]["slots"]
    assert one["mpu"] == other["mpu"] == {
        "data_parallel_rank": 0, "data_parallel_world_size": 1,
        "should_report_metrics": True, "should_build_data_loader": True,
    }  # fmt: skip
    assert [len(value) for value in (one["weights"], other["weights"])] == [2, 2] and one["weights"] != other["weights"]
    assert {"layer_00-model_states.pt", "layer_03-model_states.pt"} <= set(out["pipeline"]["files"])
    assert out["zero 1"]["report"]["rank"] == 0.5 and out["zero 1"]["report"]["records"] == 6 * 2 * 2 * 4  # one epoch's

    # The same by the name of the class, stopped and started again as other processes.
    shutil.rmtree(run.attempt().path)
    make(run, [*LAUNCH, "--trial", "model_def:SmallTrial"], FILES, config=settings, hparams=hparams(3), **TWO)
    assert run.finish(run.start(STOP_AT="4"))[0] == 0, run.text()
    assert run.end()["acked"]
    (stopped,) = journal(run, "checkpoint")
    assert 5 <= stopped.data["steps_completed"] < 12
    assert run.finish(run.start(k=1))[0] == 0, run.text(k=1)
    assert run.end(1)["finished"]
    assert [m["steps_completed"] for m in reports(run, "validation", 1)][-1] == 12
    assert reports(run, "validation", 1)[-1]["metrics"].keys() == {"batches", "epochs", "loss", "correct"}
    last = storage / journal(run, "checkpoint", 1)[-1].data["uuid"]
    assert (last / "code" / "model_def.py").read_text() == FILES["model_def.py"]
    learned = torch.cat([part.flatten() for part in flat(last)])
    whole = torch.cat([torch.tensor(value).flatten() for value in out["zero 3"]["slots"][0]["weights"]])
    assert torch.equal(learned, whole)


def flat(checkpoint: Path) -> List[torch.Tensor]:
    """The weights of the checkpoint, from DeepSpeed's sharded files."""
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    return list(get_fp32_state_dict_from_zero_checkpoint(str(checkpoint), tag="model0").values())
