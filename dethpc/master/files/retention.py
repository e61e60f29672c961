"""Logs of trials that ended long ago are deleted where the experiment's ``retention_policy`` says so, or what was set since. Files
of tasks without a trial go, too (``TaskRetention``)."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.facts import Task, Trial
from dethpc.domain.records import LogDays
from dethpc.domain.task_settings import TaskSettings
from dethpc.errors import ConfigError
from dethpc.exec.garbage import remove_context
from dethpc.master.durable import ids
from dethpc.master.experiments import environments
from dethpc.master.files.folding import Folding
from dethpc.master.files.garbage_runs import context_of, empty_context
from dethpc.master.rounds import Rounds
from dethpc.master.watching.trouble import write
from dethpc.rundir.files import exists
from dethpc.rundir.home import Home
from dethpc.rundir.layout import RunDir
from dethpc.rundir.tree import remove
from dethpc.state import SqlStore, queries
from dethpc.state.queries import records

log = logging.getLogger(__name__)

DAY = 86400.0
FIRST, EVERY = 60.0, 3600.0
"""Seconds after its start, and between two times, that a master looks for logs to delete."""

NOTICED = DAY
"""Within how many seconds a master notices that a trial has ended: by then its logs may have been due at an earlier look."""


class LogRetention:
    """Works on a thread of its own, in no hurry, and on request. ``check`` raises LeaseHeld when this master is replaced."""

    def __init__(
        self,
        store: SqlStore,
        home: Home,
        check: Callable[[], None],
        folding: Folding,
        remove_tasks_after_days: float | None = None,
    ) -> None:
        self.folding = folding
        self._tasks = TaskRetention(store, home, check, remove_tasks_after_days)
        self._store, self._home, self._check = store, home, check
        self._done_until = 0.0  # what was due by then is deleted
        self._deleting = threading.Lock()
        self._rounds = Rounds(
            "retention",
            lambda: self.delete_due(time.time()),
            EVERY,
            first=FIRST,
            trouble="logs that are due could not be deleted",
        )
        self.start, self.stop = self._rounds.start, self._rounds.stop

    def delete_all_due(self) -> int:
        """As ``delete_due``, also where the days were set anew; returns of how many trials. Raises LeaseHeld, StoreError."""
        self.look_again()
        return self.delete_due(time.time())

    def look_again(self) -> None:
        """Days were set: logs may be due that were not."""
        self._done_until = 0.0

    def delete_due(self, now: float) -> int:
        """Delete what has become due since the last call, and again what could not be deleted; returns of how many trials. Raises
        LeaseHeld, StoreError."""
        with self._deleting:
            self._tasks.delete_due(now)
            since, deleted, whole = self._done_until, 0, True
            for trial_id, days in self._due(since, now):
                if self._rounds.stopping:
                    return deleted
                self._check()
                try:
                    deleted += self._delete(trial_id, days)
                except OSError as error:  # one trial's trouble is its own
                    log.warning("the logs of trial %s, which are due, stay for now: %s", trial_id, error)
                    whole = False
            if whole and self._done_until == since:
                self._done_until = now
            return deleted

    def _due(self, since: float, now: float) -> Iterator[tuple[int, int]]:
        """Trials whose logs became due in this time, with the days that they were kept."""
        with self._store.read() as connection:
            own = {row.id: row.days for row in records.find(connection, LogDays, noun="trial")}
        for experiment_id, days in self._policies().items():
            with self._store.read() as connection:
                begin = since - NOTICED - days * DAY
                due = queries.trials_that_ended(connection, experiment_id, begin, now - days * DAY)
            yield from ((trial_id, days) for trial_id in due if trial_id not in own)
        with self._store.read() as connection:
            trials = queries.trials_by_id(connection, [id for id, days in own.items() if days >= 0])
        for trial in trials:
            if trial.ended_at is not None and trial.ended_at <= now - own[trial.id] * DAY:
                yield trial.id, own[trial.id]

    def days_of(self, trial: Trial) -> int:
        """For how many days the trial's logs are kept; -1: for ever."""
        with self._store.read() as connection:
            for noun, id in (("trial", trial.id), ("experiment", trial.experiment_id)):
                for row in records.find(connection, LogDays, noun=noun, id=id):
                    return row.days
            return _configured(queries.experiment(connection, trial.experiment_id).config)

    def _policies(self) -> dict[int, int]:
        """Experiments whose logs are not kept for ever, with the days that they are kept."""
        with self._store.read() as connection:
            configured = queries.experiments_that_configure(connection, "log_retention_days")
            later = {row.id: row.days for row in records.find(connection, LogDays, noun="experiment")}
        policies = {id: _configured(config) for id, config in configured.items()} | later
        return {id: days for id, days in policies.items() if days >= 0}

    def _delete(self, trial_id: int, days: int) -> bool:
        """Whether there were any."""
        with self._store.read() as connection:
            if not queries.trial_is_over(connection, trial_id):
                return False
            runs = queries.runs_of_trial(connection, trial_id)
        had = [run for run in runs if _has_logs(self._home.find(run.id))]
        self.folding.without_logs(trial_id, [run.id for run in runs])
        for run in had:
            _delete_logs(self._home.run(run.id))
            if _has_logs(self._home.find(run.id)):
                raise OSError(errno.EBUSY, "its archive is in use", str(self._home.find(run.id).path))
            message = f"the log was deleted, as retention_policy says: the trial ended {days} days ago or earlier"
            write(self._home, run.id, run.attempt, message, "INFO")
        return bool(had)


def _configured(config: dict[str, Any]) -> int:
    with contextlib.suppress(ConfigError):
        policy = ExperimentConfig.from_json(config).retention_policy
        if policy is not None:
            return policy.log_retention_days
    return -1


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


class TaskRetention:
    """What commands, notebooks and other tasks without a trial leave on disk is removed some time after their end: run directories,
    environments, and context directories that nothing else has. Their rows stay, and so do the files of notebooks.

    ``days`` after a task's end that its files go; None: never. ``check`` raises LeaseHeld when this master is replaced.
    """

    def __init__(self, store: SqlStore, home: Home, check: Callable[[], None], days: float | None) -> None:
        self._store, self._home, self._check, self._days = store, home, check, days

    def delete_due(self, now: float) -> int:
        """Of how many tasks there were run directories. Raises LeaseHeld, StoreError, OSError of the folder of all runs."""
        if self._days is None:
            return 0
        with self._store.read() as connection:
            expired = queries.tasks_that_ended(connection, now - self._days * DAY)
            runs = {run.id: run.task_id for run in queries.runs_of_tasks(connection, [task.id for task in expired])}
        folders = runs.keys() & set(os.listdir(self._home.runs))
        removed = set()
        for run_id in sorted(folders):
            self._check()
            try:
                remove(self._home.run(run_id).path)
                removed.add(runs[run_id])
            except OSError as error:  # one task's trouble is its own
                log.warning("the directory of run %s, which is due, stays for now: %s", run_id, error)
        for task in expired:
            environments.drop(self._home, task.queue_id)
        self._remove_contexts(expired, now)
        return len(removed)

    def _remove_contexts(self, expired: Collection[Task], now: float) -> None:
        """Those of expired tasks that nothing else has. What comes to want one meanwhile touches it."""
        stored = {sha256 for sha256 in _contexts(expired) if self._home.context(sha256).exists()}
        if not stored:
            return
        gone = {task.id for task in expired}
        with self._store.read() as connection:
            stored -= _contexts(task for task in queries.launched_tasks(connection) if task.id not in gone)
            stored -= queries.contexts_of_experiments(connection)
        stored.discard(empty_context(self._home))
        if stored:
            rendered = ids.rendered(os.listdir(self._home.runs))
            stored -= set(map(context_of, map(self._home.run, rendered)))
        for sha256 in sorted(stored):
            self._check()
            remove_context(str(self._home.context(sha256)), now)


def _contexts(tasks: Iterable[Task]) -> set[str]:
    return {sha256 for task in tasks if (sha256 := TaskSettings.of(task).context_sha256)}
