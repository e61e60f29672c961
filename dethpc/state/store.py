"""The store: one writer thread, a pool of readers, SQLite or PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Text, func, or_, select, type_coerce

from dethpc.domain import facts, records
from dethpc.domain.facts import Attempt, Experiment, Row, Run, Task, Trial
from dethpc.domain.ports import Snapshot
from dethpc.domain.records import Record
from dethpc.domain.states import RunState, State
from dethpc.errors import StoreError, StoreUnavailable
from dethpc.state import engines, migrate, narrowing, rows
from dethpc.state.columns import Json, decoded
from dethpc.state.engines import Absence
from dethpc.state.tables import REVISION
from dethpc.state.writer import Writer

Result = TypeVar("Result")

_TERMINAL = [state for state in State if state.terminal]
_LIVE_RUN = [state for state in RunState if state is not RunState.ENDED]


def open_store(url: str | os.PathLike[str]) -> SqlStore:
    """Open the database, making or migrating it when needed.

    ``url`` is the path of an SQLite file, ``sqlite:///PATH`` or ``postgresql://USER@HOST/DATABASE``. Raises: StoreError, also
    when a newer release wrote the database.
    """
    return SqlStore(str(url))


def absent(url: str) -> str | None:
    """Why there is nothing to read in a database: a phrase that names it; None when there is. Raises: StoreError."""
    parsed = engines.parse(url)
    if isinstance(parsed, Path) and not parsed.exists():
        return f"{parsed} is missing"
    writing, engine = engines.connect(url)
    try:
        with engines.as_store_error(), engine.begin() as connection:
            name = parsed if isinstance(parsed, Path) else f"{parsed.database or 'the database'} on its server"
            return None if migrate.revision(connection) else f"{name} is empty"
    finally:
        engine.dispose()
        writing.dispose()


@contextmanager
def reading(url: str | os.PathLike[str]) -> Iterator[Connection]:
    """A read-only connection to a database that is there, which is neither made nor migrated. Raises: StoreError."""
    writing, engine = engines.connect(str(url))
    try:
        with engines.as_store_error(), engine.begin() as connection:
            if (schema := migrate.revision(connection)) != REVISION:
                raise StoreError(
                    f"the state database has schema {schema}, this release reads {REVISION}; det master down ends a master of "
                    "another release, and one of this release brings an older database up to date when it starts"
                )
            yield connection
    finally:
        engine.dispose()
        writing.dispose()


class SqlStore:
    """``domain.ports.Store`` on SQL. Every method may be called from any thread."""

    def __init__(self, url: str) -> None:
        self.next_ids = 1, 1
        """The least ids that ``load`` gives to the next experiment and trial: there may have been more than the database knows."""
        self._absence = Absence()
        self._write_engine, self._read_engine = engines.connect(url)
        try:
            with engines.as_store_error(), self._write_engine.begin() as connection:
                migrate.upgrade(connection)
            self._writer = Writer(self._write_engine, self._absence)
            narrowing.listen(self._read_engine)
        except BaseException:
            self._dispose()
            raise

    @property
    def before_commit(self) -> Callable[[], None] | None:
        """Called in the writer thread just before each commit; a DethpcError that it raises undoes the commit and reaches
        everyone who waits for it."""
        return self._writer.before_commit

    @before_commit.setter
    def before_commit(self, check: Callable[[], None] | None) -> None:
        self._writer.before_commit = check

    def commit(self, rows: Sequence[Row | Record]) -> None:
        """See ``ports.Store.commit``. What an attempt's ``void_after`` voided stays void."""
        self.begin(rows).result()

    def begin(self, rows: Sequence[Row | Record]) -> Future[None]:
        """As ``commit``, without waiting: commits that wait together share a transaction. The rows must not change."""
        return self._writer.submit(rows)

    def write(self, work: Callable[[Connection], Result]) -> Result:
        """Run ``work`` in a transaction of the writer and return its result; its exceptions undo the transaction.

        ``work`` may run again when a shared transaction failed.
        """
        future: Future[Result] = self._writer.submit(work)
        return future.result()

    def put(self, record: Record) -> None:
        """See ``ports.Store.put``."""
        self.write(lambda connection: rows.upsert(connection, type(record), [record]))

    def drop(self, record: Record) -> None:
        """See ``ports.Store.drop``."""
        self.write(lambda connection: rows.drop(connection, type(record), records.key(record)))

    @contextmanager
    def read(self, workspaces: Collection[int] | None = None) -> Iterator[Connection]:
        """A read-only connection that sees one committed state throughout, of these workspaces alone where it is told any. Give it
        back soon."""
        try:
            with engines.as_store_error(), self._read_engine.begin() as connection:
                self._absence.over()
                if workspaces is not None:
                    narrowing.narrow(connection, workspaces)
                yield connection
        except StoreUnavailable as error:
            self._absence.met(error)
            raise

    def load(self, also: Sequence[int] = ()) -> Snapshot:
        """Rows of every experiment that has not ended, or of which a run has not, and of those with the ids ``also``."""
        experiment, trial = rows.table(Experiment), rows.table(Trial)
        unfinished = select(rows.table(Run).c.experiment_id).where(rows.table(Run).c.state.in_(_LIVE_RUN))
        in_memory = select(experiment.c.id).where(
            or_(experiment.c.state.not_in(_TERMINAL), experiment.c.id.in_(unfinished))
        )
        with self.read() as connection:
            ids = sorted({*connection.scalars(in_memory), *also})
            shared = Shared()
            return Snapshot(
                {fact: shared.read(connection, fact, *_of_experiments(fact, ids)) for fact in facts.IN_MEMORY},
                next_experiment_id=max(
                    self.next_ids[0], (connection.scalar(select(func.max(experiment.c.id))) or 0) + 1
                ),
                next_trial_id=max(self.next_ids[1], (connection.scalar(select(func.max(trial.c.id))) or 0) + 1),
            )

    def close(self) -> None:
        """Finish waiting commits and close. May be called again."""
        self._writer.close()
        self._dispose()

    def __enter__(self) -> SqlStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _dispose(self) -> None:
        self._read_engine.dispose()
        self._write_engine.dispose()  # last: SQLite folds its log into the file when the last connection goes


@dataclass(frozen=True)
class NarrowStore:
    """What reads of a store where only some workspaces are to be seen."""

    store: SqlStore
    workspaces: frozenset[int]

    def read(self) -> AbstractContextManager[Connection]:
        """See ``SqlStore.read``."""
        return self.store.read(self.workspaces)


ReadStore = SqlStore | NarrowStore
"""What is read, and nothing more."""


def _of_experiments(fact: type[Any], ids: Sequence[int]) -> list[ColumnElement[bool]]:
    """Of which rows of a kind belong to these experiments; of a kind that belongs to no experiment all do."""
    columns = rows.table(fact).c
    if fact is Experiment:
        return [columns.id.in_(ids)]
    if fact in (Task, Run, Attempt):
        task, run = rows.table(Task).c, rows.table(Run).c
        live = or_(task.state.not_in(_TERMINAL), task.id.in_(select(run.task_id).where(run.state.in_(_LIVE_RUN))))
        own = select(task.id).where(task.trial_id.is_(None), live)
        return [or_(columns.experiment_id.in_(ids), (columns.id if fact is Task else columns.task_id).in_(own))]
    return [columns.experiment_id.in_(ids)] if "experiment_id" in columns else []


Fact = TypeVar("Fact")


class Shared:
    """Reads as ``rows.read`` does, and gives every text, and every list or mapping, that it has given before, once more. What it
    reads is never to be altered. It remembers all of them: keep it no longer than the reading takes."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._decoded: dict[Any, Any] = {}  # by what the database has

    def read(self, connection: Connection, fact: type[Fact], *where: ColumnElement[bool]) -> list[Fact]:
        """All matching facts, by primary key."""
        table = rows.table(fact)
        columns = [table.c[name] for name in rows.names(fact)]
        takes = [self._value if isinstance(column.type, Json) else self._text for column in columns]
        selection = select(*(type_coerce(c, Text) if isinstance(c.type, Json) else c for c in columns))
        result = connection.execute(selection.where(*where).order_by(*table.primary_key.columns))
        return [fact(*(take(value) for take, value in zip(takes, row, strict=True))) for row in result]

    def _text(self, value: Any) -> Any:
        return self._texts.setdefault(value, value) if type(value) is str else value

    def _value(self, text: Any) -> Any:
        if text not in self._decoded:
            self._decoded[text] = decoded(text)
        return self._decoded[text]
