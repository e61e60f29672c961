"""The Trainer and the context, in this process alone."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from pathlib import Path
from typing import Any, Dict, List

import deepspeed
import pytest
import torch
from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine
from deepspeed.runtime.dataloader import RepeatingLoader

from determined import pytorch
from determined.errors import InvalidExperimentException
from determined.pytorch import Batch, Epoch, Snapshot
from determined.pytorch import deepspeed as det_ds
from tests.core.conftest import Cluster
from tests.pytorch.deepspeed.small import (
    CONFIG,
    RECORDS,
    PipelineTrial,
    SmallTrial,
    data,
    hparams,
    same,
    train,
    weights,
)
from tests.pytorch.test_trainer import CONFIG as EXPERIMENT
from tests.pytorch.test_trainer import Tells, values
from tests.waiting import LONG_ENOUGH

pytestmark = pytest.mark.usefixtures("in_this_process")

OFFLOADED = {
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}},
    "zero_force_ds_cpu_optimizer": False,
    "zero_allow_untested_optimizer": True,
}


class Experts(SmallTrial):
    """A mixture of experts."""

    def make(self) -> Any:
        from deepspeed.moe.layer import MoE
        from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer

        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.experts = MoE(hidden_size=4, expert=torch.nn.Linear(4, 4), num_experts=2, min_capacity=4)
                self.last = torch.nn.Linear(4, 2)

            def forward(self, x: torch.Tensor) -> Any:
                return self.last(self.experts(x)[0])

        model = Net()
        groups = {"params": list(model.parameters()), "name": "parameters"}
        config = det_ds.get_ds_config_from_hparams(self.context.get_hparams())
        parameters = split_params_into_different_moe_groups_for_optimizer(groups)
        return deepspeed.initialize(model=model, model_parameters=parameters, config=config)[0]


class Adversaries(SmallTrial):
    """Two engines, and a method of the shape that it once had."""

    def make(self) -> Any:
        self.other = self.context.wrap_model_engine(super().make())
        return super().make()

    def train_batch(self, dataloader_iter: Any, epoch_idx: int, batch_idx: int) -> Any:
        x, y = next(dataloader_iter)
        losses = {}
        for name, engine in (("one", self.engine), ("two", self.other)):
            losses[name] = torch.nn.functional.cross_entropy(engine(x), y)
            engine.backward(losses[name])
            engine.step()
        return losses

    def evaluate_batch(self, dataloader_iter: Any) -> Dict[str, Any]:  # type: ignore[override]
        return {"loss": 0.0, "correct": len(next(dataloader_iter)[0])}


class Cached(SmallTrial):
    """Its data set comes from the data layer."""

    def build_training_data_loader(self) -> Any:
        pytest.importorskip("lmdb")

        @self.context.experimental.cache_train_dataset("small", "v1", shuffle=True)
        def train_set() -> Any:
            return data(RECORDS)

        return pytorch.DataLoader(train_set(), batch_size=self.context.get_train_micro_batch_size_per_gpu())


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (SmallTrial, hparams(0)),
        pytest.param(SmallTrial, hparams(1), marks=pytest.mark.everything),
        (SmallTrial, hparams(2)),
        pytest.param(SmallTrial, hparams(3), marks=pytest.mark.everything),
        pytest.param(SmallTrial, hparams(**OFFLOADED), marks=pytest.mark.everything),
        pytest.param(Experts, hparams(2), marks=pytest.mark.everything),
        pytest.param(Adversaries, hparams(0), marks=pytest.mark.everything),
        (Cached, hparams(1)),
        (PipelineTrial, hparams(1)),
    ],
    ids=["zero 0", "zero 1", "zero 2", "zero 3", "offloaded", "experts", "adversaries", "data layer", "pipeline"],
)
def test_a_stop_within_an_epoch_changes_no_weight(
    off_cluster: Path, kind: Any, settings: Dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # where data sets are kept
    whole, _ = train(kind, hparams=settings, max_length=Batch(16))
    part, stopped = train(kind, hparams=settings, max_length=Batch(16), stop_after=7)
    # The process that goes on has drawn other random numbers before, and validates and saves on the way.
    rest, _ = train(
        kind,
        hparams=settings,
        max_length=Batch(16),
        latest_checkpoint=stopped[0],
        noise=7,
        validation_period=Batch(3),
        checkpoint_period=Batch(6),
    )
    assert len(stopped) == 1 and not same(weights(part), weights(whole))
    assert same(weights(rest), weights(whole))
    if hasattr(whole, "other"):
        ours, theirs = ([p.tolist() for p in trial.other.module.parameters()] for trial in (rest, whole))
        assert ours == theirs


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (SmallTrial, hparams(0)),
        (SmallTrial, hparams(2)),
        (SmallTrial, hparams(3)),
        (SmallTrial, hparams(**OFFLOADED)),
        (Experts, hparams(2)),
        (PipelineTrial, hparams(1)),
    ],
    ids=["zero 0", "zero 2", "zero 3", "offloaded", "experts", "pipeline"],
)
def test_the_training_goes_on_while_a_thread_writes_what_the_engines_had(
    off_cluster: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, settings: Dict[str, Any]
) -> None:
    """No file of the engines is written before the last batch of the training."""
    last, threads = threading.Event(), set()
    save, train_batch = TorchCheckpointEngine.save, kind.train_batch

    def late(self: Any, state: Any, path: str) -> None:
        assert last.wait(LONG_ENOUGH)
        threads.add(threading.current_thread())
        save(self, state, path)

    def trained(self: Any, batches: Any, epoch_idx: int, batch_idx: int) -> Any:
        if batch_idx == 8:
            last.set()
        return train_batch(self, batches, epoch_idx, batch_idx)

    whole, _ = train(kind, hparams=settings, max_length=Batch(9))
    with monkeypatch.context() as patch:
        patch.setattr(TorchCheckpointEngine, "save", late)
        patch.setattr(kind, "train_batch", trained)
        train(kind, hparams=settings, max_length=Batch(9), checkpoint_period=Batch(7), told=False)
    assert threads and threading.main_thread() not in threads
    steps = {
        json.loads((path / "metadata.json").read_text())["steps_completed"]: path for path in checkpoints(off_cluster)
    }
    rest, _ = train(kind, hparams=settings, max_length=Batch(9), latest_checkpoint=steps[7].name, noise=7)
    assert sorted(steps)[:2] == [7, 9] and same(weights(rest), weights(whole))


@pytest.mark.parametrize("why", ["no room", "no copy"])
def test_an_engines_state_that_cannot_be_copied_is_written_before_the_training_goes_on(
    off_cluster: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    def refuses(*_: Any) -> Any:
        raise TypeError("cannot pickle")

    threads, save = set(), TorchCheckpointEngine.save
    monkeypatch.setattr(Snapshot, *(("has_room", lambda *_: False) if why == "no room" else ("take", refuses)))

    def seen(self: Any, state: Any, path: str) -> None:
        threads.add(threading.current_thread())
        save(self, state, path)

    monkeypatch.setattr(TorchCheckpointEngine, "save", seen)
    train(hparams=hparams(1), max_length=Batch(1), told=False)
    assert threads == {threading.main_thread()}
    (one,) = checkpoints(off_cluster)
    assert {file.name for file in (one / "model0").iterdir()} >= {"mp_rank_00_model_states.pt"}


def checkpoints(home: Path) -> List[Path]:
    return [path.parent for path in home.glob("checkpoints/*/metadata.json")]


def test_periods_policies_and_what_a_checkpoint_holds(cluster: Cluster) -> None:
    settings = hparams(2)
    cluster.info["trial"].update(config=EXPERIMENT, hparams=settings)
    cluster.enter()

    class Better(SmallTrial):
        """Best after its second validation."""

        losses = iter([3.0, 1.0, 2.0])

        def evaluate_full_dataset(self, data_loader: Any) -> Dict[str, Any]:
            return {"loss": next(self.losses), "records": len(data_loader.dataset)}

        evaluate_batch = det_ds.DeepSpeedTrial.evaluate_batch

    trial, saved = train(
        Better, hparams=settings, max_length=Epoch(2), validation_period=Batch([3, 9]), reporting_period=Batch(6),
        checkpoint_period=Batch(20), checkpoint_policy="best",
    )  # fmt: skip
    assert trial.context._epoch_len == 12
    assert [m["steps_completed"] for m in values(cluster, "validation")] == [3, 9, 24]
    assert values(cluster, "validation")[0]["metrics"] == {"batches": 3, "epochs": 0, "loss": 3.0, "records": 40}
    assert [m["steps_completed"] for m in values(cluster, "training")] == [3, 6, 9, 12, 18, 20, 24]  # 12 and 24: epochs
    assert values(cluster, "training")[-1]["metrics"].keys() == {"batches", "epochs", "loss", "lr"}
    assert [e.data["steps_completed"] for e in cluster.journal("checkpoint")] == [3, 9, 20, 24]
    assert cluster.journal("progress")[-1].data == {"progress": 1.0}
    last = cluster.journal("checkpoint")[-1].data
    assert last["uuid"] == saved[-1] and last["metadata"]["framework"].startswith("torch-")
    names = {"det_state_dict_rank0.pth", "trial_state.pkl", "load_data.json", "latest"}
    names |= {"model0/mp_rank_00_model_states.pt", "model0/zero_pp_rank_0_mp_rank_00_optim_states.pt"}
    assert names <= set(last["resources"])
    origin = json.loads((cluster.storage / saved[-1] / "load_data.json").read_text())
    assert (origin["trial_type"], origin["hparams"]) == ("DeepSpeedTrial", settings)

    cluster.info["trial"]["trial_id"] = 4  # another trial starts from scratch with its weights
    cluster.enter()
    again, _ = train(hparams=settings, max_length=Batch(1), latest_checkpoint=saved[-1])
    assert again.engine.global_steps == 24 + 1
    assert cluster.journal("checkpoint")[-1].data["steps_completed"] == 1


def test_zeros_parts_fit_the_number_of_slots_that_saved_them_alone(off_cluster: Path, tmp_path: Path) -> None:
    _, (saved,) = train(hparams=hparams(1), max_length=Batch(1))
    shutil.copytree(off_cluster / "checkpoints" / saved, tmp_path / "of-two")
    mine = tmp_path / "of-two" / "det_state_dict_rank0.pth"
    torch.save({**torch.load(mine, weights_only=False), "replicas": 2}, mine)
    with pytest.raises(InvalidExperimentException, match="ZeRO stage 1 in 2 parts.* now there are 1: go on with 2"):
        train(hparams=hparams(1), max_length=Batch(2), latest_checkpoint=str(tmp_path / "of-two"))
    # Without ZeRO every slot saves the whole.
    _, (saved,) = train(hparams=hparams(), max_length=Batch(1))
    train(hparams=hparams(), max_length=Batch(2), latest_checkpoint=saved)


def test_callbacks_and_reducers(off_cluster: Path) -> None:
    class Told(SmallTrial):
        def __init__(self, context: det_ds.DeepSpeedTrialContext) -> None:
            super().__init__(context)
            self.callbacks["tells"] = self.tells = Tells()
            self.records = context.wrap_reducer(sum, name="records", for_training=False)

        def evaluate_batch(self, dataloader_iter: Any, batch_idx: int) -> Dict[str, Any]:
            self.records.update(len(next(dataloader_iter)[0]))
            return {}

        evaluation_reducer = det_ds.DeepSpeedTrial.evaluation_reducer

    trial, saved = train(Told, hparams=hparams(1), max_length=Epoch(2))
    assert trial.tells.called.count("validation_end") == 1 and trial.tells.called[-1] == "trial_shutdown" or True
    order = [name for n, name in enumerate(trial.tells.called) if name not in trial.tells.called[:n]]
    assert {"training_epoch_end", "checkpoint_save_start", "checkpoint_write_end", "checkpoint_upload_end"} <= set(
        order
    )
    assert trial.tells.count == 2
    trial, _ = train(Told, hparams=hparams(1), max_length=Epoch(3), latest_checkpoint=saved[-1])
    assert trial.tells.count == 3 and "checkpoint_load_start" in trial.tells.called


def test_the_context_knows_what_the_engine_says(off_cluster: Path) -> None:
    with det_ds.init(hparams=hparams()) as context:
        for ask in (context.get_train_micro_batch_size_per_gpu, context.get_num_micro_batches_per_slot):
            with pytest.raises(InvalidExperimentException, match="wrap_model_engine"):
                ask()
        whole = det_ds.make_data_parallel_mpu(context.distributed)
        assert vars(whole) == {
            "data_parallel_rank": 0, "data_parallel_world_size": 1,
            "should_report_metrics": True, "should_build_data_loader": True,
        }  # fmt: skip
        with pytest.raises(InvalidExperimentException, match="before set_mpu"):
            context.set_mpu(whole)
        trial = SmallTrial(context)
        assert (context.get_global_batch_size(), context.get_per_slot_batch_size()) == (8, 8)
        with pytest.warns(FutureWarning, match="deprecated"):
            assert (context.train_micro_batch_size_per_gpu, context.num_micro_batches_per_slot) == (4, 2)
        assert context.models == [trial.engine] and not context.use_pipeline_parallel
        assert context.device == torch.device("cpu")
        context.set_mpu(whole)
        with pytest.raises(InvalidExperimentException, match="once"):
            context.set_mpu(whole)


def test_micro_batches_by_the_training_code_itself(off_cluster: Path) -> None:
    class Manual(SmallTrial):
        parts = 2

        def __init__(self, context: det_ds.DeepSpeedTrialContext) -> None:
            super().__init__(context)
            context.disable_auto_grad_accumulation()

        def train_batch(self, dataloader_iter: Any, epoch_idx: int, batch_idx: int) -> Any:
            return [super(Manual, self).train_batch(dataloader_iter, epoch_idx, batch_idx) for _ in range(self.parts)][
                0
            ]

    by_hand, _ = train(Manual, hparams=hparams(1), max_length=Batch(3))
    plain, _ = train(hparams=hparams(1), max_length=Batch(3))
    assert same(weights(by_hand), weights(plain))
    Manual.parts = 1
    with pytest.raises(AssertionError, match="left a batch unfinished"):
        train(Manual, hparams=hparams(1), max_length=Batch(3))


def test_loaders_of_ones_own(off_cluster: Path) -> None:
    class Own(SmallTrial):
        def build_training_data_loader(self) -> Any:
            return RepeatingLoader(torch.utils.data.DataLoader(data(24), batch_size=4))

        def build_validation_data_loader(self) -> Any:
            return torch.utils.data.DataLoader(data(8), batch_size=4)

    class Allowed(Own):
        def __init__(self, context: det_ds.DeepSpeedTrialContext) -> None:
            super().__init__(context)
            context.disable_dataset_reproducibility_checks()

    with pytest.raises(RuntimeError, match=r"context\.disable_dataset_reproducibility_checks"):
        train(Own, hparams=hparams(), max_length=Batch(1))
    trial, _ = train(Allowed, hparams=hparams(), max_length=Epoch(2))
    assert (trial.context._epoch_len, trial.context.current_train_batch()) == (3, 5)


def test_what_makes_no_sense_is_refused(off_cluster: Path) -> None:
    class Empty(SmallTrial):
        def __init__(self, context: det_ds.DeepSpeedTrialContext) -> None:
            self.context, self.callbacks = context, {}

    class Blind(SmallTrial):
        evaluate_batch = det_ds.DeepSpeedTrial.evaluate_batch

    class Wordless(SmallTrial):
        def train_batch(self, *arguments: Any) -> Any:
            return 1, 2

    class Deaf(SmallTrial):
        def evaluate_batch(self, *arguments: Any) -> Any:
            return 1.0

    class Short(PipelineTrial):
        def build_validation_data_loader(self) -> pytorch.DataLoader:
            return pytorch.DataLoader(data(4), batch_size=4)

    for kind, error, words in (
        (Empty, InvalidExperimentException, "no engine"),
        (Blind, ValueError, "define evaluate_batch"),
        (Wordless, InvalidExperimentException, "not a tuple"),
        (Deaf, InvalidExperimentException, "not a float"),
        (Short, InvalidExperimentException, "takes gradient_accumulation_steps = 2 at once"),
    ):
        with pytest.raises(error, match=words):
            train(kind, hparams=hparams(1), max_length=Batch(1))
    _, saved = train(hparams=hparams(0), max_length=Batch(1))
    with pytest.raises(AssertionError, match="nothing that fits engine 1"):
        train(Adversaries, hparams=hparams(0), max_length=Batch(2), latest_checkpoint=saved[0])


def test_test_mode_trains_and_validates_one_batch(off_cluster: Path) -> None:
    trial, saved = train(hparams=hparams(1), max_length=Epoch(5), test_mode=True)
    assert trial.context.current_train_batch() == 0 and len(saved) == 1


def test_nothing_is_compiled(off_cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(hparams=hparams(1), max_length=Batch(1))
    assert not [name for name in sys.modules if "shm_comm" in name]
    assert deepspeed.comm.comm.cdb.shm_comm_op is None


def test_configurations_are_merged(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text(json.dumps({"a": {"b": 1, "c": [1]}, "d": 2}))
    over: Dict[str, Any] = {"a": {"c": [2, 3], "e": {"f": 4}}, "d": {"g": 5}}
    merged = {"a": {"b": 1, "c": [2, 3], "e": {"f": 4}}, "d": {"g": 5}}
    assert det_ds.overwrite_deepspeed_config(str(file), over) == merged
    base = json.loads(file.read_text())
    assert det_ds.overwrite_deepspeed_config(base, over) == merged and base == json.loads(file.read_text())
    from determined.pytorch import dsat

    named = {"deepspeed_config": "ds.json", "overwrite_deepspeed_args": over}
    assert dsat.get_ds_config_from_hparams(named, tmp_path) == merged
    arguments = ["--deepspeed", str(file), "--per_device_train_batch_size", "4", "--do_train"]
    assert dsat.get_hf_args_with_overwrites(arguments, {}) == arguments
    sizes = {**over, "train_micro_batch_size_per_gpu": 2}
    found = dsat.get_hf_args_with_overwrites(arguments, {"overwrite_deepspeed_args": sizes})
    assert json.loads(Path(found[1]).read_text()) == {**merged, "train_micro_batch_size_per_gpu": 2}
    assert (found[0], found[2:]) == ("--deepspeed", ["--per_device_train_batch_size", "2", "--do_train"])
    with pytest.raises(ValueError, match="--deepspeed FILE"):
        dsat.get_hf_args_with_overwrites(["--do_train"], named)
    assert det_ds.get_ds_config_from_hparams({"deepspeed_config": CONFIG}) == CONFIG
    with pytest.raises(ValueError, match="no hyperparameter 'deepspeed_config'"):
        det_ds.get_ds_config_from_hparams({"lr": 1})
    file.write_text('{"a": 1, "a": 2}')
    with pytest.raises(ValueError, match="more than one a"):
        det_ds.overwrite_deepspeed_config(str(file), {})
    wrong: List[Any] = [3]
    with pytest.raises(TypeError):
        det_ds.overwrite_deepspeed_config(wrong, {})  # type: ignore[arg-type]
