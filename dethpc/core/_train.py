"""Reports of the training: metrics, progress, status, metadata."""

from __future__ import annotations

import enum
import itertools
import logging
import operator
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from dethpc.core._distributed import DistributedContext
from dethpc.core._encode import encode_metrics, jsonable, shown
from dethpc.core._tensorboard import TensorboardFiles, TensorboardMode, TensorboardWriter
from dethpc.domain.reports import MOST_METRICS, MOST_STEPS, ReportKind, fault_of
from dethpc.errors import MasterError, NotFound, Refused

if TYPE_CHECKING:
    from dethpc.client.session import Session
    from dethpc.core._reporter import Reports

logger = logging.getLogger("dethpc.core")

_TRAINING, _VALIDATION = "training", "validation"
_LOGGED = 50  # metrics of one report at most


class EarlyExitReason(enum.Enum):
    """``INVALID_HP``: the hyperparameters make no sense; the trial ends and the search goes on."""

    INVALID_HP = "EXITED_REASON_INVALID_HP"
    USER_REQUESTED_STOP = "EXITED_REASON_USER_REQUESTED_STOP"  # seldom needed: just exit


class TrainContext:
    """Reports metrics, progress and status of a trial.

    Any worker may report, and each report counts: what all of them know, the chief (rank 0) alone should report. Reporting
    metrics returns when a journal on disk has them, some tens of microseconds (a validation: when the disk has it), whether the
    master runs or not. Progress, status and metadata of other workers than the chief go to the master soon, and wait in memory
    while that is away.
    """

    _level = logging.DEBUG  # reports of metrics: the log is the user's, and describe and plot show what was reported

    def __init__(
        self,
        session: Session,
        trial_id: int,
        exp_id: int,
        reporter: Reports,
        distributed: DistributedContext,
        tensorboard_mode: TensorboardMode,
        tensorboard: TensorboardFiles,
        writer: Optional[TensorboardWriter] = None,
    ) -> None:
        self._session = session
        self._trial_id = trial_id
        self._exp_id = exp_id
        self._reporter = reporter
        self._distributed = distributed
        self._tensorboard_mode = tensorboard_mode
        self._tensorboard = tensorboard
        self._writer = writer
        self._steps = 0  # of the last report: where in the training other reports belong

    def report_training_metrics(
        self, steps_completed: int, metrics: Dict[str, Any], batch_metrics: Optional[List[Dict[str, Any]]] = None
    ) -> None:
        """Report metrics of group "training". ``batch_metrics``: those of single batches, kept but not drawn.

        Values may be numbers, text, lists or dicts of them, and numpy's or torch's; NaN and infinities are kept. Raises
        TypeError for a value that JSON has no form for; ValueError for a whole number that no float can hold, for steps outside
        0 to 2**63 - 1, and for a report of more than 64 MiB.
        """
        logger.log(
            self._level, "report_training_metrics(steps_completed=%s, metrics=%s)", steps_completed, _Short(metrics)
        )
        self._report_trial_metrics(_TRAINING, steps_completed, metrics, batch_metrics)

    def report_validation_metrics(self, steps_completed: int, metrics: Dict[str, Any]) -> None:
        """Report metrics of group "validation"; the searcher looks for its metric among them.

        Bytes are left out with a warning; None is an error (RuntimeError), for it is a validation that went wrong.
        """
        logger.log(
            self._level, "report_validation_metrics(steps_completed=%s, metrics=%s)", steps_completed, _Short(metrics)
        )
        self._report_trial_metrics(_VALIDATION, steps_completed, metrics)

    def report_metrics(self, group: str, steps_completed: int, metrics: Dict[str, Any]) -> None:
        """Report metrics of any group, a name without "."; "training" and "validation" are the built-in ones."""
        logger.log(
            self._level,
            "report_metrics(group=%s, steps_completed=%s, metrics=%s)",
            group,
            steps_completed,
            _Short(metrics),
        )
        self._report_trial_metrics(group, steps_completed, metrics)

    def report_progress(self, progress: float) -> None:
        """Report how far the training is, from 0 to 1. Raises ValueError outside of that."""
        value = float(progress)
        if not 0 <= value <= 1:
            raise ValueError(f"progress is a number from 0 to 1, not {progress}")
        logger.debug("report_progress(%s)", value)
        self._report(ReportKind.PROGRESS, {"progress": value})

    def report_early_exit(self, reason: EarlyExitReason) -> None:
        """Report why the trial ends early. Raising ``InvalidHP`` inside the core context does it for you."""
        logger.info("report_early_exit(%s)", reason)
        self._report_early_exit(EarlyExitReason(reason).value)

    def _report_early_exit(self, reason: str) -> None:
        """Also of reasons that are not for user code to give: see ``domain.reports``."""
        data = {"reason": reason}
        if self._distributed.rank == 0:
            self._reporter.report(ReportKind.EARLY_EXIT, data, durable=True)
            return
        # A worker finds the hyperparameters invalid on its own; it has no journal, and the chief may not live to tell.
        try:
            self._session.post(f"/api/v1/trials/{self._trial_id}/early_exit", data)
        except (MasterError, NotFound, Refused) as error:
            logger.warning("the early exit of rank %d could not be reported: %s", self._distributed.rank, error)

    def set_status(self, status: str) -> None:
        """Report, in a few words, what the trial is doing."""
        self._report(ReportKind.STATUS, {"status": str(status)})

    def set_metadata(self, metadata: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """Replace the run's metadata, a dict of your own for later analysis. Returns it as it was stored."""
        plain: Dict[str, Any] = jsonable(metadata, "metadata")
        self._report(ReportKind.RUN_METADATA, {"metadata": plain})
        return plain

    def get_metadata(self) -> Optional[Dict[str, Any]]:
        """The run's metadata as the master has it. Raises MasterUnreachable."""
        answer = self._session.get(f"/api/v1/runs/{self._trial_id}/metadata") or {}
        metadata: Optional[Dict[str, Any]] = answer.get("metadata")
        return metadata

    def get_experiment_best_validation(self) -> Optional[float]:
        """The best value of the searcher's metric in the whole experiment, or None before the first. Raises
        MasterUnreachable."""
        try:
            path = f"/api/v1/experiments/{self._exp_id}/searcher/best_searcher_validation_metric"
            return float(self._session.get(path)["metric"])
        except NotFound:
            return None

    def get_tensorboard_path(self) -> Path:
        """Where to write files for TensorBoard: a directory of this worker, on this machine."""
        return self._tensorboard.path

    def upload_tensorboard_files(
        self,
        selector: Callable[[Path], bool] = lambda _: True,
        mangler: Callable[[Path, int], Path] = lambda path, _: path,
    ) -> None:
        """Copy new and changed files below ``get_tensorboard_path()`` to checkpoint storage.

        ``selector`` says of a file whether it is to be copied; ``mangler`` gets its relative path and this worker's rank and
        names the copy. Raises RuntimeError unless in mode MANUAL.
        """
        if self._tensorboard_mode is TensorboardMode.AUTO:
            raise RuntimeError("upload_tensorboard_files() is for core.init(tensorboard_mode=TensorboardMode.MANUAL)")
        self._tensorboard.sync(selector, mangler, self._distributed.rank)

    def _report_trial_metrics(
        self,
        group: str,
        steps_completed: int,
        metrics: Dict[str, Any],
        batch_metrics: Optional[List[Dict[str, Any]]] = None,
    ) -> None:
        event = _metrics_event(group, steps_completed, metrics, batch_metrics)
        self._report(ReportKind.METRICS, event)
        self._steps = event["steps_completed"]
        if self._writer is not None:
            self._writer.report(group, event["steps_completed"], event["metrics"])

    def _report_system_metrics(self, group: str, metrics: Dict[str, Any]) -> None:
        self._report(ReportKind.METRICS, _metrics_event(group, self._steps, metrics, None))

    def _report_alert(self, title: str, description: str, level: str) -> None:
        alert = {"title": title, "description": description, "level": level}
        if self._distributed.rank == 0:
            self._reporter.report(ReportKind.ALERT, alert)
            return
        body = {"data": alert, "experimentId": self._exp_id, "trialId": self._trial_id}
        try:
            self._session.post("/api/v1/webhooks/custom", body)
        except (MasterError, NotFound, Refused) as error:
            logger.warning("the alert of rank %d could not be sent: %s", self._distributed.rank, error)

    def _report(self, kind: ReportKind, data: Dict[str, Any]) -> None:
        if why := fault_of(kind, data):
            raise ValueError(f"this cannot be reported ({kind.value}): {why}")
        self._reporter.report(kind, data)


class DummyTrainContext(TrainContext):
    """Outside the cluster: what is reported is logged, also what a cluster would refuse, with a warning that says so."""

    _level = logging.INFO  # there is nowhere else to see them

    def __init__(self, tensorboard_path: Optional[Path] = None) -> None:
        self._tbd_directory = tensorboard_path
        self._writer = None
        self._steps = 0

    def _report_alert(self, title: str, description: str, level: str) -> None:
        pass

    def _report(self, kind: ReportKind, data: Dict[str, Any]) -> None:
        logger.debug("%s: %s", kind, data)

    def _report_trial_metrics(
        self,
        group: str,
        steps_completed: int,
        metrics: Dict[str, Any],
        batch_metrics: Optional[List[Dict[str, Any]]] = None,
    ) -> None:
        try:
            super()._report_trial_metrics(group, steps_completed, metrics, batch_metrics)
        except (TypeError, ValueError, RuntimeError) as error:
            logger.warning("on a cluster these metrics would be refused: %s", error)

    def report_progress(self, progress: float) -> None:
        try:
            super().report_progress(progress)
        except (TypeError, ValueError) as error:
            logger.warning("on a cluster this would be refused: %s", error)

    def _report_early_exit(self, reason: str) -> None:
        pass

    def get_metadata(self) -> Optional[Dict[str, Any]]:
        return None

    def get_experiment_best_validation(self) -> Optional[float]:
        return None

    def get_tensorboard_path(self) -> Path:
        if self._tbd_directory is None:
            import tempfile

            self._tbd_directory = Path(tempfile.mkdtemp(prefix="tensorboard-"))
        return self._tbd_directory

    def upload_tensorboard_files(
        self,
        selector: Callable[[Path], bool] = lambda _: True,
        mangler: Callable[[Path, int], Path] = lambda path, _: path,
    ) -> None:
        logger.info("upload_tensorboard_files(): outside the cluster, the files stay where they are")


class _Short:
    """Metrics in the log: the first ones, when there are very many."""

    def __init__(self, metrics: Dict[str, Any]) -> None:
        self._metrics = metrics

    def __str__(self) -> str:
        more = len(self._metrics) - _LOGGED if isinstance(self._metrics, dict) else 0
        if more <= 0:
            return str(self._metrics)
        return f"{dict(itertools.islice(self._metrics.items(), _LOGGED))} and {more} more"


def _metrics_event(
    group: str, steps_completed: int, metrics: Dict[str, Any], batch_metrics: Optional[List[Dict[str, Any]]]
) -> Dict[str, Any]:
    if not isinstance(group, str) or not group or "." in group:
        raise ValueError(f"a group of metrics has a name without '.', not {group!r}")
    if group == _VALIDATION:
        metrics = _of_validation(metrics)
    if len(metrics) > MOST_METRICS:
        raise ValueError(
            f"a report has at most {MOST_METRICS} metrics, not {len(metrics)}; put large things into a checkpoint"
        )
    data = {"group": group, "steps_completed": _steps(steps_completed), "metrics": encode_metrics(metrics)}
    if batch_metrics:
        data["batch_metrics"] = [encode_metrics(one) for one in batch_metrics]
    return data


def _steps(steps: Any) -> int:
    try:
        whole = operator.index(steps)
    except TypeError:
        if not isinstance(steps, float) or not steps.is_integer():
            raise TypeError(f"steps_completed is a whole number, not {steps!r}") from None
        whole = int(steps)
    if not 0 <= whole <= MOST_STEPS:
        raise ValueError(f"steps_completed is a whole number from 0 to 2**63 - 1, not {shown(whole)}")
    return whole


def _of_validation(metrics: Dict[str, Any]) -> Dict[str, Any]:
    for name, value in metrics.items():
        if value is None:
            raise RuntimeError(f"validation metric {name!r} is None")
    left_out = [str(name) for name, value in metrics.items() if isinstance(value, (bytes, bytearray))]
    if left_out:
        warnings.warn(f"validation metrics that are bytes are not reported: {', '.join(left_out)}", stacklevel=5)
    return {name: value for name, value in metrics.items() if str(name) not in left_out}
