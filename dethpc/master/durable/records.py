"""Records in the database, and beside it in ``records.jsonl``, so that ``det master rebuild`` brings them back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeVar

from sqlalchemy import Connection

from dethpc.domain.records import Record
from dethpc.errors import NotFound
from dethpc.master.durable.change_log import rows_of_file
from dethpc.master.durable.row_file import RowFile
from dethpc.rundir.home import Home
from dethpc.state import SqlStore
from dethpc.state.queries import records as stored
from dethpc.state.store import NarrowStore, ReadStore

log = logging.getLogger(__name__)

R = TypeVar("R")

MOST_LINES = 1000
"""Lines appended before the file is rewritten with what still counts."""


class RecordReader:
    """Looks records up, among those that ``store`` shows. Every method may be called from any thread."""

    def __init__(self, store: ReadStore) -> None:
        self._readable = store

    def reading(self) -> AbstractContextManager[Connection]:
        """A connection to read them along with other rows."""
        return self._readable.read()

    def get(self, kind: type[R], /, *key: Any) -> R:
        """Raises: NotFound."""
        with self.reading() as connection:
            return stored.get(connection, kind, *key)

    def live(self, kind: type[R], id: int, /) -> R:
        """The one of this id, unless it is deleted. Raises: NotFound."""
        with self.reading() as connection:
            return stored.get(connection, kind, id, deleted=False)

    def find(self, kind: type[R], /, **fields: Any) -> list[R]:
        """Those whose fields have these values, by key."""
        with self.reading() as connection:
            return stored.find(connection, kind, **fields)


class Records(RecordReader):
    """Every method may be called from any thread. The file says no more than the database. Of tokens and passwords
    both have digests; the URL of a webhook may be a secret."""

    def __init__(self, store: SqlStore, home: Home, check_lease: Callable[[], None] = lambda: None) -> None:
        """Rewrites the file where it does not say what the database does. ``check_lease``: see ``ChangeLog``. Raises: OSError."""
        super().__init__(store)
        self._store, self._home, self._check_lease = store, home, check_lease
        self._file = RowFile(home.records)
        self._lock = threading.RLock()
        self._lines = 0
        self._compact()

    def within(self, workspaces: frozenset[int] | None) -> RecordReader:
        """Those of these workspaces, and those that belong to none; None: all."""
        return RecordReader(self._store if workspaces is None else NarrowStore(self._store, workspaces))

    def exclusive(self) -> AbstractContextManager[object]:
        """While it is held, no other thread writes records: for what must hold of several, such as names that are unique."""
        return self._lock

    def add(self, kind: type[R], /, **fields: Any) -> R:
        """A new record with the next ``id``."""
        with self._lock:
            records: list[Any] = self.find(kind)
            constructor: Callable[..., Any] = kind
            record: R = constructor(id=max((one.id for one in records), default=0) + 1, **fields)
            self._put(record)
        return record

    def put(self, record: Record) -> None:
        """See ``ports.Store.put``."""
        with self._lock:
            self._put(record)

    def change(self, kind: type[R], /, *key: Any, to: Callable[[R], R]) -> R:
        """Put what ``to`` makes of the record in its place; nothing else changes it meanwhile. Raises: NotFound, and what ``to``
        raises."""
        with self._lock:
            changed = to(self.get(kind, *key))
            self._put(changed)
        return changed

    def copy(self, kind: type[Record], keys: Iterable[Sequence[Any]]) -> None:
        """Write to the file what the database holds under these keys: a transaction of the ledger put it there."""
        with self._lock:
            for key in keys:
                with suppress(NotFound):
                    self._write(self.get(kind, *key))

    def drop(self, record: Record) -> None:
        """See ``ports.Store.drop``."""
        with self._lock:
            self._store.drop(record)
            self._write(record, dropped=True)

    def _put(self, record: Any) -> None:
        self._store.put(record)
        self._write(record)

    def _write(self, record: Record, *, dropped: bool = False) -> None:
        """The database has the record already: when the file cannot be written, the next record or start mends it."""
        try:
            self._check_lease()
            if self._lines >= MOST_LINES or self._file.is_strange():
                self._compact()
            else:
                self._file.append([record], dropped=dropped)
                self._lines += 1
        except OSError as error:
            log.error("%s cannot be written: %s; it is tried again with the next change", self._file.path, error)
            self._lines = MOST_LINES

    def _compact(self) -> None:
        with self._store.read() as connection:
            rows = rows_of_file(connection, self._home, self._file.path)
        self._file.become(rows)
        self._lines = 0
