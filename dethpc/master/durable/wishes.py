"""Queue of events that wait for the ledger, each with a future for its result."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

Wish = TypeVar("Wish")


class Wishes(Generic[Wish]):
    """Any thread enters wishes; one takes them out, in order. Closed until ``open``."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Wish, Future[Any], float] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # nothing enters the queue after the end mark
        self._open = False
        self.ending = threading.Event()

    def __len__(self) -> int:
        return self._queue.qsize()

    def open(self) -> None:
        self._open = True

    def enter(self, wish: Wish, future: Future[Any], within: float = 0.0) -> bool:
        """``within``: seconds for which it may wait for others to come along. False: no more are taken."""
        due = time.monotonic() + within
        with self._lock:
            if self._open:
                self._queue.put((wish, future, due))
            return self._open

    def close(self) -> None:
        """Take no more. ``gather`` still gives what has entered."""
        with self._lock:
            if self._open:
                self._open = False
                self.ending.set()
                self._queue.put(None)

    def gather(self, most: int, timeout: float | None) -> tuple[list[tuple[Wish, Future[Any]]], bool]:
        """The wishes that have gathered, once one of them may wait no longer, and whether more can come. Empty after ``timeout``
        seconds without."""
        batch: list[tuple[Wish, Future[Any]]] = []
        wait = 0.0 if self.ending.is_set() else timeout
        due = math.inf
        while len(batch) < most:
            try:
                item = self._queue.get(timeout=wait)
            except queue.Empty:
                return batch, bool(batch) or not self.ending.is_set()
            if item is None:
                return batch, False
            batch.append(item[:2])
            due = min(due, item[2])
            wait = max(0.0, due - time.monotonic())
        return batch, True

    def refuse(self, failure: Exception, seconds: float = 0.0) -> None:
        """Answer what has entered, and what does within so many seconds, with ``failure``; no longer than until ``close``."""
        until = time.monotonic() + seconds
        while not self._queue.empty() or not self.ending.is_set():
            try:
                item = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return
            if item is not None:
                answer([item[:2]], failure)


def answer(wishes: Sequence[tuple[Any, Future[Any]]], failure: Exception) -> None:
    """Tell those that have no answer yet."""
    for _, future in wishes:
        if not future.done():
            future.set_exception(failure)
