"""The Trainer and the context, in this process: outside the cluster and on it."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch

import determined as det
from determined import experimental, pytorch
from determined.errors import InternalException, InvalidExperimentException, InvalidHP, NotSupportedYet
from determined.pytorch import Batch, Epoch, LRScheduler
from dethpc.domain.reports import WOULD_FAIL_AGAIN
from tests.core.conftest import Cluster
from tests.pytorch.small import HPARAMS, SmallTrial, same, train, weights
from tests.waiting import LONG_ENOUGH

CONFIG = {"searcher": {"name": "single", "metric": "loss", "smaller_is_better": True}, "data": {"path": "/d"}}


class Tells(pytorch.PyTorchCallback):
    """Writes down which hooks were called, and keeps a state."""

    def __init__(self) -> None:
        self.called: List[str] = []
        self.count = 0

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):
            self.called.append(name[3:])
        return super().__getattribute__(name)

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        self.count += 1

    def state_dict(self) -> Dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        self.count = state_dict["count"]


def values(cluster: Cluster, group: str) -> List[Dict[str, Any]]:
    return [event.data for event in cluster.journal("metrics") if event.data["group"] == group]


def on(cluster: Cluster, **config: Any) -> None:
    cluster.info["trial"].update(config={**CONFIG, **config}, hparams=HPARAMS)
    cluster.enter()


@pytest.mark.parametrize("name", ["get_experiment_id", "get_trial_id", "get_trial_seed"])
def test_off_the_cluster_there_is_no_trial_to_name(name: str) -> None:
    with pytorch.init(hparams=HPARAMS) as context, pytest.raises(RuntimeError, match="on the cluster alone"):
        getattr(context, name)()


def test_periods_and_schedules_are_kept(cluster: Cluster) -> None:
    on(cluster)
    train(
        max_length=Batch(30),
        validation_period=Batch([3, 20]),
        checkpoint_period=Epoch(1),
        reporting_period=Batch(8),
        checkpoint_policy="none",
        step_zero_validation=True,
    )
    assert [m["steps_completed"] for m in values(cluster, "validation")] == [0, 3, 20, 30]
    assert [e.data["steps_completed"] for e in cluster.journal("checkpoint")] == [13, 26, 30]
    assert [m["steps_completed"] for m in values(cluster, "training")] == [3, 8, 13, 16, 20, 24, 26, 30]
    assert [round(e.data["progress"], 3) for e in cluster.journal("progress")] == [0.267, 0.533, 0.8, 1.0]
    last = values(cluster, "validation")[-1]["metrics"]
    assert last["batches"] == 30 and last["epochs"] == 2 and last["correct"] <= 30


@pytest.mark.parametrize(("policy", "expected"), [("all", [5, 10, 15]), ("none", [15]), ("best", [5, 15])])
def test_checkpoint_policies(cluster: Cluster, policy: str, expected: List[int]) -> None:
    on(cluster)
    cluster.start_master()  # it knows no validation of the experiment
    losses = iter([1.0, 2.0, 0.5])

    class Losing(SmallTrial):
        def evaluate_full_dataset(self, data_loader: Any) -> Dict[str, Any]:
            return {"loss": next(losses)}

    Losing.evaluate_batch = pytorch.PyTorchTrial.evaluate_batch  # type: ignore[method-assign]
    train(Losing, max_length=Batch(15), validation_period=Batch(5), checkpoint_policy=policy)
    assert [e.data["steps_completed"] for e in cluster.journal("checkpoint")] == expected


def test_a_metric_that_the_search_wants_must_be_there(cluster: Cluster) -> None:
    on(cluster, searcher={"name": "single", "metric": "corect"})
    reason = r"corect, the searcher's metric, is not among .*\(correct, loss\); did you mean 'correct'\?"
    with pytest.raises(RuntimeError, match=reason):
        train(max_length=Batch(1), checkpoint_policy="best")
    (exit_report,) = cluster.journal("early_exit")
    assert exit_report.data["reason"].startswith(WOULD_FAIL_AGAIN)


def test_the_search_s_own_lengths(cluster: Cluster) -> None:
    on(cluster, searcher={**CONFIG["searcher"], "max_length": {"epochs": 2}})
    cluster.info["trial"]["search"] = {"lengths": [1, 2]}
    cluster.enter()
    train(max_length=None, checkpoint_policy="none")
    assert [m["steps_completed"] for m in values(cluster, "validation")] == [13, 26]
    assert [e.data["steps_completed"] for e in cluster.journal("checkpoint")] == [26]


def test_records_are_reported_where_the_search_counts_them(cluster: Cluster) -> None:
    on(cluster, searcher={**CONFIG["searcher"], "time_metric": "records", "max_time": 80})
    train(max_length=None)
    assert values(cluster, "validation")[-1]["metrics"]["records"] == 80


def test_a_preemption_saves_and_goes_on_later(cluster: Cluster) -> None:
    on(cluster)
    cluster.attempt.stop.write_text("{}")
    train(max_length=Epoch(1))
    assert [e.data["steps_completed"] for e in cluster.journal("checkpoint")] == [1]
    assert len(cluster.journal("ack")) == 1 and cluster.attempt.ack.exists()
    assert values(cluster, "training")[0]["metrics"]["batches"] == 1


def test_a_stop_that_comes_with_the_last_batch_does_not_make_it_unfinished(cluster: Cluster) -> None:
    on(cluster)
    cluster.attempt.stop.write_text("{}")
    train(max_length=Batch(1), validation_period=Batch(1), checkpoint_policy="all")
    assert not cluster.journal("ack")


def test_another_trials_checkpoint_gives_weights_and_begins_anew(cluster: Cluster) -> None:
    on(cluster)
    first, saved = train(max_length=Batch(5))
    cluster.info["trial"]["trial_id"] = 4
    cluster.enter()

    again, _ = train(max_length=Batch(2), latest_checkpoint=saved.saved[-1])
    assert cluster.journal("checkpoint")[-1].data["steps_completed"] == 2
    assert again.model[1].num_batches_tracked == 5 + 2


def test_callbacks_are_called_and_keep_their_state(off_cluster: Path) -> None:
    def telling(context: pytorch.PyTorchTrialContext) -> SmallTrial:
        trial = SmallTrial(context)
        trial.callbacks["tells"] = Tells()
        return trial

    trial, saved = train(telling, max_length=Epoch(2))
    tells: Any = trial.callbacks["tells"]
    order = [name for n, name in enumerate(tells.called) if name not in tells.called[:n]]
    assert [name for name in order if name not in ("checkpoint_end",)] == [
        "trial_startup", "trial_shutdown", "training_start", "training_epoch_start", "training_epoch_end",
        "training_workload_end", "validation_start", "validation_epoch_start", "validation_epoch_end", "validation_end",
        "checkpoint_save_start", "checkpoint_write_end", "checkpoint_upload_end",
    ]  # fmt: skip
    assert tells.count == 2
    trial, _ = train(telling, max_length=Epoch(3), latest_checkpoint=saved.saved[-1])
    assert trial.callbacks["tells"].count == 3  # type: ignore[attr-defined]


def test_reducers_see_every_value_and_are_named_in_errors(off_cluster: Path, caplog: Any) -> None:
    seen: List[Any] = []

    class Reduced(SmallTrial):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            super().__init__(context)
            self.records = context.wrap_reducer(self.total, name="records", for_training=False)
            with pytest.raises(AssertionError, match="already"):
                context.wrap_reducer(self.records)

        @staticmethod
        def total(values: List[int]) -> int:
            seen.append(values)
            return sum(values)

        def evaluate_batch(self, batch: Any) -> Dict[str, Any]:  # type: ignore[override]
            self.records.update(len(batch[0]))
            return super().evaluate_batch(batch, 0)

    metrics: Dict[str, Any] = {}

    def made(context: pytorch.PyTorchTrialContext) -> SmallTrial:
        trial = Reduced(context)
        trial.callbacks["end"] = type(
            "End", (pytorch.PyTorchCallback,), {"on_validation_end": lambda s, m: metrics.update(m)}
        )()
        return trial

    train(made, max_length=Batch(2))
    assert seen == [[8, 8, 8, 6]] and metrics["records"] == 30
    with pytest.raises(ValueError, match="the reducer total"):
        broken = pytorch._reducer._WrappedReducer(pytorch._SimpleReducer(Reduced.total), "x", True, True)
        broken.cross_slot_reduce([["a"]])


def test_a_trial_is_loaded_from_its_checkpoint(off_cluster: Path, tmp_path: Path) -> None:
    trial, saved = train(max_length=Batch(3))
    path = off_cluster / "checkpoints" / saved.saved[-1]
    loaded: Any = pytorch.load_trial_from_checkpoint_path(str(path), trial_class=SmallTrial)
    assert same(weights(loaded), weights(trial))
    assert loaded.context.get_hparams() == HPARAMS
    with pytest.raises(AssertionError, match="no checkpoint of a trial class"):
        pytorch.load_trial_from_checkpoint_path(str(tmp_path))


def test_a_trial_is_loaded_from_a_checkpoint_of_a_release_before_load_data(off_cluster: Path) -> None:
    """Until 0.17.6: the class, hyperparameters and configuration are in what the master said when it was downloaded."""
    trial, saved = train(max_length=Batch(3))
    path = off_cluster / "checkpoints" / saved.saved[-1]
    for file in ("load_data.json", "trial_state.pkl", "code/small_def.py"):
        (path / file).unlink(missing_ok=True)
    (path / "code").mkdir(exist_ok=True)
    (path / "code" / "small_def.py").write_text("from tests.pytorch.small import SmallTrial\n")
    written = {
        "determined_version": "0.14.2",
        "framework": "torch-1.7.1",
        "format": "pickle",
        "steps_completed": 3,
        "experiment_config": {"entrypoint": "small_def:SmallTrial", "description": "old"},
        "hparams": HPARAMS,
    }
    (path / "metadata.json").write_text(json.dumps(written))
    loaded: Any = pytorch.load_trial_from_checkpoint_path(str(path))
    assert same(weights(loaded), weights(trial)) and loaded.context.get_hparams() == HPARAMS


def test_training_goes_on_from_a_checkpoints_path(off_cluster: Path, tmp_path: Path) -> None:
    _, saved = train(max_length=Batch(3))
    moved = (off_cluster / "checkpoints" / saved.saved[-1]).rename(tmp_path / "by hand")
    trial, _ = train(max_length=Batch(5), latest_checkpoint=str(moved))
    assert same(weights(trial), weights(train(max_length=Batch(5))[0]))


def test_what_makes_no_sense_is_refused(off_cluster: Path) -> None:
    class Empty(SmallTrial):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            self.context = context
            self.callbacks = {}

    class Both(SmallTrial):
        def evaluate_full_dataset(self, data_loader: Any) -> Dict[str, Any]:
            return {}

    class Foreign(SmallTrial):
        def build_training_data_loader(self) -> Any:
            return torch.utils.data.DataLoader([1, 2])

    for kind, words in ((Empty, "no model"), (Both, "one of evaluate_batch"), (Foreign, "DataLoader")):
        with pytest.raises((ValueError, RuntimeError), match=words):
            train(kind, max_length=Batch(1))
    for wrong, kind in ((None, ValueError), (Batch([3]), TypeError), (3, TypeError)):
        with pytest.raises(kind):
            train(max_length=wrong)
    with pytest.raises(ValueError, match="checkpoint_policy"):
        train(checkpoint_policy="some")


def test_a_loader_of_ones_own_is_gone_through_again(off_cluster: Path) -> None:
    class Own(SmallTrial):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            super().__init__(context)
            context.experimental.disable_dataset_reproducibility_checks()

        def build_training_data_loader(self) -> Any:
            return super().build_training_data_loader().get_data_loader()

    trial, _ = train(Own, max_length=Epoch(2))
    assert trial.context.current_train_batch() == 25 and trial.context.is_epoch_end()


def test_test_mode_trains_and_validates_one_batch(off_cluster: Path) -> None:
    trial, saved = train(max_length=Epoch(5), test_mode=True)
    assert trial.context.current_train_batch() == 0 and len(saved.saved) == 1
    assert trial.context.is_epoch_start() and not trial.context.is_epoch_end()


@pytest.mark.parametrize(
    ("mode", "frequency", "aggregation", "steps"),
    [("STEP_EVERY_EPOCH", 1, 1, 3), ("STEP_EVERY_EPOCH", 2, 1, 1), ("STEP_EVERY_BATCH", 2, 3, 19)]
    + [("STEP_EVERY_OPTIMIZER_STEP", 2, 3, 6), ("MANUAL_STEP", 1, 1, 0)],
)
def test_schedulers_step_as_they_are_told(
    off_cluster: Path, mode: str, frequency: int, aggregation: int, steps: int
) -> None:
    class Scheduled(SmallTrial):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            super().__init__(context)
            context.lr_schedulers.clear()
            self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1000)
            context.wrap_lr_scheduler(self.scheduler, LRScheduler.StepMode[mode], frequency)

    trial, _ = train(Scheduled, aggregation=aggregation)  # 39 batches in 3 epochs
    assert trial.scheduler.last_epoch == steps


def test_the_context_knows_the_trial(cluster: Cluster) -> None:
    on(cluster)
    with pytorch.init(hparams={"lr": 0.1, "global_batch_size": 9, "nested": {"a": 1}}) as context:
        assert (context.get_per_slot_batch_size(), context.get_global_batch_size()) == (9, 9)
        assert context.get_hparam("nested") == {"a": 1} and context.get_data_config() == {"path": "/d"}
        assert (context.get_trial_id(), context.get_experiment_id(), context.get_trial_seed()) == (3, 1, 7)
        assert torch.initial_seed() == 7 and context.get_initial_batch() == 0
        with pytest.raises(ValueError, match="no hyperparameter 'x'"):
            context.get_hparam("x")
        with pytest.raises(InternalException, match="not begun"):
            context.current_train_batch()
    assert pytorch._trial_context.batch_sizes({"global_batch_size": 9}, 2) == (4, 8)
    with pytest.raises(InvalidExperimentException, match="at least one record"):
        pytorch._trial_context.batch_sizes({"global_batch_size": 1}, 2)


def test_one_batch_of_a_trial_class_is_tried(off_cluster: Path) -> None:
    batches: List[int] = []

    class Counting(SmallTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Dict[str, Any]:
            batches.append(batch_idx)
            assert self.context.get_experiment_config()["name"] == "try"
            return super().train_batch(batch, epoch_idx, batch_idx)

    experimental.test_one_batch(Counting, {"name": "try", "hyperparameters": HPARAMS})
    assert batches == [0]
    with pytest.raises(NotSupportedYet, match="PyTorchTrial"):
        experimental.test_one_batch(dict)


def test_off_the_cluster_there_may_be_no_hyperparameters(off_cluster: Path) -> None:
    with pytorch.init() as context:
        for ask in (context.get_hparams, context.get_global_batch_size, context.get_experiment_config):
            with pytest.raises(ValueError, match=r"init\("):
                ask()


def test_invalid_hyperparameters_end_the_trial_well(cluster: Cluster) -> None:
    on(cluster)

    class Invalid(SmallTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Dict[str, Any]:
            raise det.InvalidHP("too large")

    with pytest.raises(SystemExit) as left:
        train(Invalid)
    assert left.value.code == 0 and cluster.journal("early_exit")


def test_mixed_precision_clips_what_is_unscaled(off_cluster: Path) -> None:
    norms: List[float] = []

    class Mixed(SmallTrial):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            context.experimental.use_amp()
            super().__init__(context)
            with pytest.raises(InvalidExperimentException, match="once"):
                context.wrap_scaler(object())

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Dict[str, Any]:
            output = self.model(batch[0])
            assert output.dtype == torch.float32
            loss = torch.nn.functional.cross_entropy(output, batch[1])
            self.context.backward(loss)
            clip = lambda parameters: norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, 0.5)))  # noqa: E731
            self.context.step_optimizer(self.optimizer, clip_grads=clip)
            return {"loss": loss}

    trial, _ = train(Mixed, max_length=Batch(3))
    assert len(norms) == 3 and type(trial.model).__name__ == "Sequential"


def test_a_validation_changes_no_generator(off_cluster: Path) -> None:
    class Draws(SmallTrial):
        def evaluate_batch(self, batch: Any, batch_idx: int) -> Dict[str, Any]:
            return {"loss": float(torch.rand(())), "correct": 0.0}

    whole, _ = train(Draws, max_length=Batch(20))
    often, _ = train(Draws, max_length=Batch(20), validation_period=Batch(3))
    assert same(weights(whole), weights(often))


def test_a_checkpoint_that_exists_and_is_not_used_is_warned_of(cluster: Cluster, caplog: Any) -> None:
    on(cluster)
    cluster.info["latest_checkpoint"] = "x"
    cluster.enter()
    with caplog.at_level(logging.WARNING):
        train(max_length=Batch(1))
    assert "starts from scratch without it" in caplog.text


def test_torchs_profiler_writes_traces_among_tensorboards_files(off_cluster: Path) -> None:
    paths = []

    def profiled(context: pytorch.PyTorchTrialContext) -> SmallTrial:
        schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
        context.set_profiler(activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule)
        paths.append(context.get_tensorboard_path())
        return SmallTrial(context)

    train(profiled, max_length=Batch(6))
    (trace,) = paths[0].glob("*.pt.trace.json")
    assert {"aten::linear", "ProfilerStep#2"} <= {
        event["name"] for event in json.loads(trace.read_text())["traceEvents"]
    }


def test_invalid_hyperparameters_leave_the_last_state_in_a_checkpoint(off_cluster: Path) -> None:
    class Picky(SmallTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx == 2:
                raise InvalidHP("no")
            return super().train_batch(batch, epoch_idx, batch_idx)

    with pytest.raises(SystemExit) as left:
        train(Picky, max_length=Batch(4))
    assert not left.value.code
    (saved,) = off_cluster.glob("checkpoints/*/metadata.json")
    assert json.loads(saved.read_text())["steps_completed"] == 2


def test_what_a_workload_did_is_told_to_callbacks_by_name(off_cluster: Path) -> None:
    told: List[Any] = []

    class Told(pytorch.PyTorchCallback):
        def on_training_workload_end(self, *, batch_metrics: Any, avg_metrics: Any) -> None:  # type: ignore[override]
            told.append((avg_metrics["batches"], avg_metrics["epochs"], len(batch_metrics)))

    class Tells(SmallTrial):
        def build_callbacks(self) -> Dict[str, pytorch.PyTorchCallback]:
            return {"told": Told()}

    train(Tells, max_length=Batch(3), reporting_period=Batch(2))
    assert told == [(2, 0, 2), (3, 0, 1)]


def test_an_empty_training_set_is_said(off_cluster: Path) -> None:
    class Empty(SmallTrial):
        def build_training_data_loader(self) -> pytorch.DataLoader:
            return pytorch.DataLoader(torch.utils.data.TensorDataset(torch.zeros(0, 4)), batch_size=4)

    with pytest.raises(RuntimeError, match="yields no batch"):
        train(Empty, max_length=Batch(1))


def test_training_goes_on_while_a_copy_of_its_state_is_written(
    off_cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after: Dict[int, Any] = {}
    gate, save = threading.Event(), torch.save

    class Watched(SmallTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            metrics = super().train_batch(batch, epoch_idx, batch_idx)
            after[batch_idx + 1] = weights(self)
            if batch_idx == 1:
                gate.set()
            return metrics

    def held(*arguments: Any) -> None:
        assert gate.wait(LONG_ENOUGH)  # until the training has gone on
        save(*arguments)

    monkeypatch.setattr(torch, "save", held)
    with pytorch.init(hparams=dict(HPARAMS)) as context:
        trainer = pytorch.Trainer(Watched(context), context)
        trainer.fit(max_length=Batch(3), checkpoint_period=Batch(1), checkpoint_policy="none")
    found = {}
    for file in off_cluster.glob("checkpoints/*/state_dict.pth"):
        steps = json.loads((file.parent / "metadata.json").read_text())["steps_completed"]
        found[steps] = torch.load(file, weights_only=False)["models_state_dict"][0]
    assert sorted(found) == [1, 2, 3]
    assert all(same(found[steps], after[steps]) for steps in found)
