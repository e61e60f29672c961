"""Sends reports to the master's REST API, in order, from a thread, where there is no journal of the attempt."""

from __future__ import annotations

import logging
import queue
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Tuple

from dethpc.client.session import Session
from dethpc.domain.reports import ReportKind
from dethpc.errors import DethpcError, MasterUnreachable, NotTheMaster, Unauthorized
from dethpc.rundir.journal import JournalWriter

logger = logging.getLogger("dethpc.core")

_HEARTBEAT = 60.0  # seconds; the master waits for several signs of life
_PATIENCE = 60.0  # seconds that closing waits for a master that does not answer
_MOST_WAITING = 10_000  # reports; a script that is faster than the master for so long has to wait


class RestReporter:
    """Does what the journal's reporter does for a script outside the cluster.

    A report is taken at once and sent soon; while the master is away it waits. What the master refuses is lost, and logged.
    """

    def __init__(self, session: Session, trial_id: int, run_number: int, task_id: str) -> None:
        self._session, self._trial_id = session, trial_id
        self._run_number, self._task_id = run_number, task_id
        self._reports: queue.Queue[Optional[Tuple[ReportKind, Dict[str, Any]]]] = queue.Queue(_MOST_WAITING)
        self._give_up_at = float("inf")
        self._beginning = threading.Lock()
        self._thread: Optional[threading.Thread] = None

    def start(self) -> None:
        """Nothing: the first report begins, for most workers have none."""

    def report(self, kind: ReportKind, data: Dict[str, Any], *, durable: bool = False) -> None:
        self._begin()
        self._reports.put((kind, data))

    def close(self) -> None:
        """Send what waits."""
        self._give_up_at = time.monotonic() + _PATIENCE
        if self._thread is not None:
            self._reports.put(None)
            self._thread.join()
        self._thread = None

    def _begin(self) -> None:
        with self._beginning:
            if self._thread is None:
                self._thread = threading.Thread(target=self._send, name="dethpc-reports", daemon=True)
                self._thread.start()

    def _quiet(self) -> None:
        """There was nothing to report for a while."""

    def _refused(self, error: DethpcError) -> None:
        logger.error("the master refuses a report of trial %d, which is lost: %s", self._trial_id, error)

    def _send(self) -> None:
        lost = 0  # since closing gave up: each of thousands would wait for the master once more
        while True:
            try:
                report = self._reports.get(timeout=_HEARTBEAT)
            except queue.Empty:
                self._quiet()
                continue
            if report is None:
                if lost:
                    logger.error("%d reports are lost, for the master does not answer", lost)
                return
            if lost or not self._persist(*self._request(*report)):
                lost += 1

    def _persist(self, method: str, path: str, body: Dict[str, Any]) -> bool:
        """Try until the master has answered. False: it has not, and closing has no more patience."""
        pause = 0.5
        while True:
            try:
                self._session.request(method, path, json=body)
                return True
            except (MasterUnreachable, NotTheMaster, OSError) as error:
                if time.monotonic() >= self._give_up_at:
                    logger.error("what trial %d reports cannot be sent: %s", self._trial_id, error)
                    return False
                time.sleep(pause)
                pause = min(10.0, 2 * pause)
            except DethpcError as error:
                self._refused(error)
                return True

    def _request(self, kind: ReportKind, data: Dict[str, Any]) -> Tuple[str, str, Dict[str, Any]]:
        trial = f"/api/v1/trials/{self._trial_id}"
        if kind is ReportKind.METRICS:
            values = {"avgMetrics": data["metrics"], "batchMetrics": data.get("batch_metrics")}
            metrics = {"metrics": values, "stepsCompleted": data["steps_completed"], "trialId": self._trial_id}
            body = {"group": data["group"], "metrics": {**metrics, "trialRunId": self._run_number}}
            return "POST", f"{trial}/metrics", body
        if kind is ReportKind.CHECKPOINT:
            resources = {path: str(size) for path, size in data["resources"].items()}
            body = {"uuid": data["uuid"], "taskId": self._task_id, "metadata": data["metadata"], "resources": resources}
            return "POST", "/api/v1/checkpoints", body
        if kind is ReportKind.CHECKPOINT_DELETED:
            remaining = {path: str(size) for path, size in data["resources"].items()}
            body = {"checkpoints": [{"uuid": data["uuid"], "resources": {"resources": remaining}}]}
            return "PATCH", "/api/v1/checkpoints", body
        if kind is ReportKind.STATUS:
            return "POST", f"{trial}/runner/metadata", {"state": data["status"]}
        if kind is ReportKind.RUN_METADATA:
            return "POST", f"/api/v1/runs/{self._trial_id}/metadata", {"metadata": data["metadata"]}
        if kind is ReportKind.ALERT:
            return "POST", "/api/v1/webhooks/custom", {"data": data, "trialId": self._trial_id}
        return "POST", f"{trial}/{kind.value}", data  # progress, early_exit


class WorkerReporter(RestReporter):
    """That of a trial's workers beside its chief: metrics go to a journal of the worker's own, which the master reads, and need no
    master; the rest is sent. ``on_first``, called from a thread, may tell the master that there is a journal."""

    def __init__(
        self,
        journal: Path,
        session: Session,
        trial_id: int,
        run_number: int,
        task_id: str,
        on_first: Callable[[], object],
    ) -> None:
        super().__init__(session, trial_id, run_number, task_id)
        self._path, self._on_first = journal, on_first
        self._opening = threading.Lock()
        self._journal: Optional[JournalWriter] = None  # most workers report no metrics, and have none
        self._disk_refuses = False

    def report(self, kind: ReportKind, data: Dict[str, Any], *, durable: bool = False) -> None:
        if kind is not ReportKind.METRICS:
            super().report(kind, data)
            return
        try:
            with self._opening:
                if first := self._journal is None:
                    self._path.parent.mkdir(mode=0o700, exist_ok=True)
                    self._journal = JournalWriter(self._path)
            self._journal.append(kind, data, durable=durable)
            if first:
                threading.Thread(target=self._on_first, name="dethpc-notifier", daemon=True).start()
            self._disk_refuses = False
        except OSError as error:
            if not self._disk_refuses:
                self._disk_refuses = True
                logger.warning("%s cannot be written (%s): its metrics wait for the next that can", self._path, error)

    def close(self) -> None:
        with self._opening:
            journal, self._journal = self._journal, None
        try:
            if journal is not None:
                journal.close()
        except OSError as error:
            logger.error("metrics of this worker are lost: %s cannot be written: %s", self._path, error)
        super().close()


class UnmanagedReporter(RestReporter):
    """The chief's, outside the cluster: says also that the trial lives, and how it ended.

    What the master refuses (the trial was killed, or started again elsewhere) is raised by the report after it.
    """

    _failure: Optional[DethpcError] = None

    def start(self) -> None:
        self._set_state("RUNNING")
        self._begin()

    def report(self, kind: ReportKind, data: Dict[str, Any], *, durable: bool = False) -> None:
        if self._failure is not None:
            raise self._failure
        super().report(kind, data)

    def end(self, state: str) -> None:
        """After ``close``: say how the trial ended, COMPLETED or ERROR."""
        if self._failure is None:
            self._set_state(state)

    def _refused(self, error: DethpcError) -> None:
        logger.error("the master refuses the reports of trial %d: %s", self._trial_id, error)
        self._failure = error

    def _persist(self, method: str, path: str, body: Dict[str, Any]) -> bool:
        return self._failure is not None or super()._persist(method, path, body)

    def _quiet(self) -> None:
        self._persist("PATCH", f"/api/v1/trials/{self._trial_id}", {})

    def _set_state(self, state: str) -> None:
        try:
            self._session.patch(f"/api/v1/trials/{self._trial_id}", {"state": f"STATE_{state}"})
        except Unauthorized:
            raise
        except DethpcError as error:
            logger.warning("the master could not be told that trial %d is %s: %s", self._trial_id, state, error)
