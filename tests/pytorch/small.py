"""A trial whose weights depend on everything that must come back after a stop: shuffles, dropout, schedulers, gradients."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, Callable, Dict, Optional

import torch
from torch import nn

from determined import pytorch

HPARAMS = {"lr": 0.05, "global_batch_size": 8}
RECORDS = 100  # 13 batches of 8, the last of 4


def data(records: int) -> torch.utils.data.TensorDataset:
    x = torch.randn(records, 4, generator=torch.Generator().manual_seed(1))
    return torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())


def ask_to_stop() -> None:
    Path(os.environ["DETHPC_INFO"]).with_name("stop.json").write_text('{"reason": "pause", "at": 0}')
    time.sleep(0.25)  # the file is looked at five times a second


class InCheckpoint(pytorch.PyTorchCallback):
    """The worker is asked to stop, or killed, while a checkpoint is being written."""

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        if os.environ["IN_CHECKPOINT"] == "stop":
            ask_to_stop()
        else:
            os.kill(os.getpid(), signal.SIGKILL)


class SmallTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 2))
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=context.get_hparam("lr")))
        self.scheduler = context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9), pytorch.LRScheduler.StepMode.STEP_EVERY_EPOCH
        )
        self.callbacks: Dict[str, pytorch.PyTorchCallback] = {}
        if os.environ.get("IN_CHECKPOINT"):
            self.callbacks["in"] = InCheckpoint()

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(data(RECORDS), batch_size=self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(data(30), batch_size=self.context.get_per_slot_batch_size())

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Dict[str, Any]:
        if os.environ.get("STOP_AT") == str(batch_idx) and self.context.distributed.rank == 0:
            ask_to_stop()
        x, y = batch
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss, "lr": self.scheduler.get_last_lr()[0]}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> Dict[str, Any]:
        x, y = batch
        output = self.model(x)
        loss = nn.functional.cross_entropy(output, y)
        return {"loss": loss, "correct": (output.argmax(1) == y).float().sum()}

    def evaluation_reducer(self) -> Dict[str, pytorch.Reducer]:
        return {"loss": pytorch.Reducer.AVG, "correct": pytorch.Reducer.SUM}

    def build_callbacks(self) -> Dict[str, pytorch.PyTorchCallback]:
        return self.callbacks


class StopAfter(pytorch.PyTorchCallback):
    """Asks for a stop after ``batches`` batches in all, and remembers checkpoints."""

    def __init__(self, context: pytorch.PyTorchTrialContext, batches: Optional[int] = None) -> None:
        self.context, self.batches = context, batches
        self.saved: list[str] = []

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        self.saved.append(uuid)


def weights(trial: SmallTrial) -> Dict[str, torch.Tensor]:
    inner = getattr(trial.model, "module", trial.model)
    return {name: value.clone() for name, value in inner.state_dict().items()}


def same(one: Dict[str, torch.Tensor], other: Dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def train(
    make: Callable[[pytorch.PyTorchTrialContext], SmallTrial] = SmallTrial,
    *,
    stop_after: Optional[int] = None,
    aggregation: int = 1,
    hparams: Dict[str, Any] = HPARAMS,
    seed: int = 5,
    **fit: Any,
) -> tuple[SmallTrial, StopAfter]:
    """Train, outside the cluster unless the caller has set one up; the trial, and what was saved."""
    torch.manual_seed(seed)
    with pytorch.init(hparams=dict(hparams), aggregation_frequency=aggregation) as context:
        trial = make(context)
        stop = StopAfter(context, stop_after)
        trial.callbacks["stop"] = stop
        if stop_after is not None:
            own = trial.train_batch

            def train_batch(batch: Any, epoch_idx: int, batch_idx: int) -> Any:
                metrics = own(batch, epoch_idx, batch_idx)
                context.set_stop_requested(batch_idx + 1 >= stop_after)
                return metrics

            trial.train_batch = train_batch  # type: ignore[method-assign]
        pytorch.Trainer(trial, context).fit(**{"max_length": pytorch.Epoch(3), "checkpoint_policy": "all", **fit})
    return trial, stop
