"""``transformers.Trainer`` with a DetCallback: what it reports and uploads, and that a stop changes nothing."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

import determined as det
from determined.transformers import DetCallback
from dethpc.storage.files import FileStore
from tests.core.conftest import Cluster
from tests.frameworks import reports, same, saved, steps
from tests.waiting import wait_until

STEPS = 7  # of an epoch: 50 records in batches of 8


class Tiny(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Dict[str, torch.Tensor]:
        scores = self.layers(x)
        return {"loss": torch.nn.functional.cross_entropy(scores, labels), "logits": scores}


def data(records: int) -> List[Dict[str, torch.Tensor]]:
    x = torch.randn(records, 4, generator=torch.Generator().manual_seed(0))
    return [{"x": row, "labels": (row.sum() > 0).long()} for row in x]


class StopAt(TrainerCallback):
    """Asks for a stop, as the cluster does, after a step."""

    def __init__(self, cluster: Cluster, step: Optional[int]) -> None:
        self._stop, self._at = cluster.attempt.stop, step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self._at:
            self._stop.write_text('{"reason": "pause", "at": 0}')
            time.sleep(0.25)  # the file is looked at five times a second


def train(
    cluster: Cluster,
    *,
    stop_at: Optional[int] = None,
    seed: int = 1,
    options: Any = None,
    made: Any = Trainer,
    after: Any = lambda trainer: None,
    evaluated: Any = None,
    **arguments: Any,
) -> Tiny:
    """As a script of a user would, on the cluster; a new attempt, on another node, each time."""
    cluster.enter()
    cluster.attempt.stop.unlink(missing_ok=True)
    if cluster.master is None:
        cluster.start_master()
    torch.manual_seed(seed)
    folder = cluster.root / f"node-{time.monotonic_ns()}"
    defaults: Dict[str, Any] = {
        "num_train_epochs": 3,
        "logging_steps": 2,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
    }
    args = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=8,
        learning_rate=0.05,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        **{**defaults, **arguments},
    )
    model = Tiny()
    with det.core.init() as core_context:
        callbacks = [StopAt(cluster, stop_at), DetCallback(core_context, args, **(options or {}))]
        trainer = made(model, args, train_dataset=data(50), eval_dataset=evaluated or data(20), callbacks=callbacks)
        trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        after(trainer)
    return model


@pytest.fixture
def searched(cluster: Cluster) -> Cluster:
    cluster.info["trial"]["config"]["searcher"] = {"name": "single", "metric": "eval_loss"}
    return cluster


@pytest.mark.parametrize("stop_at", [7, 10])
def test_a_stop_after_any_step_changes_no_weight(searched: Cluster, stop_at: int) -> None:
    whole = train(searched)
    assert steps(saved(searched)) == [7, 14, 21]
    assert steps(reports(searched, "validation")) == [7, 14, 21]
    assert steps(reports(searched, "training")) == [*range(2, 21, 2), 21]
    first = reports(searched, "training")[0]["metrics"]
    assert {"loss", "learning_rate", "batches", "epochs"} <= first.keys() and "epoch" not in first
    assert not [name for name in reports(searched, "validation")[0]["metrics"] if name.endswith("_per_second")]
    assert searched.journal("progress")[-1].data == {"progress": 1.0}

    before = len(searched.journal())
    train(searched, stop_at=stop_at)
    assert searched.journal("ack")
    part = saved(searched)[-1]
    assert part["metadata"] == {"steps_completed": stop_at, "trial_id": 3}
    assert f"checkpoint-{stop_at}/optimizer.pt" in part["resources"]
    searched.info["latest_checkpoint"] = part["uuid"]
    rest = train(searched, seed=2)
    assert same(rest, whole)
    events = searched.journal()[before:]
    metrics = [e.data for e in events if e.kind == "metrics" and e.data["group"] == "validation"]
    assert steps(metrics) == [7, 14, 21]


def test_a_checkpoint_is_stored_whole_though_the_trainer_has_deleted_its_own(
    searched: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = FileStore.add

    def late(store: FileStore, uuid: str, source: Any, paths: Any = None) -> Any:
        if "checkpoint-1/trainer_state.json" in paths:
            wait_until(lambda: not list(searched.root.glob("node-*/checkpoint-1")))
        return add(store, uuid, source, paths)

    monkeypatch.setattr(FileStore, "add", late)
    train(searched, max_steps=2, save_strategy="steps", save_steps=1, save_total_limit=1, eval_strategy="no")
    for step, one in enumerate(saved(searched), 1):
        assert {f"checkpoint-{step}/trainer_state.json", f"checkpoint-{step}/optimizer.pt"} <= one["resources"].keys()
    assert not list(searched.root.glob("node-*/.dethpc*"))


def test_without_evaluations_and_saves_it_ends_with_both(searched: Cluster) -> None:
    asked = {"eval_strategy": "no", "do_eval": True, "save_strategy": "no", "max_steps": 5}
    train(searched, stop_at=5, options={"filter_metrics": ["learning"], "user_data": {"who": "me"}}, **asked)
    assert not searched.journal("ack")  # the stop came when all was done
    assert steps(reports(searched, "validation")) == steps(saved(searched)) == [5]
    assert reports(searched, "validation")[0]["metrics"].keys() == {"eval_loss", "batches", "epochs"}
    assert reports(searched, "training")[0]["metrics"].keys() == {"learning_rate", "batches", "epochs"}
    data = searched.storage / saved(searched)[0]["uuid"] / "checkpoint-5" / "my_data.json"
    assert json.loads(data.read_text()) == {"who": "me"}


@pytest.mark.parametrize(
    ("searcher", "arguments", "message"),
    [
        ({"max_length": {"batches": 9}}, {"max_steps": 10}, r"10 batches \(--max_steps\).*max_length says 9 batches"),
        ({"max_length": {"batches": 9}}, {}, "3 epochs .*says 9 batches"),
        ({"max_length": 9}, {}, "without a unit"),
        ({"time_metric": "epochs", "max_time": 4}, {}, "max_time says 4 epochs: make them the same$"),
        ({"metric": "eval_accuracy"}, {"max_steps": 2}, "eval_accuracy, the searcher's metric, is not among"),
        ({"max_length": {"epochs": 3}}, {"max_steps": -1, "save_strategy": "no"}, None),
        ({"time_metric": "batches", "max_time": 2}, {"max_steps": 2}, None),
    ],
)
def test_the_search_and_the_trainer_must_agree(
    searched: Cluster, searcher: Dict[str, Any], arguments: Dict[str, Any], message: Optional[str]
) -> None:
    searched.info["trial"]["config"]["searcher"].update(searcher)
    if message is None:
        train(searched, **arguments)
        return
    with pytest.raises(ValueError, match=message):
        train(searched, **arguments)
    exits = [event.data["reason"] for event in searched.journal("early_exit")]
    assert bool(exits) == ("metric" in searcher), "an evaluation would lack it again"


def test_test_mode_trains_one_step(searched: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETHPC_TEST_MODE", "1")
    searched.info["trial"]["config"]["searcher"]["max_length"] = {"batches": 1}
    train(searched)
    assert steps(reports(searched, "validation")) == steps(saved(searched)) == [1]
    searched.info["latest_checkpoint"] = saved(searched)[-1]["uuid"]
    train(searched)
    assert steps(saved(searched)) == [1, 2]


def test_it_works_off_the_cluster(off_cluster: Path, tmp_path: Path) -> None:
    args = TrainingArguments(output_dir=str(tmp_path / "out"), max_steps=2, report_to=[], use_cpu=True)
    with det.core.init() as core_context:
        Trainer(Tiny(), args, train_dataset=data(20), callbacks=[DetCallback(core_context, args)]).train()
    assert len(list(off_cluster.glob("checkpoints/*/checkpoint-2/model.safetensors"))) == 1


EVERY_TWO = {
    "max_steps": 8,
    "logging_steps": 2,
    "eval_strategy": "steps",
    "eval_steps": 2,
    "save_strategy": "steps",
    "save_steps": 2,
}


def test_several_evaluation_datasets_are_one_report_of_each_step(searched: Cluster) -> None:
    searched.info["trial"]["config"]["searcher"]["metric"] = "eval_b_loss"
    train(searched, evaluated={"a": data(10), "b": data(20)}, **EVERY_TWO)
    found = reports(searched, "validation")
    assert steps(found) == [2, 4, 6, 8]
    for report in found:
        assert report["metrics"].keys() == {"eval_a_loss", "eval_b_loss", "batches", "epochs"}


class LogsItself(Trainer):
    def compute_loss(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        loss = super().compute_loss(model, inputs, *args, **options)
        if model.training:
            self.log({"twice": 2 * float(loss)})
        return loss


@pytest.mark.parametrize("logging_steps", [1, 4])
def test_what_the_model_logs_itself_is_in_the_report_of_its_step(searched: Cluster, logging_steps: int) -> None:
    train(searched, made=LogsItself, **{**EVERY_TWO, "logging_steps": logging_steps})
    found = [report for report in reports(searched, "training") if "twice" in report["metrics"]]
    assert steps(found) == [*range(1, 9)]
    with_loss = [report["metrics"] for report in found if "loss" in report["metrics"]]
    assert [metrics["batches"] for metrics in with_loss] == [*range(logging_steps, 9, logging_steps)]
    if logging_steps == 1:
        assert all(abs(metrics["twice"] - 2 * metrics["loss"]) < 1e-3 for metrics in with_loss)


class Judged(Trainer):
    """Its evaluations find step 4 best."""

    def evaluation_loop(self, *args: Any, **options: Any) -> Any:
        output = super().evaluation_loop(*args, **options)
        output.metrics["eval_found"] = 0.1 if self.state.global_step == 4 else 0.5 + self.state.global_step / 100
        return output


class Dies(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 7:
            raise KeyboardInterrupt


@pytest.mark.parametrize("kept", [1, 3])
def test_the_best_model_is_loaded_at_the_end_though_the_training_died_between(searched: Cluster, kept: int) -> None:
    best = {"load_best_model_at_end": True, "metric_for_best_model": "eval_found", "greater_is_better": False}
    asked = {**EVERY_TWO, **best, "save_total_limit": kept, "made": Judged}
    whole = train(searched, **asked)

    def dies(*args: Any, callbacks: Any, **options: Any) -> Trainer:
        return Judged(*args, callbacks=[*callbacks, Dies()], **options)

    with pytest.raises(KeyboardInterrupt):
        train(searched, **{**asked, "made": dies})
    latest = saved(searched)[-1]
    assert latest["metadata"]["steps_completed"] == 6
    files = latest["resources"]
    assert "checkpoint-4/model.safetensors" in files and "checkpoint-4/optimizer.pt" not in files
    searched.info["latest_checkpoint"] = latest["uuid"]
    ended: List[Trainer] = []
    rest = train(searched, after=ended.append, **asked)
    assert same(rest, whole)
    state = ended[0].state
    assert state.best_metric == 0.1 and Path(str(state.best_model_checkpoint)).is_dir()


def test_an_evaluation_after_the_training_adds_metrics_and_replaces_none(searched: Cluster) -> None:
    def evaluates(trainer: Trainer) -> None:
        for parameter in trainer.model.parameters():
            parameter.data.zero_()
        trainer.evaluate()
        trainer.evaluate(data(10), metric_key_prefix="ood")

    train(searched, after=evaluates, **EVERY_TWO)
    of_the_step, later = [r["metrics"] for r in reports(searched, "validation") if r["steps_completed"] == 8]
    assert of_the_step.keys() == {"eval_loss", "batches", "epochs"} and later.keys() == {
        "ood_loss",
        "batches",
        "epochs",
    }
