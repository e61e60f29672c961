"""A Lightning Trainer with a DeterminedCallback: what it reports and saves, and that a stop changes nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any, Callable, List, Optional, Sequence

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO

import determined as det
from determined.lightning import DeterminedCallback, DeterminedLogger
from dethpc.pytorch import Snapshot
from tests.core.conftest import Cluster
from tests.frameworks import reports, same, saved, steps
from tests.waiting import LONG_ENOUGH

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on workers and loggers

BATCHES = 7  # of an epoch: 50 records in batches of 8


def loader(records: int, shuffle: bool) -> torch.utils.data.DataLoader[Any]:
    x = torch.randn(records, 4, generator=torch.Generator().manual_seed(0))
    data = torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())
    return torch.utils.data.DataLoader(data, batch_size=8, shuffle=shuffle)


class Module(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.05)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)}


class StopAt(pl.Callback):
    """Asks for a stop, as the cluster does, after a number of batches."""

    def __init__(self, cluster: Cluster, batches: Optional[int]) -> None:
        self._stop, self._at = cluster.attempt.stop, batches

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self._at:
            self._stop.write_text('{"reason": "pause", "at": 0}')
            time.sleep(0.25)  # the file is looked at five times a second


def train(
    cluster: Cluster,
    *,
    stop_at: Optional[int] = None,
    seed: int = 1,
    options: Any = None,
    callbacks_too: Sequence[pl.Callback] = (),
    module: Optional[pl.LightningModule] = None,
    after: Callable[[pl.Trainer], object] = lambda trainer: None,
    **arguments: Any,
) -> Any:
    """As a script of a user would, on the cluster; a new attempt each time."""
    cluster.enter()
    cluster.attempt.stop.unlink(missing_ok=True)
    if cluster.master is None:
        cluster.start_master()
    info = det.get_cluster_info()
    assert info is not None
    torch.manual_seed(seed)
    module = module or Module()
    with det.core.init() as core_context:
        callback = DeterminedCallback(core_context, info.latest_checkpoint, info.trial.trial_id, **(options or {}))
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "accelerator": "cpu"}
        trainer = pl.Trainer(
            callbacks=[callback, StopAt(cluster, stop_at), *callbacks_too],
            **{"max_epochs": 3, "log_every_n_steps": 3, **quiet, **arguments},
        )
        trainer.fit(module, loader(50, True), loader(20, False), ckpt_path=callback.restore())
        after(trainer)
    return module


class TermAt(pl.Callback):
    """As a scheduler that signals every process of a job: TERM comes, and with it the request to stop."""

    def __init__(self, cluster: Cluster, batches: int) -> None:
        self._stop, self._at = cluster.attempt.stop, batches

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self._at:
            self._stop.write_text('{"reason": "preempted", "at": 0}')
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.25)


def test_term_does_not_end_the_training_before_its_checkpoint(cluster: Cluster) -> None:
    """Lightning's own handler would end it after the batch, with exit code 0 and without a checkpoint."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        train(cluster, callbacks_too=[TermAt(cluster, 3)])
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
    assert steps(saved(cluster)) == [BATCHES]
    assert cluster.attempt.ack.exists()


def test_a_stop_after_an_epoch_changes_no_weight(cluster: Cluster) -> None:
    whole = train(cluster)
    assert steps(saved(cluster)) == steps(reports(cluster, "validation")) == [7, 14, 21]
    assert steps(reports(cluster, "training")) == [3, 6, 9, 12, 15, 18, 21]
    assert reports(cluster, "validation")[1]["metrics"].keys() == {"val_loss", "batches", "epochs"}
    assert [one["metrics"]["epochs"] for one in reports(cluster, "validation")] == [1, 2, 3]
    assert cluster.journal("progress")[-1].data == {"progress": 1.0}
    before = len(cluster.journal())

    for stop_at in (3, 9):
        part = train(cluster, stop_at=stop_at, min_epochs=3, seed=stop_at if stop_at > 3 else 1)
        assert not same(part, whole)
        cluster.info["latest_checkpoint"] = saved(cluster)[-1]["uuid"]
    assert len(cluster.journal("ack")) == 2
    rest = train(cluster, seed=2)
    assert same(rest, whole)
    events = [event.data for event in cluster.journal()[before:] if event.kind == "metrics"]
    assert steps([one for one in events if one["group"] == "validation"]) == [7, 14, 21]


def test_a_stop_within_an_epoch_leaves_and_goes_on_there(cluster: Cluster) -> None:
    train(cluster, stop_at=10, options={"preempt_period": 1})
    assert steps(saved(cluster)) == [7, 10]
    cluster.info["latest_checkpoint"] = saved(cluster)[-1]["uuid"]
    train(cluster)
    assert steps(saved(cluster)) == [7, 10, 14, 21]


def test_a_stop_when_all_is_done_leaves_it_done(cluster: Cluster) -> None:
    train(cluster, stop_at=10, max_steps=10, options={"preempt_period": 1, "checkpoint_epochs": 0})
    assert not cluster.journal("ack")
    assert steps(saved(cluster)) == [10]


def test_another_trainings_checkpoint_gives_its_weights_alone(cluster: Cluster) -> None:
    trained = train(cluster, max_epochs=1)
    cluster.info["latest_checkpoint"] = saved(cluster)[-1]["uuid"]
    cluster.info["trial"]["trial_id"] = 4
    module = train(cluster, max_epochs=1, limit_train_batches=0)
    assert same(module, trained)
    train(cluster, max_epochs=1)
    assert steps(saved(cluster)) == [7, 7]


def test_test_mode_trains_one_batch(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETHPC_TEST_MODE", "1")
    train(cluster, log_every_n_steps=1)
    assert steps(reports(cluster, "training")) == steps(reports(cluster, "validation")) == steps(saved(cluster)) == [1]


def test_a_logger_alone_goes_by_the_names(cluster: Cluster) -> None:
    cluster.enter()
    with det.core.init() as core_context:
        trainer = pl.Trainer(
            max_epochs=1,
            log_every_n_steps=3,
            logger=DeterminedLogger(core_context),
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            accelerator="cpu",
        )
        trainer.fit(Module(), loader(50, True), loader(20, False))
    assert len(reports(cluster, "training")) == 2
    assert reports(cluster, "validation")[0]["metrics"].keys() == {"val_loss"}


def test_it_works_off_the_cluster(off_cluster: Path) -> None:
    with det.core.init() as core_context:
        callback = DeterminedCallback(core_context, None, "mine")
        trainer = pl.Trainer(max_epochs=1, logger=False, callbacks=[callback], accelerator="cpu")
        trainer.fit(Module(), loader(50, True), ckpt_path=callback.restore())
    assert len(list(off_cluster.glob("checkpoints/*/checkpoint.ckpt"))) == 1


def test_the_training_waits_for_a_copy_alone_and_what_is_saved_is_what_was_copied(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first checkpoint is written when the training has gone on."""
    trained_on, written = threading.Event(), []
    write = TorchCheckpointIO.save_checkpoint

    def late(self: Any, checkpoint: Any, path: Any, **options: Any) -> None:
        assert trained_on.wait(LONG_ENOUGH) and threading.current_thread() is not threading.main_thread()
        written.append(checkpoint["global_step"])
        write(self, checkpoint, path, **options)

    class Goes(pl.Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == BATCHES + 3:
                trained_on.set()

    monkeypatch.setattr(TorchCheckpointIO, "save_checkpoint", late)
    callbacks = pl.Trainer.__init__

    def with_goes(self: Any, *args: Any, **arguments: Any) -> None:
        callbacks(self, *args, **{**arguments, "callbacks": [*arguments["callbacks"], Goes()]})

    monkeypatch.setattr(pl.Trainer, "__init__", with_goes)
    train(cluster, max_epochs=2)
    assert written == [BATCHES, 2 * BATCHES]
    first, _ = saved(cluster)
    kept = torch.load(cluster.storage / first["uuid"] / "checkpoint.ckpt", weights_only=False)
    assert kept["global_step"] == BATCHES


@pytest.mark.parametrize("why", ["no room", "no copy"])
def test_what_cannot_be_copied_is_written_before_the_training_goes_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    def refuses(*_: Any) -> Any:
        raise TypeError("cannot pickle")

    monkeypatch.setattr(Snapshot, *(("has_room", lambda *_: False) if why == "no room" else ("take", refuses)))
    train(cluster, max_epochs=1)
    (one,) = saved(cluster)
    assert torch.load(cluster.storage / one["uuid"] / "checkpoint.ckpt", weights_only=False)["global_step"] == BATCHES


class Judged(Module):
    """Its validations find the second epoch best."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("found", 0.1 if self.current_epoch == 1 else 0.5 + self.current_epoch / 100)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("test_found", 1.0)


class DiesIn(pl.Callback):
    def __init__(self, epoch: int) -> None:
        self._epoch = epoch

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.current_epoch == self._epoch:
            raise KeyError("dies")


def test_the_best_of_other_checkpoint_callbacks_is_there_at_the_end_though_the_training_died_between(
    cluster: Cluster, tmp_path: Path
) -> None:
    def best(folder: str) -> ModelCheckpoint:
        return ModelCheckpoint(tmp_path / folder, monitor="found", save_top_k=1)

    first, second, epochs = best("first"), best("second"), []
    with pytest.raises(KeyError):
        train(cluster, module=Judged(), callbacks_too=[first, DiesIn(3)], max_epochs=4)
    cluster.info["latest_checkpoint"] = saved(cluster)[-1]["uuid"]
    assert not list(tmp_path.glob(".dethpc*"))

    def tests_the_best(trainer: pl.Trainer) -> None:
        path = Path(trainer.checkpoint_callback.best_model_path)  # type: ignore[union-attr]
        assert path.parent == tmp_path / "second" and second.best_model_score == 0.1
        epochs.append(torch.load(path, weights_only=False)["epoch"])
        trainer.test(Judged(), loader(20, False), ckpt_path="best", verbose=False)

    train(cluster, module=Judged(), callbacks_too=[second], after=tests_the_best, max_epochs=4)
    assert epochs == [1]
    assert len(list((tmp_path / "second").iterdir())) == 1, (
        "the one before it was removed as it is without an interruption"
    )


def test_without_another_checkpoint_callback_the_best_is_the_last(cluster: Cluster) -> None:
    files: List[str] = []

    def tests_the_best(trainer: pl.Trainer) -> None:
        trainer.validate(Judged(), loader(20, False), verbose=False)
        trainer.test(Judged(), loader(20, False), ckpt_path="best", verbose=False)
        files.append(trainer.checkpoint_callback.best_model_path)  # type: ignore[union-attr]

    train(cluster, module=Judged(), after=tests_the_best, max_epochs=2)
    assert torch.load(files[0], weights_only=False)["epoch"] == 1
    assert [report["metrics"]["epochs"] for report in reports(cluster, "test")] == [2]
    assert [report["metrics"]["epochs"] for report in reports(cluster, "validation")] == [1, 2, 2]
