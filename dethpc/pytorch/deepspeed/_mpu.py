"""Model-parallel unit: which worker has which part of the model and of the data."""

from __future__ import annotations

import dataclasses
from typing import Any

from dethpc.core import DistributedContext


@dataclasses.dataclass
class ModelParallelUnit:
    """This worker's place. Workers that hold parts of one and the same model share a data-parallel rank.

    ``data_parallel_rank`` of ``data_parallel_world_size``: whose share of the data it trains on. ``should_report_metrics``:
    whether ``train_batch()`` and ``evaluate_batch()`` return metrics here. ``should_build_data_loader``: whether this part of
    the model is given data; elsewhere the methods get None for an iterator.
    """

    data_parallel_rank: int
    data_parallel_world_size: int
    should_report_metrics: bool
    should_build_data_loader: bool


def make_data_parallel_mpu(dist_context: DistributedContext) -> ModelParallelUnit:
    """Every worker has a whole model."""
    return ModelParallelUnit(dist_context.rank, dist_context.size, True, True)


def make_deepspeed_mpu(topology: Any) -> ModelParallelUnit:
    """Of a pipeline engine's grid (``engine.mpu``): its first and its last stage are given data, the last for the labels."""
    stage, stages = topology.get_pipe_parallel_rank(), topology.get_pipe_parallel_world_size()
    return ModelParallelUnit(
        data_parallel_rank=topology.get_data_parallel_rank(),
        data_parallel_world_size=topology.get_data_parallel_world_size(),
        should_report_metrics=True,
        should_build_data_loader=topology.get_slice_parallel_rank() == 0 and stage in (0, stages - 1),
    )
