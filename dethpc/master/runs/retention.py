"""Logs of trials that ended long ago are deleted where the experiment's ``retention_policy`` says so."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable

from dethpc.config.experiment import ExperimentConfig
from dethpc.errors import ConfigError, LeaseHeld
from dethpc.master.runs.trouble import write
from dethpc.rundir.home import Home
from dethpc.rundir.layout import RunDir
from dethpc.rundir.tree import remove
from dethpc.state import SqlStore, queries

log = logging.getLogger(__name__)

DAY = 86400.0
FIRST, EVERY = 60.0, 3600.0
"""Seconds after its start, and between two times, that a master looks for logs to delete."""


class LogRetention:
    """Works on a thread of its own, in no hurry. ``check`` raises LeaseHeld when this master is not the one any more."""

    def __init__(self, store: SqlStore, home: Home, check: Callable[[], None]) -> None:
        self._store, self._home, self._check = store, home, check
        self._done_until = 0.0  # what was due by then is deleted
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="retention", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        pause = FIRST
        while not self._stopping.wait(pause):
            pause = EVERY
            try:
                self.delete_due(time.time())
            except LeaseHeld:
                return
            except Exception:  # logs stay longer than they should: no reason to end a master
                log.exception("logs that are due could not be deleted; the master tries again")

    def delete_due(self, now: float) -> None:
        """Delete what has become due since the last call, and again what could not be deleted. Raises LeaseHeld, StoreError."""
        whole = True
        for experiment_id, days in self._policies().items():
            with self._store.read() as connection:
                due = queries.trials_that_ended(
                    connection, experiment_id, self._done_until - days * DAY, now - days * DAY
                )
            for trial_id in due:
                if self._stopping.is_set():
                    return
                self._check()
                try:
                    self._delete(trial_id, days)
                except OSError as error:  # one trial's trouble is its own
                    log.warning("the logs of trial %s, which are due, stay for now: %s", trial_id, error)
                    whole = False
        if whole:
            self._done_until = now

    def _policies(self) -> dict[int, int]:
        """Experiments whose logs are not kept for ever, with the days that they are kept."""
        found = {}
        with self._store.read() as connection:
            configured = queries.experiments_that_configure(connection, "log_retention_days")
        for experiment_id, config in configured.items():
            with contextlib.suppress(ConfigError):
                policy = ExperimentConfig.from_json(config).retention_policy
                if policy is not None and policy.log_retention_days >= 0:
                    found[experiment_id] = policy.log_retention_days
        return found

    def _delete(self, trial_id: int, days: int) -> None:
        with self._store.read() as connection:
            if not queries.trial_is_over(connection, trial_id):
                return
            runs = queries.runs_of_trial(connection, trial_id)
        for run in runs:
            if _delete_logs(self._home.run(run.id)):
                words = f"the log was deleted, as retention_policy says: the trial ended {days} days ago or earlier"
                write(self._home, run.id, run.attempt, words, "INFO")


def _delete_logs(run_dir: RunDir) -> bool:
    """Whether there were any. Raises OSError."""
    folders = [run_dir.attempt(k).logs for k in run_dir.attempts() if run_dir.attempt(k).logs.exists()]
    if folders:
        for path in (run_dir.log, *(run_dir.waiting(k) for k in run_dir.attempts_with_logs())):
            path.unlink(missing_ok=True)
    for folder in folders:
        remove(folder)
    return bool(folders)
