"""Runs in two workers: each way to share a model, trained whole, stopped within an epoch, and continued."""

from __future__ import annotations

import atexit
import json
import os
from typing import Any, Dict

import torch
import torch.distributed
from model_def import PipelineTrial, SmallTrial, hparams, same, train, weights

import determined as det
from determined.core import _reporter
from determined.pytorch._training import due
from determined.pytorch.deepspeed import DeepSpeedTrialContext

due.LOOK_EVERY = 0.0  # whether to stop is asked after each batch
_reporter._FLUSH = 0.1  # there is no master to wait for
torch.set_num_threads(1)
atexit.register(lambda: print("left", not torch.distributed.is_initialized(), flush=True))
out: Dict[str, Any] = {}
reports: list[Any] = []
checkpoints = det.get_cluster_info()._checkpoint_storage["host_path"]  # type: ignore[union-attr,index]


def rank(context: DeepSpeedTrialContext) -> int:
    context._core.train.report_training_metrics = lambda steps, metrics, batches: reports.append(metrics)  # type: ignore[method-assign]
    return int(context.distributed.rank)


class Counts(SmallTrial):
    """Has a metric that says which slots it came from."""

    def __init__(self, context: DeepSpeedTrialContext) -> None:
        super().__init__(context)
        self.rank = rank(context)
        self.seen = context.wrap_reducer(sum, name="records")

    def train_batch(self, dataloader_iter: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.seen.update(self.context.get_train_micro_batch_size_per_gpu())
        return {**super().train_batch(dataloader_iter, epoch_idx, batch_idx), "rank": float(self.rank)}


for name, kind, stage in [
    ("zero 1", Counts, 1),
    ("zero 2", SmallTrial, 2),
    ("zero 3", SmallTrial, 3),
    ("pipeline", PipelineTrial, 1),
]:
    whole, _ = train(kind, hparams=hparams(stage), seed=99)
    part, saved = train(kind, hparams=hparams(stage), seed=99, stop_after=4)
    rest, _ = train(kind, hparams=hparams(stage), seed=3, latest_checkpoint=saved[-1])
    context = whole.context
    mine = {
        "resumed": [same(weights(rest), weights(whole)), same(weights(part), weights(whole))],
        "weights": [value.tolist() for value in weights(whole)],
        "mpu": vars(context._mpu),
        "epoch": [context._epoch_len, context.current_train_batch()],
    }
    told: list[Any] = [None, None]
    torch.distributed.all_gather_object(told, mine)
    if context.distributed.rank == 0:
        files = sorted(os.listdir(os.path.join(checkpoints, saved[-1])))
        files += sorted(os.listdir(os.path.join(checkpoints, saved[-1], "model0")))
        out[name] = {"slots": told, "files": files, "report": reports[0] if reports else None}
    reports.clear()
if out:
    with open(os.environ["OUT"], "w") as file:
        json.dump(out, file, default=float)
