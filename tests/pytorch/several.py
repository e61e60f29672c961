"""Runs in two workers: trains the small trial in several ways, and writes what came out."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict

import torch
import torch.distributed
from model_def import HPARAMS, SmallTrial, StopAfter, data, same, weights

import determined as det
from determined import pytorch
from determined.core import _reporter
from determined.pytorch._training import due

due.LOOK_EVERY = 0.0  # whether to stop is asked after each batch
_reporter._FLUSH = 0.1  # there is no master to wait for
torch.set_num_threads(1)
BY_HOROVOD = "USE_HOROVOD" in os.environ
if not BY_HOROVOD:
    torch.distributed.init_process_group("gloo")
info = det.get_cluster_info()
out: Dict[str, Any] = {}


class Plain(SmallTrial):
    """Without randomness, and by plain gradient descent: the weights say what the gradients were."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(4, 2))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=1.0))
        self.callbacks = {}
        self.dtypes: set[str] = set()

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(data(32), batch_size=self.context.get_per_slot_batch_size())

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Dict[str, Any]:
        hook = self.model.register_forward_hook(lambda m, i, o: self.dtypes.add(str(o.dtype)))
        inner = getattr(self.model, "module", self.model)
        inside = inner.register_forward_hook(lambda m, i, o: self.dtypes.add(f"inside {o.dtype}"))
        loss = torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        hook.remove(), inside.remove()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss, "rank": float(self.context.distributed.rank)}


def train(kind: type, stop_after: int = 0, latest: Any = None, length: Any = None, **optimizations: Any) -> Any:
    info.trial._config["optimizations"] = optimizations
    with pytorch.init(hparams=HPARAMS) as context:
        trial = kind(context)
        trial.callbacks["saved"] = saved = StopAfter(context)
        if stop_after and context.distributed.rank == 1:  # one worker that asks is enough
            own = trial.train_batch

            def train_batch(batch: Any, epoch_idx: int, batch_idx: int) -> Any:
                context.set_stop_requested(batch_idx + 1 >= stop_after)
                return own(batch, epoch_idx, batch_idx)

            trial.train_batch = train_batch
        reports = []
        context._core.train.report_training_metrics = lambda steps, metrics, batches: reports.append(metrics)
        pytorch.Trainer(trial, context).fit(
            max_length=length or pytorch.Epoch(3), latest_checkpoint=latest, checkpoint_policy="none"
        )
    return trial, saved.saved[-1], reports


def numbers(trial: Any) -> Any:
    return getattr(trial.model, "module", trial.model).weight.detach().flatten().tolist()


for aggregation in () if BY_HOROVOD else (1, 3):
    whole, uuid, _ = train(SmallTrial, aggregation_frequency=aggregation)
    part, uuid, _ = train(SmallTrial, stop_after=20, aggregation_frequency=aggregation)
    rest, _, _ = train(SmallTrial, latest=uuid, aggregation_frequency=aggregation)
    everywhere = [torch.zeros(2) for _ in range(2)]
    mine = torch.tensor([float(same(weights(rest), weights(whole))), float(same(weights(part), weights(whole)))])
    torch.distributed.all_gather(everywhere, mine)
    out[f"resumed {aggregation}"] = [pair.tolist() for pair in everywhere]

one = pytorch.Batch(2)
cases = {
    "plain": {},
    "compressed": {"gradient_compression": True},
    "aggregated": {"aggregation_frequency": 2},
    "summed": {"aggregation_frequency": 2, "average_aggregated_gradients": False},
    "half": {"mixed_precision": "O1"},
    "chief": {"average_training_metrics": False},
    "fused": {"tensor_fusion_threshold": 3},
}
for name, optimizations in cases.items():
    trial, _, reports = train(Plain, length=one, **optimizations)
    out[name] = {
        "weights": numbers(trial),
        "dtypes": sorted(trial.dtypes),
        "metrics": reports[-1] if reports else None,
        "bucket": getattr(trial.model, "bucket_bytes_cap", None),
    }
out["tuned"] = os.environ.get("HOROVOD_AUTOTUNE")
if trial.context.distributed.rank == 0:
    with open(os.environ["OUT"], "w") as file:
        json.dump(out, file)
if not BY_HOROVOD:
    torch.distributed.destroy_process_group()
sys.exit(0)
