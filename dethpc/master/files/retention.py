"""Logs of trials that ended long ago are deleted where the experiment's ``retention_policy`` says so."""

from __future__ import annotations

import contextlib
import errno
import logging
import time
from collections.abc import Callable

from dethpc.config.experiment import ExperimentConfig
from dethpc.errors import ConfigError
from dethpc.master.files.folding import Folding
from dethpc.master.rounds import Rounds
from dethpc.master.watching.trouble import write
from dethpc.rundir.files import exists
from dethpc.rundir.home import Home
from dethpc.rundir.layout import RunDir
from dethpc.rundir.tree import remove
from dethpc.state import SqlStore, queries

log = logging.getLogger(__name__)

DAY = 86400.0
FIRST, EVERY = 60.0, 3600.0
"""Seconds after its start, and between two times, that a master looks for logs to delete."""

NOTICED = DAY
"""Within how many seconds a master notices that a trial has ended: by then its logs may have been due at an earlier look."""


class LogRetention:
    """Works on a thread of its own, in no hurry. ``check`` raises LeaseHeld when this master is not the one any more."""

    def __init__(self, store: SqlStore, home: Home, check: Callable[[], None], folding: Folding) -> None:
        self._store, self._home, self._check, self._folding = store, home, check, folding
        self._done_until = 0.0  # what was due by then is deleted
        self._rounds = Rounds(
            "retention",
            lambda: self.delete_due(time.time()),
            EVERY,
            first=FIRST,
            trouble="logs that are due could not be deleted",
        )

    def start(self) -> None:
        self._rounds.start()

    def stop(self) -> None:
        self._rounds.stop()

    def delete_due(self, now: float) -> None:
        """Delete what has become due since the last call, and again what could not be deleted. Raises LeaseHeld, StoreError."""
        whole = True
        for experiment_id, days in self._policies().items():
            with self._store.read() as connection:
                since = self._done_until - NOTICED - days * DAY
                due = queries.trials_that_ended(connection, experiment_id, since, now - days * DAY)
            for trial_id in due:
                if self._rounds.stopping:
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
        policies = {}
        with self._store.read() as connection:
            configured = queries.experiments_that_configure(connection, "log_retention_days")
        for experiment_id, config in configured.items():
            with contextlib.suppress(ConfigError):
                policy = ExperimentConfig.from_json(config).retention_policy
                if policy is not None and policy.log_retention_days >= 0:
                    policies[experiment_id] = policy.log_retention_days
        return policies

    def _delete(self, trial_id: int, days: int) -> None:
        with self._store.read() as connection:
            if not queries.trial_is_over(connection, trial_id):
                return
            runs = queries.runs_of_trial(connection, trial_id)
        had = [run for run in runs if _has_logs(self._home.kept(run.id))]
        self._folding.without_logs(trial_id, [run.id for run in runs])
        for run in had:
            _delete_logs(self._home.run(run.id))
            if _has_logs(self._home.kept(run.id)):
                raise OSError(errno.EBUSY, "its archive is in use", str(self._home.kept(run.id).path))
            message = f"the log was deleted, as retention_policy says: the trial ended {days} days ago or earlier"
            write(self._home, run.id, run.attempt, message, "INFO")


def _has_logs(run_dir: RunDir) -> bool:
    return any(exists(run_dir.attempt(k).logs) for k in run_dir.attempts())


def _delete_logs(run_dir: RunDir) -> None:
    """Raises OSError."""
    folders = [run_dir.attempt(k).logs for k in run_dir.attempts() if run_dir.attempt(k).logs.exists()]
    if folders:
        for path in (run_dir.log, *(run_dir.waiting(k) for k in run_dir.attempts_with_logs())):
            path.unlink(missing_ok=True)
    for folder in folders:
        remove(folder)
