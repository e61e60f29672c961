"""The one thread that writes. Everything that waits when a transaction begins shares it: group commit."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DatabaseError, DBAPIError, InternalError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from dethpc.domain.facts import Row
from dethpc.domain.records import Record
from dethpc.errors import DethpcError, StoreError, StoreUnavailable, UnfitRow
from dethpc.state import engines, rows
from dethpc.state.engines import Absence
from dethpc.state.sums import Recent

_MOST_ROWS = 20_000
"""Rows in one transaction, so that nobody waits long for others."""

Work = Callable[[Connection], Any]

_OF_THE_DATABASE = (OperationalError, InternalError, PoolTimeout)
"""What a database raises that is full, locked, damaged or gone, whatever the rows."""


@dataclass(slots=True)
class _Item:
    work: Work | Sequence[Row | Record]
    future: Future[Any] = field(default_factory=Future)

    @property
    def size(self) -> int:
        return 1 if callable(self.work) else len(self.work)


class Writer:
    """Runs work in transactions on ``engine``, in the order of submission."""

    def __init__(self, engine: Engine, absence: Absence) -> None:
        self.before_commit: Callable[[], None] | None = None
        self._engine, self._recent, self._absence = engine, Recent(), absence
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # nothing enters the queue after the end mark
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Work | Sequence[Row | Record]) -> Future[Any]:
        """The future is done when the work is committed, or when it failed and nothing of it is stored."""
        item = _Item(work)
        with self._lock:
            if self._closed:
                raise StoreError("the store is closed")
            self._queue.put(item)
        return item.future

    def close(self) -> None:
        """Finish what was submitted."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        ended = False
        while not ended:
            first = self._queue.get()
            items: list[_Item] = []
            size = 0
            while first is not None:
                items.append(first)
                size += first.size
                if size >= _MOST_ROWS:
                    break
                try:
                    first = self._queue.get_nowait()
                except queue.Empty:
                    break
            ended = first is None
            if items:
                self._group(items)

    def _group(self, items: list[_Item]) -> None:
        try:
            results = self._once_more(items)
        except BaseException as error:
            if len(items) > 1 and not engines.unavailable(error):  # one of them is to blame; the others must not suffer
                for item in items:
                    self._group([item])
                return
            if isinstance(failure := _failure(items[0], error), StoreUnavailable):
                self._absence.met(failure)
            for item in items:
                item.future.set_exception(_failure(item, error))
            return
        self._absence.over()
        for item, result in zip(items, results):
            item.future.set_result(result)

    def _once_more(self, items: Sequence[_Item]) -> list[Any]:
        """A lost connection is made again once. The work can be repeated even when the lost answer was that it is stored: rows
        have keys."""
        try:
            return self._transaction(items)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            return self._transaction(items)

    def _transaction(self, items: Sequence[_Item]) -> list[Any]:
        try:
            return self._write(items)
        except BaseException:
            self._recent.forget()
            raise

    def _write(self, items: Sequence[_Item]) -> list[Any]:
        results: list[Any] = []
        with self._engine.begin() as connection:
            together: list[Row | Record] = []
            for item in items:
                if callable(item.work):
                    rows.write(connection, together, self._recent)
                    together = []
                    results.append(item.work(connection))
                else:
                    together.extend(item.work)
                    results.append(None)
            rows.write(connection, together, self._recent)
            if self.before_commit is not None:
                self.before_commit()
        return results


def _failure(item: _Item, error: BaseException) -> BaseException:
    # A value that fits no column makes the driver raise anything, such as OverflowError.
    unfit = not callable(item.work) and not isinstance(error, DethpcError)
    if not unfit and not isinstance(error, SQLAlchemyError):
        return error
    if unfit and not isinstance(error, (OSError, *_OF_THE_DATABASE)) and type(error) is not DatabaseError:
        wrapped: StoreError = UnfitRow(f"the database failed: {error}")
    else:
        wrapped = engines.store_error(error)
    wrapped.__cause__ = error
    return wrapped
