"""torch_batch_process: each batch once, also over a stop."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest
import torch

from determined.pytorch import experimental
from tests.core.conftest import Cluster

SEEN: List[Any] = []


class Adds(experimental.TorchBatchProcessor):
    stop_after = -1

    def __init__(self, context: experimental.TorchBatchProcessorContext) -> None:
        self.context = context
        self.model = context.prepare_model_for_inference(torch.nn.Dropout(0.5))
        self.total = context.wrap_reducer(lambda values: {"total": sum(values)})
        self.saved: List[int] = []

    def process_batch(self, batch: Any, batch_idx: int) -> None:
        x = self.model(self.context.to_device(batch)[0].float())
        SEEN.append((batch_idx, x.tolist()))
        self.total.update(float(x.sum()))
        with self.context.upload_path() as path:
            (path / f"{batch_idx}.txt").write_text(str(x.tolist()))

    def on_finish(self) -> None:
        SEEN.append("end")


def process(**more: Any) -> None:
    dataset = torch.utils.data.TensorDataset(torch.arange(10))
    experimental.torch_batch_process(Adds, dataset, **{"batch_size": 3, "checkpoint_interval": 1, **more})


def enter(cluster: Cluster, **changes: Any) -> None:
    cluster.info.update(changes)
    cluster.enter()
    SEEN.clear()


def test_a_stop_loses_no_batch_and_repeats_none(cluster: Cluster) -> None:
    enter(cluster)
    cluster.attempt.stop.write_text("{}")
    process()
    assert SEEN == [(0, [0.0, 1.0, 2.0])] and cluster.journal("ack")
    first = cluster.journal("checkpoint")[-1].data
    assert first["steps_completed"] == 1
    cluster.attempt.stop.unlink()
    enter(cluster, latest_checkpoint=first["uuid"])
    process()
    assert SEEN == [(1, [3.0, 4.0, 5.0]), (2, [6.0, 7.0, 8.0]), (3, [9.0]), "end"]
    metrics: Dict[str, Any] = cluster.journal("metrics")[-1].data
    assert metrics["group"] == "validation" and metrics["metrics"]["total"] == sum(range(3, 10))
    files = sorted(path.name for path in cluster.storage.glob(f"{first['metadata']['default_output_uuid']}/rank_0/*"))
    assert files == ["0.txt", "1.txt", "2.txt", "3.txt"]
    assert cluster.journal("progress")[-1].data["progress"] == 1.0


def test_fewer_batches_and_wrong_options(cluster: Cluster) -> None:
    enter(cluster)
    process(max_batches=2)
    assert len(SEEN) == 3
    for wrong in (
        {"dataloader_kwargs": {"shuffle": True}},
        {"checkpoint_interval": 0},
        {"dataloader_kwargs": {"sampler": 1}},
    ):
        with pytest.raises(ValueError):
            process(**wrong)
