"""``det master rebuild``: the database made again from what is on shared_fs: change logs, journals, ``nodes.jsonl``,
``tasks.jsonl``, ``records.jsonl``. Whatever cannot be read costs itself alone, and is counted and named.

The new database is made beside the old one, and replaces it when complete. A rebuild that is killed leaves the old database
unchanged; the next one starts again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy.exc import OperationalError

from dethpc.domain.facts import Checkpoint, Experiment, Metric, Row, Run, Trial
from dethpc.domain.ports import Store
from dethpc.domain.states import RunState
from dethpc.domain.text.measures import plural
from dethpc.errors import StoreError
from dethpc.master.durable import ids
from dethpc.master.durable.change_log import file_of
from dethpc.master.durable.ids import Ids
from dethpc.master.durable.lease import Lease
from dethpc.master.durable.replay import Journal, history, journals, some
from dethpc.master.installation import cluster_id, site_of
from dethpc.rundir.files import status, write_json
from dethpc.rundir.home import Home
from dethpc.state import open_store, shadow

AT_ONCE = 5000
"""Rows in one commit: each waits for the disk."""

Progress = Callable[[int, int], None]
"""Hears how many experiments are done, of how many; at least once for each attempt."""


@dataclass(slots=True)
class Recreated:
    """What a rebuild made, and what it could not."""

    rows: Counter[type] = field(default_factory=Counter)
    damaged: dict[Path, list[int]] = field(default_factory=dict)  # numbers of lines that could not be read
    lost: dict[int, str] = field(default_factory=dict)  # experiments with files that make no experiment, and why
    unknown_runs: list[str] = field(default_factory=list)  # run directories that no change log mentions
    unreadable: dict[Path, str] = field(default_factory=dict)  # journals that cannot be read at all, and why
    missing: dict[Path, int] = field(default_factory=dict)  # how many reports that counted their journals lack

    @property
    def complete(self) -> bool:
        return not (self.damaged or self.lost or self.unknown_runs or self.unreadable or self.missing)


def rebuild(
    root: Path, site_file: Path | None = None, progress: Progress = lambda done, of: None
) -> tuple[Recreated, str | None]:
    """Make the database again from the shared file system. Returns what came of it, and where the old database is kept.

    Raises LeaseHeld while a master runs; Refused, OSError and StoreError, and then the old database is as it was.
    """
    home = Home(root)
    home.make()
    site = site_of(home, site_file)
    lease = Lease(home.master_file, cluster_id(home))
    lease.take()

    def alive(done: int, of: int) -> None:
        lease.renew()
        progress(done, of)

    try:
        new = shadow(site.database or home.database_url)
        with open_store(new.url) as store:
            recreated = recreate(home, store, alive)
        lost = lost_ids(recreated)
        write_json(home.losses, {"at": time.time(), "experiments": sorted(lost.experiments), "runs": sorted(lost.runs)})
        lease.check()
        return recreated, new.take_place()
    finally:
        lease.release()


def recreate(home: Home, store: Store, progress: Progress = lambda done, of: None) -> Recreated:
    """Fill an empty store from shared_fs alone. Raises OSError, StoreError."""
    return _Recreation(home, store, progress).run()


class _Recreation:
    def __init__(self, home: Home, store: Store, progress: Progress) -> None:
        self._home, self._store, self._progress = home, store, progress
        self._recreated = Recreated()
        self._waiting: list[Row] = []

    def run(self) -> Recreated:
        home, recreated, files = self._home, self._recreated, ids.in_files(self._home)
        for record in self._rows(home.records):
            self._store.put(record)
        known_runs: set[str] = set()
        for path in (home.node_changes, home.task_changes):
            rows = self._rows(path)
            known_runs.update(row.id for row in rows if isinstance(row, Run))
            self._commit(rows)
        experiments = sorted(files.experiments)
        for done, experiment_id in enumerate(experiments):
            self._progress(done, len(experiments))
            rows, why_lost = self._rows_of(experiment_id)
            if why_lost:
                recreated.lost[experiment_id] = why_lost
                continue
            known_runs.update(row.id for row in rows if isinstance(row, Run))
            self._commit(rows)
            live = {(row.id, row.attempt) for row in rows if isinstance(row, Run) and row.state is not RunState.ENDED}
            if any(isinstance(row, Experiment) and not row.state.keeps_files for row in rows):
                continue  # its journals are gone, or going, and nobody asks for its metrics
            for journal in journals(home, rows):
                self._progress(done, len(experiments))
                self._take_in(journal, live)
        self._flush()
        recreated.unknown_runs = sorted(files.runs - known_runs)
        self._progress(len(experiments), len(experiments))
        return recreated

    def _rows_of(self, experiment_id: int) -> tuple[list[Any], str]:
        """The rows of an experiment, or why it is lost."""
        path = self._home.changes(experiment_id)
        try:
            rows = self._rows(path)
        except OSError as error:
            return [], f"{path} cannot be read: {error.strerror}"
        if any(isinstance(row, Experiment) for row in rows):
            return rows, ""
        return [], f"{path} has no row of the experiment itself" if path.exists() else f"{path} is missing"

    def _rows(self, path: Path) -> list[Any]:
        """The last row of each key in a file, without those that belong into another."""
        bad: list[int] = []
        rows = [versions[-1] for versions in history(path, bad).values()]
        self._damaged(path, bad)
        return [row for row in rows if file_of(self._home, row) == path]

    def _take_in(self, journal: Journal, live: Collection[tuple[str, int]]) -> None:
        """``live``: the attempts that may still write."""
        attempt, path = journal.attempt, journal.path
        self._damaged(path, journal.damaged)
        if journal.unreadable:
            self._recreated.unreadable[path] = journal.unreadable
        if journal.missing:
            self._recreated.missing[path] = journal.missing
            if (attempt.run_id, attempt.number) in live and _size(path) >= attempt.applied_offset:
                # A full disk refused them, and they came by HTTP alone. They count when their writer has written them.
                self._commit([replace(attempt, applied_seq=min(attempt.applied_seq, journal.last))])
        self._commit(journal.metrics)

    def _damaged(self, path: Path, lines: list[int]) -> None:
        if lines:
            self._recreated.damaged.setdefault(path, []).extend(lines)

    # --- the store

    def _commit(self, rows: Sequence[Row]) -> None:
        self._waiting += rows
        if len(self._waiting) >= AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._store_all(waiting)
        self._recreated.rows.update(type(row) for row in waiting)

    def _store_all(self, rows: Sequence[Row]) -> None:
        """One report that the database does not take must not keep out the others."""
        try:
            self._store.commit(rows)
        except StoreError as error:
            if isinstance(error.__cause__, OperationalError) or (len(rows) == 1 and not isinstance(rows[0], Metric)):
                raise
            if len(rows) == 1:
                metric: Any = rows[0]
                attempt = self._home.find(metric.run_id).attempt(metric.attempt)
                self._damaged(attempt.journal if metric.seq >= 0 else attempt.master_journal, [abs(metric.seq)])
                return
            half = len(rows) // 2
            self._store_all(rows[:half])
            self._store_all(rows[half:])


def _size(journal: Path) -> int:
    try:
        return status(journal).st_size
    except FileNotFoundError:
        return 0


def lost_ids(recreated: Recreated) -> Ids:
    """What no database knows, although it has files."""
    return Ids(frozenset(recreated.lost), frozenset(recreated.unknown_runs))


def sentences(recreated: Recreated) -> Iterator[str]:
    """What was recreated, then one line for each thing that was not."""
    counts = [
        (Experiment, "experiment"),
        (Trial, "trial"),
        (Run, "run"),
        (Metric, "metric report"),
        (Checkpoint, "checkpoint"),
    ]
    yield ", ".join(f"{plural(recreated.rows[kind], noun)}" for kind, noun in counts) + " recreated"
    for id, why in recreated.lost.items():
        yield f"experiment {id} could not be recreated: {why}. Its files stay where they are, and its id is not given again"
    for path, lines in recreated.damaged.items():
        yield f"{path}: {plural(len(lines), 'line')} could not be read (line {some(lines)})"
    for path, why in recreated.unreadable.items():
        yield f"{path} cannot be read: {why}. What it reported is missing: rebuild again when it can be read"
    for path, count in recreated.missing.items():
        yield f"{path} is missing or has lost its end: {plural(count, 'report')} that counted cannot be recreated"
    if recreated.unknown_runs:
        number = plural(len(recreated.unknown_runs), "run directory", "run directories")
        yield f"{number} of which no change log knows: {some(recreated.unknown_runs)}"
