"""The Core API: metrics, checkpoints, preemption and coordination for training code of any shape.

::

    with core.init(distributed=...) as core_context:
        core_context.train.report_training_metrics(steps_completed=100, metrics={"loss": 0.1})

Each name is loaded when it is first used. ``core.init()`` loads what a context may need: saving and stopping import nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dethpc.core._on_demand import on_demand

if TYPE_CHECKING:
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

# The same once more, for the interpreter: a test compares them.
__getattr__, __dir__ = on_demand(
    __name__,
    {
        "_checkpoint": ("CheckpointContext", "DummyCheckpointContext"),
        "_context": ("Context", "_dummy_init", "_get_storage_manager", "init"),
        "_distributed": ("DistributedContext", "DummyDistributedContext", "_run_on_rank_0_and_broadcast"),
        "_experimental": ("DummyExperimentalCoreContext", "ExperimentalCoreContext"),
        "_preempt": ("DummyPreemptContext", "PreemptContext", "PreemptMode", "_PreemptionWatcher"),
        "_profiler": ("DummyProfilerContext", "ProfilerContext"),
        "_restore": ("DownloadMode",),
        "_searcher": (
            "DummySearcherContext",
            "DummySearcherOperation",
            "SearcherContext",
            "SearcherContextMissing",
            "SearcherMode",
            "SearcherOperation",
            "Unit",
            "_parse_searcher_max_length",
            "_parse_searcher_units",
        ),
        "_tensorboard": ("TensorboardMode",),
        "_train": ("DummyTrainContext", "EarlyExitReason", "TrainContext"),
    },
)
