"""``det master check``: differences between the database and the files that it can be rebuilt from. ``check`` changes nothing.

A master may run at the same time. It commits a change before it appends it to the change log, and appends it before it continues:
what the change log held before the database was read is in the database, and what is in the database follows in the change log.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from dethpc import storage
from dethpc.domain.facts import Checkpoint, Experiment, Metric, Run
from dethpc.domain.states import CheckpointState
from dethpc.domain.trial_config import TrialConfig
from dethpc.errors import DethpcError
from dethpc.master.durable import at_rest, ids
from dethpc.master.durable.change_log import rows_of_file
from dethpc.master.durable.lease import Lease, alive
from dethpc.master.durable.replay import Journal, history, journals, some
from dethpc.master.durable.row_file import RowFile, key_of, to_text
from dethpc.master.installation import cluster_id, site_of
from dethpc.rundir.files import exists, read_json
from dethpc.rundir.home import Home
from dethpc.state import absent, queries, reading

TRIES, PAUSE = 5, 0.5
"""How many times, and how many seconds apart, to look for what a running master has committed and is about to append."""

_Rows = dict[Any, Any]
"""Rows by kind and key."""

_Reports = dict[tuple[str, int, bool], dict[int, int]]
"""By run and attempt, and whether they came from the chief: its reports of metrics, number -> digest of what it says."""


@dataclass(frozen=True, slots=True)
class Difference:
    experiment_id: int | None  # None: of the installation
    where: str  # database, change log, journal, run directory, checkpoint; or at_rest's kind of a file
    what: str

    def to_json(self) -> dict[str, Any]:
        return {"experimentId": self.experiment_id, "where": self.where, "what": self.what}


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
            differences += self._file(None, path)
        for id in sorted(unknown.experiments):
            differences.append(Difference(id, "database", "has files, but is not in the database"))
        for run in sorted(unknown.runs):
            trial = ids.RUN_OF_A_TRIAL.fullmatch(run)
            what = f"run {run} has files, but is not in the database"
            differences.append(Difference(int(trial[1]) if trial else None, "database", what))
        for id in sorted(database.experiments):
            differences += self._file(id, self._home.changes(id))
        differences += [Difference(None, damage.kind, str(damage)) for damage in at_rest.damages(self._home)]
        return len(database.experiments | files.experiments), differences

    def mend(self, check_lease: Callable[[], None]) -> Iterator[Path]:
        own = [self._home.node_changes, self._home.task_changes, self._home.records]
        with reading(self._url) as connection:
            of_experiments = [self._home.changes(id) for id in sorted(ids.in_database(connection).experiments)]
            for path in own + of_experiments:
                database = self._rows(connection, path)
                file, damaged, late = self._compared(path, database)
                other = any(key in file for key in late) and not damaged  # nobody knows which of both is right
                if not (damaged or late) or other or file.keys() - database.keys():
                    continue
                check_lease()
                if path.exists():
                    shutil.copy2(path, path.with_name(f"{path.name}.{time.strftime('%Y%m%dT%H%M%S')}.damaged"))
                RowFile(path).become(list(database.values()))
                yield path

    def _rows(self, connection: Connection, path: Path) -> _Rows:
        """Those of the database that a file keeps."""
        return {(type(row), key_of(row)): row for row in rows_of_file(connection, self._home, path)}

    def _file(self, id: int | None, path: Path) -> Iterator[Difference]:
        """``id``: of the experiment whose change log it is."""
        try:
            before = history(path, []) if self._running else {}
            with reading(self._url) as connection:  # all of it at one instant
                database = self._rows(connection, path)
                reports = {} if id is None else _reports(connection, id)
            if id is not None or database or path.exists():
                yield from self._change_log(id, path, before, database)
            if id is not None:
                yield from self._experiment(id, list(database.values()), reports)
        except OSError as error:
            yield Difference(id, "change log", f"{error.filename} cannot be read: {error.strerror}")

    def _experiment(self, id: int, rows: Sequence[Any], reports: _Reports) -> Iterator[Difference]:
        experiment = next(row for row in rows if isinstance(row, Experiment))
        if not experiment.state.keeps_files:
            return
        for journal in journals(self._home, rows):
            yield from self._journal(id, journal, reports)
        for run in rows:
            if isinstance(run, Run) and run.attempt >= 0 and not exists(path := self._home.find(run.id).path):
                yield Difference(id, "run directory", f"{path} is missing")
        for row in rows:
            if isinstance(row, Checkpoint) and row.decided is CheckpointState.COMPLETED:
                yield from _checkpoint(experiment, row, self._home)

    def _change_log(self, id: int | None, path: Path, before: _Rows, database: _Rows) -> Iterator[Difference]:
        if not path.exists():
            yield Difference(id, "change log", f"{path} is missing")
            return
        keys = database.keys()
        for tries_after in reversed(range(TRIES if self._running else 1)):
            file, damaged, late = self._compared(path, database)
            if not late or not tries_after:
                break
            time.sleep(PAUSE)
            with reading(self._url) as connection:  # a file that was compacted says no more what a row was before
                database = self._rows(connection, path)
        absent = [key for key in late if key not in file]
        stale = [key for key in late if key in file]
        unknown = [key for key in (before if self._running else file) if key not in keys]
        for some_keys, problem in (
            (absent, "in the database, but not in the change log"),
            (stale, "not the same in the database and the change log"),
            (unknown, "in the change log, but not in the database"),
        ):
            if some_keys:
                yield Difference(id, "change log", f"{_names(some_keys)} {problem}")
        yield from self._damaged(id, "change log", path, damaged)

    def _compared(self, path: Path, database: _Rows) -> tuple[_Rows, list[int], list[Any]]:
        """What ``history`` says, the numbers of damaged lines, and the keys of the rows that the file does not say."""
        damaged: list[int] = []
        file = history(path, damaged)
        return file, damaged, [key for key, row in database.items() if not self._says(file.get(key, []), row)]

    def _says(self, versions: Sequence[Any], row: Any) -> bool:
        """The last line counts; while a master runs, it may have gone on since the database was read."""
        return to_text(row) in map(to_text, versions if self._running else versions[-1:])

    def _journal(self, id: int, journal: Journal, reports: _Reports) -> Iterator[Difference]:
        path, attempt = journal.path, journal.attempt
        if journal.unreadable:
            yield Difference(id, "journal", f"{path} cannot be read: {journal.unreadable}")
            return
        if journal.missing and not exists(path):
            yield Difference(id, "journal", f"{path} is missing")
            return
        own = reports.get((attempt.run_id, attempt.number, journal.of_chief), {})
        if len(journal.metrics) != len(own):
            many = f"{path} has {len(journal.metrics)} reports of metrics that count, the database {len(own)}"
            yield Difference(id, "journal", many)
        if other := [abs(row.seq) for row in journal.metrics if own.get(row.seq, digest := _digest(row)) != digest]:
            yield Difference(id, "journal", f"{path}: database and journal differ in report {some(other)}")
        yield from self._damaged(id, "journal", path, journal.damaged)

    def _damaged(self, id: int | None, where: str, path: Path, lines: list[int]) -> Iterator[Difference]:
        if lines:
            yield Difference(id, where, f"{path}: damaged lines: {some(lines)}")


def _reports(connection: Connection, id: int) -> _Reports:
    reports: _Reports = {}
    for metric in queries.metrics_of_experiment(connection, id):
        reports.setdefault((metric.run_id, metric.attempt, metric.seq > 0), {})[metric.seq] = _digest(metric)
    return reports


def _digest(metric: Metric) -> int:
    """Databases need not keep the order of keys."""
    return hash(json.dumps([metric.group, metric.steps_completed, metric.metrics], sort_keys=True, default=str))


def _checkpoint(experiment: Experiment, checkpoint: Checkpoint, home: Home) -> Iterator[Difference]:
    try:
        section = checkpoint.storage or TrialConfig.from_json(experiment.config).checkpoint_storage
        store = storage.build(section, spool=home.spool)
        if not store.exists(checkpoint.uuid):
            yield Difference(experiment.id, "checkpoint", f"checkpoint {checkpoint.uuid} is not in {store}")
        elif lost := _lost(checkpoint.resources, store.files(checkpoint.uuid)):
            yield Difference(experiment.id, "checkpoint", f"checkpoint {checkpoint.uuid}: {lost}")
    except (DethpcError, OSError) as error:
        problem = f"checkpoint {checkpoint.uuid} cannot be looked up: {error}"
        yield Difference(experiment.id, "checkpoint", problem)


def _lost(stored: Mapping[str, int], files: Mapping[str, int]) -> str:
    """What is missing or of another size. Nothing is read: that would take as long as to restore them all."""
    names = [path for path, size in stored.items() if files.get(path) != size]
    if not names:
        return ""
    how = f"has {files[names[0]]} bytes, and had {stored[names[0]]} when stored" if names[0] in files else "is missing"
    more = f", and {len(names) - 1} more of its {len(stored)} files differ" if len(names) > 1 else ""
    return f"{names[0]} {how}{more}"


def _names(keys: Iterable[Any]) -> str:
    names = [f"{kind.__name__} {'.'.join(map(str, key))}" for kind, key in keys]
    return ", ".join(names[:3]) + (
        f" and {len(names) - 3} more are" if len(names) > 3 else " are" if len(names) > 1 else " is"
    )
