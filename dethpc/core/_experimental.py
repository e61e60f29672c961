"""Determined's experimental reports: which checkpoint or model version this task uses."""

from __future__ import annotations

from typing import Any

from dethpc.errors import NotSupportedYet


class ExperimentalCoreContext:
    """Refuses: the model registry comes in a later release."""

    def report_task_using_checkpoint(self, checkpoint: Any) -> None:
        """Raises NotSupportedYet."""
        raise NotSupportedYet("report_task_using_checkpoint() is not supported yet")

    def report_task_using_model_version(self, model_version: Any) -> None:
        """Raises NotSupportedYet."""
        raise NotSupportedYet("report_task_using_model_version() is not supported yet")


class DummyExperimentalCoreContext(ExperimentalCoreContext):
    """Outside the cluster there is nobody to tell."""

    def report_task_using_checkpoint(self, checkpoint: Any) -> None:
        pass

    def report_task_using_model_version(self, model_version: Any) -> None:
        pass
