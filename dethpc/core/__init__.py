"""The Core API: metrics, checkpoints, preemption and coordination for training code of any shape.

::

    with core.init(distributed=...) as core_context:
        core_context.train.report_training_metrics(steps_completed=100, metrics={"loss": 0.1})
"""

from __future__ import annotations

from dethpc.core._checkpoint import CheckpointContext, DummyCheckpointContext
from dethpc.core._context import Context, _dummy_init, _get_storage_manager, init
from dethpc.core._distributed import (
    DistributedContext,
    DummyDistributedContext,
    _run_on_rank_0_and_broadcast,
)
from dethpc.core._experimental import DummyExperimentalCoreContext, ExperimentalCoreContext
from dethpc.core._preempt import DummyPreemptContext, PreemptContext, PreemptMode, _PreemptionWatcher
from dethpc.core._profiler import DummyProfilerContext, ProfilerContext
from dethpc.core._restore import DownloadMode
from dethpc.core._searcher import (
    DummySearcherContext,
    DummySearcherOperation,
    SearcherContext,
    SearcherContextMissing,
    SearcherMode,
    SearcherOperation,
    Unit,
    _parse_searcher_max_length,
    _parse_searcher_units,
)
from dethpc.core._tensorboard import TensorboardMode
from dethpc.core._train import DummyTrainContext, EarlyExitReason, TrainContext

__all__ = [
    "CheckpointContext",
    "Context",
    "DistributedContext",
    "DownloadMode",
    "DummyCheckpointContext",
    "DummyDistributedContext",
    "DummyExperimentalCoreContext",
    "DummyPreemptContext",
    "DummyProfilerContext",
    "DummySearcherContext",
    "DummySearcherOperation",
    "DummyTrainContext",
    "EarlyExitReason",
    "ExperimentalCoreContext",
    "PreemptContext",
    "PreemptMode",
    "ProfilerContext",
    "SearcherContext",
    "SearcherContextMissing",
    "SearcherMode",
    "SearcherOperation",
    "TensorboardMode",
    "TrainContext",
    "Unit",
    "_PreemptionWatcher",
    "_dummy_init",
    "_get_storage_manager",
    "_parse_searcher_max_length",
    "_parse_searcher_units",
    "_run_on_rank_0_and_broadcast",
    "init",
]
