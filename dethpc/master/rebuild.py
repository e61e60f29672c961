"""``det master rebuild``: the database made again from what is on shared_fs: change logs, journals, ``nodes.jsonl``,
``tasks.jsonl``, ``records.jsonl``. Whatever cannot be read costs itself alone, and is counted and named.

The new database is made beside the old one, and replaces it when complete. A rebuild that is killed leaves the old database
unchanged; the next one starts again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy.exc import OperationalError

from dethpc.domain import facts
from dethpc.domain.facts import Attempt, Checkpoint, Experiment, Metric, Row, Run, Task, Trial
from dethpc.domain.ports import Store
from dethpc.domain.reports import Report, ReportKind
from dethpc.domain.states import RunState
from dethpc.engine.reports import metric_of
from dethpc.errors import StoreError
from dethpc.master.durable import ids, records
from dethpc.master.durable.change_log import file_of
from dethpc.master.durable.ids import Ids
from dethpc.master.durable.lease import Lease
from dethpc.master.durable.row_file import RowFile
from dethpc.master.installation import cluster_id, site_of
from dethpc.rundir.files import status, write_json
from dethpc.rundir.home import Home
from dethpc.rundir.journal import A_LOOK, RemainsReader
from dethpc.state import beside, open_store

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
    root: Path, site_file: Path | None = None, progress: Callable[[int, int], None] = lambda done, of: None
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
        new = beside(site.database or home.database_url)
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
        self._made = Recreated()
        self._waiting: list[Row] = []

    def run(self) -> Recreated:
        home, made, files = self._home, self._made, ids.in_files(self._home)
        bad: list[int] = []
        records.recreate(home, self._store, bad)
        self._damaged(home.records, bad)
        known_runs: set[str] = set()
        for path in (home.node_changes, home.task_changes):
            self._commit(self._rows(path))
        experiments = sorted(files.experiments)
        for done, experiment_id in enumerate(experiments):
            self._progress(done, len(experiments))
            rows, why_lost = self._rows_of(experiment_id)
            if why_lost:
                made.lost[experiment_id] = why_lost
                continue
            known_runs.update(row.id for row in rows if isinstance(row, Run))
            self._commit(rows)
            if any(isinstance(row, Experiment) and not row.state.keeps_files for row in rows):
                continue  # its journals are gone, or going, and nobody asks for its metrics
            self._metrics(experiment_id, rows, lambda: self._progress(done, len(experiments)))  # noqa: B023
        self._flush()
        made.unknown_runs = sorted(files.runs - known_runs)
        self._progress(len(experiments), len(experiments))
        return made

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
        """The last row of each key in a file. One that is none of the file's own is damaged."""
        bad: list[int] = []
        last: dict[Any, Any] = {}
        for row in RowFile(path).rows(bad):
            if file_of(self._home, row) == path:
                last[type(row), facts.key(row)] = row
        self._damaged(path, bad)
        return list(last.values())

    def _damaged(self, path: Path, lines: list[int]) -> None:
        if lines:
            self._made.damaged.setdefault(path, []).extend(lines)

    # --- metrics

    def _metrics(self, experiment_id: int, rows: Sequence[Any], alive: Callable[[], None]) -> None:
        trials = {row.id: row.trial_id for row in rows if isinstance(row, Task) and row.trial_id is not None}
        live = {(row.id, row.attempt) for row in rows if isinstance(row, Run) and row.state is not RunState.ENDED}
        for attempt in rows:
            trial_id = trials.get(attempt.task_id) if isinstance(attempt, Attempt) else None
            if trial_id is not None:
                alive()
                may_write = (attempt.run_id, attempt.number) in live
                self._commit(list(self._from_journal(experiment_id, trial_id, attempt, may_write=may_write)))
                self._commit(list(self._taken(experiment_id, trial_id, attempt)))

    def _from_journal(
        self, experiment_id: int, trial_id: int, attempt: Attempt, *, may_write: bool
    ) -> Iterator[Metric | Attempt]:
        journal = self._home.kept(attempt.run_id).attempt(attempt.number).journal
        if (found := self._read(journal)) is None:
            return
        reports, damaged = found
        counted = [report for report in reports if report.seq <= attempt.applied_seq]
        if attempt.applied_seq > len(counted) + len(damaged):
            self._made.missing[journal] = attempt.applied_seq - len(counted) - len(damaged)
            if may_write and _size(journal) >= attempt.applied_offset:
                # A full disk refused them, and they came by HTTP alone. They count when their writer has written them.
                yield replace(attempt, applied_seq=min(attempt.applied_seq, _last(reports, damaged)))
        yield from self._of(counted, journal, experiment_id, trial_id, attempt)

    def _read(self, journal: Path) -> tuple[list[Report], list[int]] | None:
        """As ``read_all``, what is damaged counted; None for a journal that cannot be read, which is remembered."""
        try:
            reports, damaged = read_all(journal)
        except OSError as error:
            self._made.unreadable[journal] = str(error.strerror)
            return None
        self._damaged(journal, damaged)
        return reports, damaged

    def _taken(self, experiment_id: int, trial_id: int, attempt: Attempt) -> Iterator[Metric]:
        """What did not come from the chief: all that the master wrote down counted, but for what a later attempt trained again."""
        journal = self._home.kept(attempt.run_id).attempt(attempt.number).taken
        if (found := self._read(journal)) is None:
            return
        reports, _ = found
        numbered = [report._replace(seq=-report.seq) for report in reports]
        yield from self._of(numbered, journal, experiment_id, trial_id, attempt)

    def _of(
        self, reports: Sequence[Report], journal: Path, experiment_id: int, trial_id: int, attempt: Attempt
    ) -> Iterator[Metric]:
        for report in reports:
            if report.kind == ReportKind.METRICS:
                try:
                    yield _metric(experiment_id, trial_id, attempt, report)
                except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
                    self._damaged(journal, [abs(report.seq)])

    # --- the store

    def _commit(self, rows: Sequence[Row]) -> None:
        self._waiting += rows
        if len(self._waiting) >= AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._store_all(waiting)
        self._made.rows.update(type(row) for row in waiting)

    def _store_all(self, rows: Sequence[Row]) -> None:
        """One report that the database does not take must not keep out the others."""
        try:
            self._store.commit(rows)
        except StoreError as error:
            if isinstance(error.__cause__, OperationalError) or (len(rows) == 1 and not isinstance(rows[0], Metric)):
                raise
            if len(rows) == 1:
                metric: Any = rows[0]
                attempt = self._home.kept(metric.run_id).attempt(metric.attempt)
                self._damaged(attempt.journal if metric.seq >= 0 else attempt.taken, [abs(metric.seq)])
                return
            half = len(rows) // 2
            self._store_all(rows[:half])
            self._store_all(rows[half:])


def _metric(experiment_id: int, trial_id: int, attempt: Attempt, report: Report) -> Metric:
    steps = int(report.data["steps_completed"])
    if not -(2**63) <= steps < 2**63:
        raise ValueError("steps_completed is out of range")
    return metric_of(experiment_id, trial_id, attempt, report)


def read_all(journal: Path) -> tuple[list[Report], list[int]]:
    """Every report of a journal that can be read, and the numbers of its damaged lines. Raises OSError."""
    reports: list[Report] = []
    damaged: list[int] = []
    reader = RemainsReader(journal, damaged=damaged)
    while not reader.whole:
        reports += reader.read(A_LOOK)
    return reports, damaged


def _last(reports: Sequence[Report], damaged: Sequence[int]) -> int:
    """The number of a journal's last line."""
    return max([0, *damaged[-1:], *(report.seq for report in reports[-1:])])


def _size(journal: Path) -> int:
    try:
        return status(journal).st_size
    except FileNotFoundError:
        return 0


def lost_ids(made: Recreated) -> Ids:
    """What no database knows, although it has files."""
    return Ids(frozenset(made.lost), frozenset(made.unknown_runs))


def sentences(made: Recreated) -> Iterator[str]:
    """What was recreated, then one line for each thing that was not."""
    counts = [
        (Experiment, "experiment"),
        (Trial, "trial"),
        (Run, "run"),
        (Metric, "metric report"),
        (Checkpoint, "checkpoint"),
    ]
    yield ", ".join(f"{_count(made.rows[kind], noun)}" for kind, noun in counts) + " recreated"
    for id, why in made.lost.items():
        yield f"experiment {id} could not be recreated: {why}. Its files stay where they are, and its id is not given again"
    for path, lines in made.damaged.items():
        some = ", ".join(map(str, lines[:5])) + (", ..." if len(lines) > 5 else "")
        yield f"{path}: {_count(len(lines), 'line')} could not be read (line {some})"
    for path, why in made.unreadable.items():
        yield f"{path} cannot be read: {why}. What it reported is missing: rebuild again when it can be read"
    for path, number in made.missing.items():
        yield f"{path} is missing or has lost its end: {_count(number, 'report')} that counted cannot be recreated"
    if made.unknown_runs:
        some = ", ".join(made.unknown_runs[:5]) + (", ..." if len(made.unknown_runs) > 5 else "")
        yield f"{_count(len(made.unknown_runs), 'run directory', 'run directories')} of which no change log knows: {some}"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
