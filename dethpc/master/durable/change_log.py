"""The master's decisions beside its database: ``changes.jsonl`` per experiment. ``recreate`` is the way back from there.

Every committed row but metrics, and what was seen of pools, is appended to its experiment's file; what is held against nodes has a
file of its own. Metrics are in the journals of the attempts. Together they are enough to make the database again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection

from dethpc.domain import records
from dethpc.domain.facts import IN_MEMORY, Experiment, Metric, NodeHealth, PoolState, Row, Run
from dethpc.domain.ports import Snapshot
from dethpc.domain.states import RunState
from dethpc.errors import StoreError
from dethpc.master.durable import ids
from dethpc.master.durable.ledger import Unwritten
from dethpc.master.durable.row_file import RowFile, from_line, to_text
from dethpc.rundir.home import Home
from dethpc.state import SqlStore, queries
from dethpc.state import rows as stored

log = logging.getLogger(__name__)

ENDED_LAST = 100
"""Experiments that the last master can have ended without appending it: what it commits at once is far less."""

GROWTH = 1 << 20
"""Bytes by which a file may grow beyond twice its size when it was compacted last, before it is compacted again."""

MOST_ANNOUNCED = 100
"""Experiments that are written down as about to change, before those whose rows were appended are forgotten."""


class ChangeLog:
    """Appends committed rows to their experiments' files. One thread writes.

    ``check_lease`` raises LeaseHeld when another master has taken over: what this one committed before that, the other has written
    already, and newer rows of the same keys behind it. One that is frozen between that look and its append appends all the
    same when it is thawed. The other finds the file strange then, at its next append or soon after, and says again what the
    database holds.
    """

    def __init__(self, home: Home, check_lease: Callable[[], None] = lambda: None) -> None:
        self._home, self._check_lease = home, check_lease
        self._announced: set[str] = set()
        self._announced_in = home.announced(uuid4().hex[:8])
        self._behind = False  # rows were committed, and are not in their files
        self._compacted: dict[Path, int] = {}  # bytes after the last time
        self._store: SqlStore | None = None  # what is right where a file is strange
        self._next_id = 0  # of the first experiment that is created from now on
        self._files: dict[Path, RowFile] = {}  # that this master has appended to
        self._turns: deque[Path] = deque()  # the same; one is looked at with each append, however long ago its last was

    def announce(self, rows: Sequence[Row]) -> None:
        """Before a commit: write down which experiments it changes. Should this master be killed before it has appended the rows,
        the next one looks at these, however long ago they ended. Raises LeaseHeld."""
        concerned = _entries(rows)
        if concerned <= self._announced:
            return
        if len(self._announced) >= MOST_ANNOUNCED and not self._behind:
            self._announced.clear()
        fresh = concerned - self._announced
        try:
            self._check_lease()
            with open(self._announced_in, "a" if self._announced else "w") as file:
                file.write("".join(f"{entry}\n" for entry in fresh))
        except OSError as error:
            log.error("%s cannot be written: %s", self._announced_in, error)
            return
        self._announced |= fresh

    def append(self, rows: Sequence[Row]) -> None:
        """Raises: Unwritten when files could not be written, with their rows: those of the others are in theirs. LeaseHeld."""
        unwritten, trouble = self._append(rows)
        if trouble is not None:
            raise Unwritten(trouble, unwritten) from trouble

    def _append(self, rows: Sequence[Row]) -> tuple[list[Row], OSError | None]:
        """The rows whose files could not be written, some of which may be there all the same, and the first reason. One file's
        trouble is its own."""
        self._behind = True
        unwritten: list[Row] = []
        trouble: OSError | None = None
        for path, group in self._by_file(rows).items():
            file = self._file(path)
            try:
                self._mend(file)
                ended = any(isinstance(row, Experiment) and row.state.terminal for row in group)
                if ended and (own := _last_own(path)) and own.state.terminal:
                    # It was compacted then: it is described now, perhaps.
                    ended = False
                    self._compacted.setdefault(path, path.stat().st_size)
                self._check_lease()  # after that, which is a write that it may be frozen in
                begun = file.append(group)
                size = path.stat().st_size
                if begun:
                    self._compacted[path] = size  # a search may begin with thousands of trials, each with a line
                if ended or size > 2 * self._compacted.get(path, 0) + GROWTH:
                    self._compact(path, ended=ended)
            except OSError as error:
                trouble = trouble or error
                unwritten += group
        self._behind = bool(unwritten)
        self._mend_another()
        return unwritten, trouble

    def _file(self, path: Path) -> RowFile:
        if path not in self._files:
            self._files[path] = RowFile(path)
            self._turns.append(path)
        return self._files[path]

    def _mend_another(self) -> None:
        """Nobody may ever append again to a file that a thawed master wrote to: its experiment has ended."""
        if not self._turns:
            return
        self._turns.rotate(-1)
        file = self._files[self._turns[-1]]
        try:
            self._mend(file)
        except OSError as error:
            log.error("%s is tried again: %s", file.path, error)

    def _mend(self, file: RowFile) -> None:
        """Where another process wrote, or removed it: say again what the database holds. Raises: OSError, LeaseHeld."""
        if self._store is None or not ((strange := file.is_strange()) or self._is_gone(file)):
            return
        if strange:  # else it may just be the first task of an installation
            log.warning("%s was changed by another process: what it says is compared with the database", file.path)
        self._check_lease()
        try:
            with self._store.read() as connection:
                rows = rows_of_file(connection, self._home, file.path)
        except StoreError as error:
            raise OSError(errno.EIO, str(error), str(file.path)) from error
        if file.path.exists():
            file.insist(rows)
        else:
            file.become(rows)

    def _is_gone(self, file: RowFile) -> bool:
        """Whether a file that this master has not written to yet is missing, although its experiment is older than this master."""
        own = file.path.parent.parent == self._home.experiments
        old = not own or int(file.path.parent.name) < self._next_id
        return old and not file.begun and not file.path.exists()

    def _compact(self, path: Path, *, ended: bool) -> None:
        """A file costs no more than some lines for each row, however frequently rows change."""
        try:
            self._file(path).compact(self._check_lease)
        except OSError as error:  # it is what it was
            log.warning("%s could not be compacted: %s", path, error)
        if ended:
            self._compacted.pop(path, None)
        else:
            self._compacted[path] = path.stat().st_size

    def catch_up(self, store: SqlStore) -> Snapshot | None:
        """After a start: write what the last master committed but did not live to append.

        Returns what memory is to be made of, so that nobody reads it again; None where more was read than that. Raises: OSError;
        Refused, before anything is written, when a file has rows that the database does not know.
        """
        self._store = store
        with store.read() as connection:
            ended = queries.ended_last(connection, ENDED_LAST)
        announced = self._home.all_announced()
        listed, alone, tasks = _listed(announced)
        endless = [experiment for experiment in ended if experiment.id not in alone and not self._has_end(experiment)]
        behind = {experiment.id for experiment in endless} | listed
        snapshot = store.load(also=sorted(behind))
        self._next_id = snapshot.next_experiment_id
        late: list[Row] = []
        rows_by_file = self._by_file([row for fact in IN_MEMORY for row in snapshot.of(fact)])
        if tasks:
            with store.read() as connection:
                rows_by_file[self._home.task_changes] = rows_of_file(connection, self._home, self._home.task_changes)
        for path, rows in rows_by_file.items():
            missing, unknown = RowFile(path).compare(rows)
            if path.parent.parent == self._home.experiments:  # the other files keep rows of what has ended, too
                ahead = [row for row in unknown if file_of(self._home, row) == path] + _ended(path, missing)
                if ahead:
                    raise ids.knows_less(self._home, [f"{len(ahead)} of the rows in {path}"])
            if missing:
                log.info("%s: %d rows were committed but not appended", path, len(missing))
                late += missing
        late += endless  # the last of their files then, where the next start looks for them
        late += [
            experiment
            for experiment in _experiments(store, alone - behind)
            if experiment.state.terminal and not self._has_end(experiment)
        ]
        _, trouble = self._append(late)
        if trouble is not None:
            raise trouble
        for path in announced:  # all that they announced is in its file now
            with contextlib.suppress(OSError):  # the next start looks there once more, and finds nothing missing
                path.unlink()
        return None if behind else snapshot

    def _has_end(self, experiment: Experiment) -> bool:
        """Whether the row of an experiment that has ended is what its file says last, near its end."""
        text = to_text(experiment)
        own = _last_own(self._home.changes(experiment.id), _NEAR + len(text))
        return own is not None and to_text(own) == text

    def _by_file(self, rows: Sequence[Row]) -> dict[Path, list[Row]]:
        grouped: dict[Path, list[Row]] = {}
        paths: dict[object, Path | None] = {}  # to make one for each row takes longer than to read it
        for row in rows:
            which = type(row) if isinstance(row, (Metric, PoolState, NodeHealth)) else _concerned(row)
            if which not in paths:
                paths[which] = file_of(self._home, row)
            if (path := paths[which]) is not None:
                grouped.setdefault(path, []).append(row)
        return grouped


_NEAR = 1 << 16
"""Bytes of a file's end in which what an experiment's own row says is looked for."""

_TASKS = "tasks"
"""The rows of tasks that belong to no experiment."""

_ALONE = "alone"
"""Behind the id of an experiment of whose rows no other changes than its own: it has ended, and is described, say, or archived."""


def _entries(rows: Sequence[Row]) -> set[str]:
    """Lines that announce them."""
    own = {id(row) for row in rows if isinstance(row, Experiment) and row.state.terminal and row.state.keeps_files}
    more = {str(number) for row in rows if id(row) not in own and (number := _concerned(row)) is not None}
    alone = {row.id for row in rows if isinstance(row, Experiment) and id(row) in own and str(row.id) not in more}
    tasks = any(_concerned(row) is None for row in rows if not isinstance(row, (NodeHealth, PoolState)))
    return more | {f"{number} {_ALONE}" for number in alone} | ({_TASKS} if tasks else set())


def _listed(announced: Sequence[Path]) -> tuple[set[int], set[int], bool]:
    """Experiments of which any row may have changed, and those of which none but their own did; whether tasks of their own did."""
    entries: set[str] = set()
    for path in announced:
        with contextlib.suppress(FileNotFoundError):
            entries.update(path.read_text("ascii", "replace").splitlines())
    numbers: dict[bool, set[int]] = {False: set(), True: set()}
    for number, _, rest in (line.partition(" ") for line in entries):
        if number.isdecimal():
            numbers[rest == _ALONE].add(int(number))
    return numbers[False], numbers[True] - numbers[False], _TASKS in entries


def _experiments(store: SqlStore, ids: Collection[int]) -> list[Experiment]:
    with store.read() as connection:
        return stored.read(connection, Experiment, stored.table(Experiment).c.id.in_(ids)) if ids else []


def _last_own(path: Path, near: int = _NEAR) -> Experiment | None:
    """The last row of the experiment itself, where it is whole and so many bytes of the file's end have it. Raises: OSError."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - near))
            own = [line for line in file if line.startswith(_OWN)]
    except FileNotFoundError:
        return None
    with contextlib.suppress(ValueError):
        row: Experiment | None = from_line(own[-1])[2] if own else None
        return row
    return None


_OWN = b'{"table": "Experiment"'


def _ended(path: Path, rows: Sequence[Row]) -> list[Run]:
    """The runs that have ended by the file, and not by ``rows``. None begins again: where there is one, the rows are older."""
    live = {row.id for row in rows if isinstance(row, Run) and row.state is not RunState.ENDED}
    last = {row.id: row for row in RowFile(path).rows() if isinstance(row, Run)} if live else {}
    return [last[id] for id in live & last.keys() if last[id].state is RunState.ENDED]


def file_of(home: Home, row: Any) -> Path | None:
    """The file that keeps a row; None: none does."""
    if isinstance(row, (Metric, PoolState)):
        return None
    if type(row) in records.KEYS:
        return home.records
    if isinstance(row, NodeHealth):
        return home.node_changes
    experiment_id = _concerned(row)
    return home.task_changes if experiment_id is None else home.changes(experiment_id)


def rows_of_file(connection: Connection, home: Home, path: Path) -> list[Any]:
    """The rows of the database that a file keeps: a change log, or ``records.jsonl``."""
    if path == home.records:
        return list(chain.from_iterable(stored.read(connection, kind) for kind in records.KEYS))
    if path == home.node_changes:
        return list(stored.read(connection, NodeHealth))
    experiment_id = int(path.parent.name) if path.parent.parent == home.experiments else None
    rows: list[Any] = []
    for fact in (fact for fact in IN_MEMORY if fact not in (PoolState, NodeHealth)):
        own = stored.table(fact).c["id" if fact is Experiment else "experiment_id"]
        rows += stored.read(connection, fact, own == experiment_id)
    return rows


def _concerned(row: Row) -> int | None:
    """The id of the experiment that the row belongs to."""
    if isinstance(row, (NodeHealth, PoolState)):
        return None
    return row.id if isinstance(row, Experiment) else row.experiment_id
