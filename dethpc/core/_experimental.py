"""Determined's experimental reports: which checkpoint or model version this task uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Optional

if TYPE_CHECKING:
    from dethpc.client.session import Session


class ExperimentalCoreContext:
    """Without a session there is nobody to tell."""

    def __init__(self, session: Optional[Session] = None, trial_id: int = 0) -> None:
        self._session, self._trial_id = session, trial_id

    def report_task_using_checkpoint(self, checkpoint: Any) -> None:
        """What this trial reports is shown with the metrics of ``checkpoint``. Raises NotFound."""
        self._report(checkpoint.uuid)

    def report_task_using_model_version(self, model_version: Any) -> None:
        """What this trial reports is shown with the metrics of ``model_version``. Raises NotFound."""
        named = {"modelId": model_version.model_id, "modelVersion": model_version.model_version}
        self._report(model_version.checkpoint.uuid, **named)

    def _report(self, uuid: str, **named: Any) -> None:
        if self._session is not None:
            kind = "TRIAL_SOURCE_INFO_TYPE_INFERENCE"
            info: Dict[str, Any] = {"trialId": self._trial_id, "checkpointUuid": uuid, "trialSourceInfoType": kind}
            self._session.post("/api/v1/trial-source-info", json={"trialSourceInfo": {**info, **named}})


class DummyExperimentalCoreContext(ExperimentalCoreContext):
    """Outside the cluster there is nobody to tell."""

    def report_task_using_checkpoint(self, checkpoint: Any) -> None:
        pass

    def report_task_using_model_version(self, model_version: Any) -> None:
        pass
