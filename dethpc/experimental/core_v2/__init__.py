"""The Core API for scripts that run anywhere.

::

    from determined.experimental import core_v2

    config = core_v2.Config(name="mine", external_experiment_id="mine", external_trial_id="1")
    with core_v2.init_context(config=config) as context:
        context.train.report_training_metrics(steps_completed=1, metrics={"loss": 0.5})

After ``core_v2.init(config=...)`` the parts of the context are names of this package.
"""

from __future__ import annotations

from typing import Optional

from dethpc.core import (
    CheckpointContext,
    DistributedContext,
    PreemptContext,
    PreemptMode,
    ProfilerContext,
    SearcherContext,
    TensorboardMode,
    TrainContext,
)
from dethpc.core._info import ClusterInfo
from dethpc.experimental.core_v2._core_v2 import (
    Config,
    DefaultConfig,
    UnmanagedConfig,
    close,
    init,
    init_context,
    url_reverse_webui_exp_view,
)

__all__ = [
    "Config",
    "DefaultConfig",
    "DistributedContext",
    "PreemptMode",
    "TensorboardMode",
    "UnmanagedConfig",
    "checkpoint",
    "close",
    "distributed",
    "info",
    "init",
    "init_context",
    "preempt",
    "profiler",
    "searcher",
    "train",
    "url_reverse_webui_exp_view",
]

train: Optional[TrainContext] = None
distributed: Optional[DistributedContext] = None
preempt: Optional[PreemptContext] = None
checkpoint: Optional[CheckpointContext] = None
searcher: Optional[SearcherContext] = None
profiler: Optional[ProfilerContext] = None
info: Optional[ClusterInfo] = None
