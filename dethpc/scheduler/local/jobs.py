"""The table of jobs. One SQLite file, so that its readers and writers, which are several processes, agree."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dethpc.domain.ports import JobRecord, JobState
from dethpc.errors import SchedulerUnavailable

CANCEL, REQUEUE = "cancel", "requeue"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    script TEXT NOT NULL,
    run_dir TEXT NOT NULL,
    slots INTEGER NOT NULL,
    env TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    devices TEXT NOT NULL DEFAULT '[]',
    supervisor TEXT,
    mark TEXT NOT NULL DEFAULT '',
    wanted TEXT,
    starting_until REAL NOT NULL DEFAULT 0,
    node TEXT NOT NULL DEFAULT '',
    restarts INTEGER NOT NULL DEFAULT 0,
    exit_code INTEGER,
    signal INTEGER,
    submitted_at REAL NOT NULL,
    started_at REAL,
    ended_at REAL,
    nice INTEGER NOT NULL DEFAULT 0,
    queue TEXT NOT NULL DEFAULT 'trials'
);
CREATE INDEX IF NOT EXISTS jobs_name ON jobs (name);
CREATE INDEX IF NOT EXISTS jobs_state ON jobs (state, id);
CREATE INDEX IF NOT EXISTS jobs_ended ON jobs (ended_at);
CREATE TABLE IF NOT EXISTS settings (key TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


@dataclass
class Job:
    """A row."""

    id: int
    name: str
    script: str
    run_dir: str
    slots: int
    env: str  # JSON
    state: JobState
    reason: str
    devices: str  # JSON: the slots it holds
    supervisor: str | None  # identity of its process
    mark: str
    wanted: str | None  # CANCEL or REQUEUE, until it is done
    starting_until: float  # a supervisor has been started for it; if none has claimed it by then, start another
    node: str
    restarts: int
    exit_code: int | None
    signal: int | None
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    nice: int  # jobs start in the order of id + nice
    queue: str  # of those without slots

    def __post_init__(self) -> None:
        self.state = JobState(self.state)

    @property
    def held(self) -> list[str]:
        ids: list[str] = json.loads(self.devices)
        return ids

    def record(self) -> JobRecord:
        completing = self.state is JobState.RUNNING and self.wanted
        return JobRecord(
            job_id=str(self.id),
            name=self.name,
            state=JobState.COMPLETING if completing else self.state,
            reason=self.reason,
            nodes=(self.node,) if self.node else (),
            exit_code=self.exit_code,
            signal=self.signal,
            restarts=self.restarts,
            submitted_at=self.submitted_at,
            started_at=self.started_at,
            ended_at=self.ended_at,
            priority=_FIRST - self.id - self.nice if self.state is JobState.PENDING else None,
            nice=self.nice if self.state is JobState.PENDING else None,
        )


_COLUMNS = ", ".join(field.name for field in fields(Job))
_FIRST = 2**62
_LIVE = (JobState.PENDING.value, JobState.RUNNING.value)


class Jobs:
    """The table in ``folder``. May be used from several threads, one transaction at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "jobs.db"
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None  # kept: opening and closing costs more than a transaction

    def create(self) -> None:
        """Make the tables when they are missing. Raises: SchedulerUnavailable."""
        with self.transaction() as table:
            for statement in _SCHEMA.split(";"):
                table.execute(statement)
            there = {row[1] for row in table.execute("PRAGMA table_info(jobs)")}
            for column, kind in (("nice", "INTEGER NOT NULL DEFAULT 0"), ("queue", "TEXT NOT NULL DEFAULT 'trials'")):
                if column not in there:  # an earlier release made the table
                    table.execute(f"ALTER TABLE jobs ADD COLUMN {column} {kind}")

    @contextmanager
    def transaction(self) -> Iterator[Table]:
        """Keeps every other process out until it ends; an exception undoes it. Raises: SchedulerUnavailable."""
        try:
            with self._lock:
                connection = self._connection = self._connection or self._connect()
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield Table(connection)
                    connection.execute("COMMIT")
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
        except (sqlite3.Error, OSError) as error:
            raise SchedulerUnavailable(f"the local scheduler's table {self._file} failed: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(self._file, timeout=30, isolation_level=None, check_same_thread=False)
        weakref.finalize(self, connection.close)
        connection.execute("PRAGMA journal_mode=WAL")
        return connection


class Table:
    """The table within a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._connection.execute(statement, parameters)

    def select(self, where: str, parameters: Sequence[Any] = ()) -> list[Job]:
        statement = f"SELECT {_COLUMNS} FROM jobs WHERE {where}"  # nosec B608  # our own words; values are parameters
        return [Job(*row) for row in self.execute(statement, parameters)]

    def get(self, job_id: int) -> Job | None:
        rows = self.select("id = ?", (job_id,))
        return rows[0] if rows else None

    def running(self) -> list[Job]:
        return self.select("state = 'RUNNING' ORDER BY id")

    def listed(self, ended_after: float) -> list[Job]:
        """Live jobs, and those that ended since."""
        return self.select("state IN (?, ?) OR ended_at > ? ORDER BY id", (*_LIVE, ended_after))

    def add(self, **columns: Any) -> int:
        marks = ", ".join("?" * len(columns))
        added = f"INSERT INTO jobs ({', '.join(columns)}) VALUES ({marks})"  # nosec B608  # the names are our own
        cursor = self.execute(added, list(columns.values()))
        return int(cursor.lastrowid or 0)

    def set(self, job_id: int, **columns: Any) -> None:
        changes = ", ".join(f"{name} = ?" for name in columns)
        changed = f"UPDATE jobs SET {changes} WHERE id = ?"  # nosec B608  # the names are our own
        self.execute(changed, (*columns.values(), job_id))

    def settings(self) -> dict[str, Any]:
        return {key: json.loads(value) for key, value in self.execute("SELECT key, value FROM settings")}

    def configure(self, settings: Mapping[str, Any]) -> None:
        for key, value in settings.items():
            self.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (key, json.dumps(value)))
