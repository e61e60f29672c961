"""What waits for the ledger: the line of wishes, each with its answer to come."""

from __future__ import annotations

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
        self._queue: queue.SimpleQueue[tuple[Wish, Future[Any]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # nothing enters the queue after the end mark
        self._open = False
        self.ending = threading.Event()

    def __len__(self) -> int:
        return self._queue.qsize()

    def open(self) -> None:
        self._open = True

    def enter(self, wish: Wish, future: Future[Any]) -> bool:
        """False: no more are taken."""
        with self._lock:
            if self._open:
                self._queue.put((wish, future))
            return self._open

    def close(self) -> None:
        """Take no more. ``gather`` still gives what has entered."""
        with self._lock:
            if self._open:
                self._open = False
                self.ending.set()
                self._queue.put(None)

    def gather(self, most: int, timeout: float | None) -> tuple[list[tuple[Wish, Future[Any]]], bool]:
        """The wishes that have gathered, once there is one, and whether more can come. Empty after ``timeout`` seconds without."""
        try:
            batch = [self._queue.get(timeout=0.0 if self.ending.is_set() else timeout)]
        except queue.Empty:
            return [], not self.ending.is_set()
        while len(batch) < most and not self._queue.empty():
            batch.append(self._queue.get())
        return [each for each in batch if each is not None], None not in batch

    def refuse(self, failure: Exception, seconds: float = 0.0) -> None:
        """Answer what has entered, and what does within so many seconds, with ``failure``; no longer than until ``close``."""
        until = time.monotonic() + seconds
        while not self._queue.empty() or not self.ending.is_set():
            try:
                each = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return
            if each is not None:
                answer([each], failure)


def answer(wishes: Sequence[tuple[Any, Future[Any]]], failure: Exception) -> None:
    """Tell those that have no answer yet."""
    for _, future in wishes:
        if not future.done():
            future.set_exception(failure)
