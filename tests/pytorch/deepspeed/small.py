"""Trials whose weights depend on everything that must come back after a stop: shuffles, dropout, schedulers, sharded state."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

import deepspeed
import torch
from torch import nn

from determined import pytorch
from determined.pytorch import deepspeed as det_ds

CONFIG: Dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "optimizer": {"type": "Adam", "params": {"lr": 0.05, "torch_adam": True}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.05, "warmup_num_steps": 12}},
    "zero_optimization": {"stage": 0},
}
RECORDS = 100  # on one slot 25 micro-batches: 12 batches in an epoch, and one micro-batch left for the next


def data(records: int) -> torch.utils.data.TensorDataset:
    x = torch.randn(records, 4, generator=torch.Generator().manual_seed(1))
    return torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())


def layers() -> List[nn.Module]:
    return [nn.Linear(4, 16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 2)]


def stop_here(batch_idx: int, rank: int) -> None:
    if os.environ.get("STOP_AT") == str(batch_idx) and rank == 0:
        Path(os.environ["DETHPC_INFO"]).with_name("stop.json").write_text('{"reason": "pause", "at": 0}')
        time.sleep(0.25)  # the file is looked at five times a second


class SmallTrial(det_ds.DeepSpeedTrial):
    def __init__(self, context: det_ds.DeepSpeedTrialContext) -> None:
        self.context = context
        self.engine = context.wrap_model_engine(self.make())
        self.callbacks: Dict[str, pytorch.PyTorchCallback] = {}

    def make(self) -> Any:
        config = det_ds.get_ds_config_from_hparams(self.context.get_hparams())
        model = nn.Sequential(*layers())
        return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]

    def build_training_data_loader(self) -> pytorch.DataLoader:
        size = self.context.get_train_micro_batch_size_per_gpu()
        return pytorch.DataLoader(data(RECORDS), batch_size=size, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(data(40), batch_size=self.context.get_train_micro_batch_size_per_gpu())

    def train_batch(self, dataloader_iter: Any, epoch_idx: int, batch_idx: int) -> Any:
        stop_here(batch_idx, self.context.distributed.rank)
        x, y = self.context.to_device(next(dataloader_iter))
        loss = nn.functional.cross_entropy(self.engine(x), y)
        self.engine.backward(loss)
        self.engine.step()
        return {"loss": loss, "lr": self.engine.get_lr()[0]}

    def evaluate_batch(self, dataloader_iter: Any, batch_idx: int) -> Dict[str, Any]:
        x, y = self.context.to_device(next(dataloader_iter))
        output = self.engine(x)
        correct = (output.argmax(1) == y).float().sum()
        return {"loss": nn.functional.cross_entropy(output, y), "correct": correct}

    def evaluation_reducer(self) -> Dict[str, pytorch.Reducer]:
        return {"loss": pytorch.Reducer.AVG, "correct": pytorch.Reducer.SUM}

    def build_callbacks(self) -> Dict[str, pytorch.PyTorchCallback]:
        return self.callbacks


class PipelineTrial(SmallTrial):
    """Half of the layers on each slot."""

    def make(self) -> Any:
        stages = self.context.distributed.size
        model = deepspeed.pipe.PipelineModule(
            layers=layers(), loss_fn=nn.CrossEntropyLoss(), num_stages=stages, partition_method="uniform"
        )
        config = det_ds.get_ds_config_from_hparams(self.context.get_hparams())
        return deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config)[0]

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(data(RECORDS), batch_size=4, shuffle=True, drop_last=True)

    def train_batch(self, dataloader_iter: Any, epoch_idx: int, batch_idx: int) -> Any:
        stop_here(batch_idx, self.context.distributed.rank)
        return {"loss": self.engine.train_batch(dataloader_iter)}

    def evaluate_batch(self, dataloader_iter: Any, batch_idx: int) -> Dict[str, Any]:
        return {"loss": self.engine.eval_batch(dataloader_iter)}

    def evaluation_reducer(self) -> Any:
        return pytorch.Reducer.AVG


class Saves(pytorch.PyTorchCallback):
    def __init__(self) -> None:
        self.saved: List[str] = []

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        self.saved.append(uuid)


def hparams(stage: int = 0, **overwrites: Any) -> Dict[str, Any]:
    return {
        "deepspeed_config": CONFIG,
        "overwrite_deepspeed_args": {"zero_optimization": {"stage": stage}, **overwrites},
    }


def weights(trial: SmallTrial) -> List[torch.Tensor]:
    """Of this slot's part of the model, put together where they are sharded."""
    parameters = list(trial.engine.module.parameters())
    with deepspeed.zero.GatheredParameters(parameters, enabled=hasattr(parameters[0], "ds_id")):
        return [parameter.detach().clone() for parameter in parameters]


def same(one: List[torch.Tensor], other: List[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other))


def train(
    kind: Any = SmallTrial,
    *,
    stop_after: Optional[int] = None,
    told: bool = True,
    hparams: Dict[str, Any],
    seed: int = 5,
    noise: int = 0,
    **fit: Any,
) -> tuple[Any, List[str]]:
    """Train, outside the cluster unless the caller has set one up; the trial, and what was saved. ``noise``: random numbers that
    the process has drawn before. ``told``: a callback hears of each checkpoint, so that the training waits for it."""
    torch.manual_seed(seed)
    with det_ds.init(hparams=hparams) as context:
        torch.rand(noise)
        trial = kind(context)
        saves = Saves()
        if told:
            trial.callbacks["saves"] = saves
        if stop_after is not None:
            own = trial.train_batch

            def train_batch(batches: Any, epoch_idx: int, batch_idx: int) -> Any:
                context.set_stop_requested(batch_idx + 1 >= stop_after)
                return own(batches, epoch_idx, batch_idx)

            trial.train_batch = train_batch
        det_ds.Trainer(trial, context).fit(
            **{"max_length": pytorch.Epoch(2), "checkpoint_policy": "none", **fit}  # type: ignore[arg-type]
        )
    return trial, saves.saved
