"""``det master check``: differences between the database and the files that it can be rebuilt from. ``check`` changes nothing.

A master may run at the same time. It commits a change before it appends it to the change log, and appends it before it continues:
what the change log held before the database was read is in the database, and what is in the database follows in the change log.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from dethpc import storage
from dethpc.domain import facts, records
from dethpc.domain.facts import Attempt, Checkpoint, Experiment, Metric, Run
from dethpc.domain.reports import Report, ReportKind
from dethpc.domain.states import CheckpointState
from dethpc.domain.trial_config import TrialConfig
from dethpc.engine.reports import reported_values
from dethpc.errors import DethpcError
from dethpc.master.durable import at_rest, ids
from dethpc.master.durable.change_log import rows_of_file
from dethpc.master.durable.lease import Lease, alive
from dethpc.master.durable.row_file import RowFile, to_line
from dethpc.master.installation import cluster_id, site_of
from dethpc.master.rebuild import read_all
from dethpc.rundir.files import exists, read_json
from dethpc.rundir.home import Home
from dethpc.state import absent, reading, rows

TRIES, PAUSE = 5, 0.5
"""How many times, and how many seconds apart, to look for what a running master has committed and is about to append."""

_Lines = dict[Any, list[str]]
"""The lines of a change log by key, oldest first."""


@dataclass(frozen=True, slots=True)
class Difference:
    experiment_id: int | None  # None: of the installation
    where: str  # database, change log, journal, run directory, checkpoint; or at_rest's kind of a file
    what: str

    def to_json(self) -> dict[str, Any]:
        return {"experimentId": self.experiment_id, "where": self.where, "what": self.what}


@dataclass(frozen=True, slots=True)
class _Rows:
    """What the database knows of an experiment, all of it at one instant."""

    by_key: dict[Any, Any]
    reports: Mapping[tuple[str, int], Mapping[int, int]] = field(default_factory=dict)
    """(run, attempt) -> its reports of metrics: number -> digest of what it says"""

    def of(self, fact: type[Any]) -> Iterator[Any]:
        return (row for row in self.by_key.values() if isinstance(row, fact))


def check(root: Path, site_file: Path | None = None) -> tuple[int, list[Difference]]:
    """How many experiments there are, and what differs. Raises ConfigError, StoreError, OSError."""
    home = Home(root)
    url = site_of(home, site_file).database or home.database_url
    if missing := absent(url):
        return len(ids.in_files(home).experiments), [Difference(None, "database", missing)]
    held = read_json(home.master_file)
    return _Check(home, url, running=held is not None and alive(held)).run()


def mend(root: Path, site_file: Path | None = None) -> list[Path]:
    """Write the change logs again that have damaged lines, or that lack what the database knows; what they were is kept beside.

    Left alone are those that know rows which the database does not: it may be the older one. Raises: LeaseHeld while a master runs;
    as ``check``.
    """
    home = Home(root)
    url = site_of(home, site_file).database or home.database_url
    if absent(url):
        return []
    lease = Lease(home.master_file, cluster_id(home))
    lease.take()
    try:
        return list(_Check(home, url, running=False).mend(lease.check))
    finally:
        lease.release()


class _Check:
    def __init__(self, home: Home, url: str, *, running: bool) -> None:
        self._home, self._url, self._running = home, url, running

    def run(self) -> tuple[int, list[Difference]]:
        files = ids.in_files(self._home)  # before the database: it knows of all that these files are of
        with reading(self._url) as connection:
            database = ids.in_database(connection)
        unknown = files - database
        differences: list[Difference] = []
        for path in (self._home.node_changes, self._home.task_changes, self._home.records):
            try:
                differences += self._of_installation(path)
            except OSError as error:
                differences.append(_unreadable(None, "change log", error))
        for id in sorted(unknown.experiments):
            differences.append(Difference(id, "database", "has files, but is not in the database"))
        for run in sorted(unknown.runs):
            differences.append(
                Difference(int(run.split(".")[0]), "database", f"run {run} has files, but is not in the database")
            )
        for id in sorted(database.experiments):
            try:
                differences += self._experiment(id)
            except OSError as error:
                differences.append(_unreadable(id, "change log", error))
        differences += [Difference(None, damage.kind, str(damage)) for damage in at_rest.damages(self._home)]
        return len(database.experiments | files.experiments), differences

    def mend(self, check_lease: Callable[[], None]) -> Iterator[Path]:
        own = [self._home.node_changes, self._home.task_changes, self._home.records]
        with reading(self._url) as connection:
            of_experiments = [self._home.changes(id) for id in sorted(ids.in_database(connection).experiments)]
            for path in own + of_experiments:
                by_key = self._by_key(connection, path)
                lines, damaged = _lines(path)
                late = [key for key, row in by_key.items() if not self._says(lines.get(key, []), row)]
                other = any(key in lines for key in late) and not damaged  # nobody knows which of both is right
                if not (damaged or late) or other or lines.keys() - by_key.keys():
                    continue
                check_lease()
                if path.exists():
                    shutil.copy2(path, path.with_name(f"{path.name}.{time.strftime('%Y%m%dT%H%M%S')}.damaged"))
                RowFile(path).become(list(by_key.values()))
                yield path

    def _of_installation(self, path: Path) -> Iterator[Difference]:
        before = _lines(path)[0] if self._running else {}
        with reading(self._url) as connection:
            by_key = self._by_key(connection, path)
        if by_key or path.exists():
            yield from self._change_log(None, path, before, _Rows(by_key))

    def _by_key(self, connection: Connection, path: Path) -> dict[Any, Any]:
        return {(type(row), _key(row)): row for row in rows_of_file(connection, self._home, path)}

    def _experiment(self, id: int) -> Iterator[Difference]:
        path = self._home.changes(id)
        before = _lines(path)[0] if self._running else {}
        with reading(self._url) as connection:
            database = _Rows(self._by_key(connection, path), _reports(connection, id))
        yield from self._change_log(id, path, before, database)
        if any(not row.state.keeps_files for row in database.of(Experiment)):
            return
        for attempt in database.of(Attempt):
            digests = database.reports.get((attempt.run_id, attempt.number), {})
            yield from self._journal(id, attempt, {seq: digest for seq, digest in digests.items() if seq >= 0})
            yield from self._taken(id, attempt, database, {-seq: digest for seq, digest in digests.items() if seq < 0})
        for run in database.of(Run):
            if run.attempt >= 0 and not exists(self._home.kept(run.id).path):
                yield Difference(id, "run directory", f"{self._home.kept(run.id).path} is missing")
        yield from _checkpoints(id, database, self._home)

    def _change_log(self, id: int | None, path: Path, before: _Lines, database: _Rows) -> Iterator[Difference]:
        if not path.exists():
            yield Difference(id, "change log", f"{path} is missing")
            return
        by_key = database.by_key
        for tries_after in reversed(range(TRIES if self._running else 1)):
            lines, damaged = _lines(path)
            late = [key for key, row in by_key.items() if not self._says(lines.get(key, []), row)]
            if not late or not tries_after:
                break
            time.sleep(PAUSE)
            with reading(self._url) as connection:  # a file that was compacted says no more what a row was before
                by_key = self._by_key(connection, path)
        absent = [key for key in late if key not in lines]
        stale = [key for key in late if key in lines]
        unknown = [key for key in (before if self._running else lines) if key not in database.by_key]
        for keys, problem in (
            (absent, "in the database, but not in the change log"),
            (stale, "not the same in the database and the change log"),
            (unknown, "in the change log, but not in the database"),
        ):
            if keys:
                yield Difference(id, "change log", f"{_rows(keys)} {problem}")
        yield from self._damaged(id, "change log", path, damaged)

    def _says(self, lines: list[str], row: Any) -> bool:
        """The last line counts; while a master runs, it may have gone on since the database was read."""
        return to_line(row) in (lines if self._running else lines[-1:])

    def _journal(self, id: int, attempt: Attempt, digests: Mapping[int, int]) -> Iterator[Difference]:
        path = self._home.kept(attempt.run_id).attempt(attempt.number).journal
        if not exists(path):
            if attempt.applied_seq:
                yield Difference(id, "journal", f"{path} is missing")
            return
        try:
            reports, damaged = read_all(path)
        except OSError as error:
            yield _unreadable(id, "journal", error)
            return
        last = attempt.applied_seq if attempt.void_after is None else min(attempt.applied_seq, attempt.void_after)
        written = {report.seq: report for report in reports if report.kind == ReportKind.METRICS and report.seq <= last}
        yield from self._compared(id, path, written, digests)
        yield from self._damaged(id, "journal", path, damaged)

    def _taken(self, id: int, attempt: Attempt, database: _Rows, digests: Mapping[int, int]) -> Iterator[Difference]:
        """What did not come from the attempt's chief."""
        path = self._home.kept(attempt.run_id).attempt(attempt.number).taken
        try:
            reports, damaged = read_all(path)
        except OSError as error:
            yield _unreadable(id, "journal", error)
            return
        most = math.inf
        if attempt.void_after is not None:
            gone_on_from = (attempt.run_id, attempt.number, attempt.void_after)
            own = (c for c in database.of(Checkpoint) if (c.run_id, c.attempt, c.seq) == gone_on_from)
            most = next((c.steps_completed for c in own), -1)
        written = {report.seq: report for report in reports if report.data.get("steps_completed", 0) <= most}
        yield from self._compared(id, path, written, digests)
        yield from self._damaged(id, "journal", path, damaged)

    def _compared(
        self, id: int, path: Path, written: Mapping[int, Report], digests: Mapping[int, int]
    ) -> Iterator[Difference]:
        if len(written) != len(digests):
            many = f"{path} has {len(written)} reports of metrics that count, the database {len(digests)}"
            yield Difference(id, "journal", many)
        if other := [seq for seq in written if seq in digests and _digest_of(written[seq]) != digests[seq]]:
            some = ", ".join(map(str, other[:5])) + (", ..." if len(other) > 5 else "")
            yield Difference(id, "journal", f"{path}: database and journal differ in report {some}")

    def _damaged(self, id: int | None, where: str, path: Path, lines: list[int]) -> Iterator[Difference]:
        if lines:
            some = ", ".join(map(str, lines[:5])) + (", ..." if len(lines) > 5 else "")
            yield Difference(id, where, f"{path}: damaged lines: {some}")


def _unreadable(id: int | None, where: str, error: OSError) -> Difference:
    return Difference(id, where, f"{error.filename} cannot be read: {error.strerror}")


def _reports(connection: Connection, id: int) -> dict[tuple[str, int], dict[int, int]]:
    reports: dict[tuple[str, int], dict[int, int]] = {}
    for metric in rows.read(connection, Metric, rows.table(Metric).c.experiment_id == id):
        digest = _digest(metric.group, metric.steps_completed, metric.metrics)
        reports.setdefault((metric.run_id, metric.attempt), {})[metric.seq] = digest
    return reports


def _digest_of(report: Report) -> int | None:
    """None: the report is one that counts for nothing."""
    try:
        return _digest(str(report.data["group"]), int(report.data["steps_completed"]), reported_values(report.data))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None


def _digest(group: str, steps: int, metrics: Any) -> int:
    """Databases need not keep the order of keys."""
    return hash(json.dumps([group, steps, metrics], sort_keys=True, default=str))


def _key(row: Any) -> tuple[Any, ...]:
    return records.key(row) if type(row) in records.KEYS else facts.key(row)


def _lines(path: Path) -> tuple[_Lines, list[int]]:
    damaged: list[int] = []
    lines: _Lines = {}
    for kind, key, row in RowFile(path).lines(damaged):
        if row is None:
            lines.pop((kind, key), None)  # it was dropped
        else:
            lines.setdefault((kind, key), []).append(to_line(row))
    return lines, damaged


def _checkpoints(id: int, database: _Rows, home: Home) -> Iterator[Difference]:
    config = next(database.of(Experiment)).config
    for checkpoint in database.of(Checkpoint):
        if checkpoint.decided is not CheckpointState.COMPLETED:
            continue
        try:
            section = checkpoint.storage or TrialConfig.from_json(config).checkpoint_storage
            store = storage.build(section, spool=home.spool)
            if not store.exists(checkpoint.uuid):
                yield Difference(id, "checkpoint", f"checkpoint {checkpoint.uuid} is not in {store}")
            elif lost := _lost(checkpoint.resources, store.files(checkpoint.uuid)):
                yield Difference(id, "checkpoint", f"checkpoint {checkpoint.uuid}: {lost}")
        except (DethpcError, OSError) as error:
            yield Difference(id, "checkpoint", f"checkpoint {checkpoint.uuid} cannot be looked up: {error}")


def _lost(stored: Mapping[str, int], files: Mapping[str, int]) -> str:
    """What is missing or of another size. Nothing is read: that would take as long as to restore them all."""
    names = [path for path, size in stored.items() if files.get(path) != size]
    if not names:
        return ""
    how = f"has {files[names[0]]} bytes, and had {stored[names[0]]} when stored" if names[0] in files else "is missing"
    more = f", and {len(names) - 1} more of its {len(stored)} files differ" if len(names) > 1 else ""
    return f"{names[0]} {how}{more}"


def _rows(keys: Iterable[Any]) -> str:
    names = [f"{kind.__name__} {'.'.join(map(str, key))}" for kind, key in keys]
    return ", ".join(names[:3]) + (
        f" and {len(names) - 3} more are" if len(names) > 3 else " are" if len(names) > 1 else " is"
    )
