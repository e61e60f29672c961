"""The engine's memory and the database, kept in step.

One thread decides. It takes the events that have gathered, decides and applies them one by one, commits all their rows in one
transaction, and only then tells anybody. When the commit fails, memory is folded from the database again: nothing that was not
committed is ever acted upon. Where one event is to blame, the others are decided and committed one by one without it.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from dethpc.domain.facts import Row
from dethpc.domain.ports import Snapshot, Store
from dethpc.domain.records import Record, WebhookDelivery
from dethpc.engine import ClusterState, step
from dethpc.engine.events import Event
from dethpc.engine.fold import fold
from dethpc.engine.queueing.pools import Rules
from dethpc.engine.state import BadNodePolicy, BuildSearcher
from dethpc.errors import DethpcError, ShuttingDown, StoreUnavailable, UnfitRow
from dethpc.master.heartbeat import Heartbeat

log = logging.getLogger(__name__)


MAX_BATCH = 512
RETRY = 5.0
"""Seconds after which a listener that could not write hears the same rows again."""

PATIENCE = 10.0
"""Seconds for which a wish waits while the database's server does not answer: it may just be starting again."""

PAUSE = 1.0
"""Seconds between two tries to reach the database's server."""

FOLD_PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds between the tries to read a database that could not be written to. After the last one the master ends."""

MAY_STILL_HAPPEN = (
    "The master waits for it: what you asked for may still happen when it is back, so look before you ask again"
)
NOT_BEGUN = "The master waits for it. Nothing was started; running trials continue"

Listener = Callable[[Sequence[Row]], None]
Reporter = Callable[[Sequence[Event], Sequence[Row]], Sequence[WebhookDelivery]]
Seen = TypeVar("Seen")


@dataclass(slots=True, frozen=True)
class _Look:
    at: Callable[[ClusterState], Any]


class Plan(NamedTuple):
    """Events, one after the other, and records that are committed along with their rows."""

    events: Sequence[Event]
    records: Sequence[Record] = ()


Read = Callable[[], Plan]


@dataclass(slots=True, frozen=True)
class _Reading:
    """Events that are made of what the database holds when everything before them is committed."""

    read: Read


_Wish = Sequence[Event] | _Look | _Reading
Item = tuple[_Wish, Future[Any]]


class Unwritten(OSError):
    """A listener could not write ``rows``, of those that it heard; the others are written."""

    def __init__(self, cause: OSError, rows: Sequence[Row]) -> None:
        super().__init__(cause.errno, cause.strerror, cause.filename)
        self.rows = rows


@dataclass(slots=True)
class _Listening:
    """One listener, and the rows that it has not heard yet, or could not write."""

    listener: Listener
    missed: list[Row] = field(default_factory=list)
    not_before: float = 0.0  # monotonic seconds: what could not be written is tried again then

    def hear(self) -> None:
        """Raises what the listener raises, but no OSError."""
        if not self.missed or time.monotonic() < self.not_before:
            return
        rows, self.missed = self.missed, []
        try:
            self.listener(rows)
        except OSError as error:
            self.missed = list(error.rows) if isinstance(error, Unwritten) else rows
            self.not_before = time.monotonic() + RETRY
            log.error("%d of %d rows wait to be written: %s", len(self.missed), len(rows), error)


class Ledger:
    """``do`` is safe from any thread. ``state`` may be read by listeners, and by others only for a single look-up.

    ``announce`` gets the rows of each batch before they are committed. ``report`` gets them with their events, and returns what
    webhooks report of them, which is committed along. ``on_broken`` is called when a listener failed for good, or
    the database cannot be read any more: nothing is decided any more, all callers have their answers, and the master must end. Its
    next start writes what a listener did not. ``loaded``: what the store gave already; nobody has written to it since.
    """

    def __init__(
        self,
        store: Store,
        build_searcher: BuildSearcher,
        rules: Mapping[str, Rules] | None = None,
        bad_nodes: BadNodePolicy | None = None,
        on_broken: Callable[[], None] = lambda: None,
        loaded: Snapshot | None = None,
    ) -> None:
        self._store = store
        self._build_searcher, self._rules, self._suspicion = build_searcher, rules, bad_nodes
        self._wishes: Wishes[_Wish] = Wishes()
        self._listeners: list[_Listening] = []
        self.announce: Listener = lambda rows: None
        self.report: Reporter = lambda happened, rows: ()
        self._on_broken = on_broken
        self._broken_by: BaseException | None = None
        self.heartbeat = Heartbeat()
        self.state = self._fold(loaded)
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)

    def _fold(self, loaded: Snapshot | None = None) -> ClusterState:
        return fold(self._build_searcher, loaded or self._store.load(), self._rules, self._suspicion)

    def listen(self, listener: Listener) -> None:
        """``listener`` gets all committed rows, in order, on the ledger's own thread.

        One that raises OSError hears the same rows again later, or those of Unwritten, and behind them what came meanwhile; any
        other exception ends the ledger.
        """
        self._listeners.append(_Listening(listener))

    def start(self) -> None:
        self._wishes.open()
        self._thread.start()

    def do(self, event: Event) -> list[Row]:
        """Decide and commit; returns the rows. Raises Refused or NotFound when the wish cannot be granted, StoreError."""
        return self.post(event).result()

    def post(self, event: Event, within: float = 0.0) -> Future[list[Row]]:
        """Like ``do`` without waiting. ``within``: seconds for which the event may wait for others that are committed with it: a
        commit costs as much as thirty reports."""
        future: Future[list[Row]] = Future()
        if not self._wishes.enter([event], future, within):
            future.set_exception(self._closed())
        return future

    def do_all(self, happened: Sequence[Event]) -> list[Row]:
        """Like ``do``, for events one after the other, of which a master that is killed has done all or none."""
        future: Future[list[Row]] = Future()
        if not self._wishes.enter(happened, future):
            raise self._closed()
        return future.result()

    def do_after(self, read: Callable[[], Event]) -> list[Row]:
        """Like ``do``, for an event made of stored rows: ``read`` makes it on the ledger's own thread, so that nothing changes
        between what it reads and what is decided. Raises what ``read`` raises, too."""
        return self.do_planned(lambda: Plan([read()]))

    def do_planned(self, read: Read) -> list[Row]:
        """Like ``do_after``, for a plan, of which a master that is killed has done all or nothing. ``Records.copy`` writes its
        records to their file afterwards. Raises as ``do_after``."""
        future: Future[list[Row]] = Future()
        if not self._wishes.enter(_Reading(read), future):
            raise self._closed()
        return future.result()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def look(self, at: Callable[[ClusterState], Seen]) -> Seen:
        """What ``at`` makes of the state, called on the ledger's thread between two events: it sees no half of a change."""
        future: Future[Seen] = Future()
        if self._wishes.enter(_Look(at), future):
            return future.result()
        if self._broken_by is not None:
            raise self._closed()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        return at(self.state)

    def stop(self) -> None:
        """Take in what was posted, then end."""
        self._wishes.close()
        if self._thread.is_alive():
            self._thread.join()

    def _closed(self) -> ShuttingDown:
        if self._broken_by is None:
            return ShuttingDown("the master is shutting down", 503)
        return ShuttingDown(
            f"the master cannot continue and exits; the next command starts another ({self._broken_by})", 503
        )

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as failure:
            log.critical("the ledger cannot go on: this master ends", exc_info=True)
            self._broken_by = failure
            self._wishes.close()
            self._wishes.refuse(self._closed())
            self._on_broken()

    def _serve(self) -> None:
        more = True
        while more:
            missed = any(listening.missed for listening in self._listeners)
            self.heartbeat.rest()
            items, more = self._wishes.gather(MAX_BATCH, RETRY if missed else None)
            self.heartbeat.beat()
            if not items:
                self._tell()
                continue
            try:
                self._take(items)
            except BaseException as failure:
                self._broken_by = failure
                raise
            finally:
                answer(items, self._closed())

    def _show(self, look: Callable[[ClusterState], Any], future: Future[Any]) -> None:
        try:
            future.set_result(look(self.state))
        except Exception as failure:
            future.set_exception(failure)

    def _take(self, batch: list[Item]) -> None:
        """What reads the database begins a transaction: the one before it is committed then."""
        together: list[Item] = []
        for item in batch:
            if isinstance(item[0], _Reading) and together:
                self._commit(together)
                together = []
            together.append(item)
        self._commit(together)

    def _commit(self, batch: list[Item]) -> None:
        rows: list[Row] = []
        happened: list[Event] = []
        records: list[Record] = []
        decided: list[tuple[Future[list[Row]], list[Row]]] = []
        try:
            for wish, future in batch:
                if isinstance(wish, _Look):
                    self._show(wish.at, future)
                    continue
                changed: list[Row] = []
                try:
                    plan = wish.read() if isinstance(wish, _Reading) else Plan(wish)
                    for event in plan.events:
                        changed += step(self.state, event)
                        happened.append(event)
                except DethpcError as refusal:
                    future.set_exception(refusal)
                else:
                    decided.append((future, changed))
                    records += plan.records
                rows += changed
            if rows or records:
                self.announce(rows)
                reports = self._when_the_server_answers(batch, lambda: self.report(happened, rows))
                self._when_the_server_answers(batch, lambda: self._store.commit([*rows, *reports, *records]))
        except Exception as failure:
            self._not_committed([item for item in batch if not item[1].done()], failure)
            return
        if rows:
            for listening in self._listeners:
                listening.missed += rows
            self._tell()
            self.state.evict_ended()
        for future, changed in decided:
            if not future.done():
                future.set_result(changed)

    def _not_committed(self, batch: list[Item], failure: Exception) -> None:
        log.error("nothing of %d events was committed", len(batch), exc_info=failure)
        self._fold_again(batch, failure)
        of_one = isinstance(failure, UnfitRow) or not isinstance(failure, (DethpcError, OSError))
        for item in [item for item in batch if not item[1].done()]:
            if of_one and len(batch) > 1:
                self._commit([item])
            else:
                item[1].set_exception(failure)

    def _fold_again(self, batch: Sequence[Item], failure: Exception) -> None:
        """Memory from the database, even from one that cannot be read for a moment. Nobody waits for that moment to pass.

        Raises what keeps it from being read.
        """
        for pause in (*FOLD_PAUSES, None):
            try:
                self.state = self._when_the_server_answers(batch, self._fold)
                return
            except Exception as error:
                log.error("the database cannot be read: %s", error)
                answer(batch, failure)
                if pause is None or self._wishes.ending.is_set():
                    raise
            self._wishes.ending.wait(pause)

    def _when_the_server_answers(self, batch: Sequence[Item], ask: Callable[[], Seen]) -> Seen:
        """What ``ask`` returns, however long the database's server is away. What was decided is kept and committed then: a commit
        whose answer was lost may be repeated. A client that waits hears later that it may still happen; nothing else is begun.

        Raises what ``ask`` raises; StoreUnavailable only when the ledger is to end.
        """
        since = time.monotonic()
        while True:
            self.heartbeat.beat()
            try:
                return ask()
            except StoreUnavailable as away:
                if self._wishes.ending.is_set():
                    raise
                if time.monotonic() - since < PATIENCE:
                    self._wishes.ending.wait(min(PAUSE, PATIENCE / 10))
                    continue
                answer(batch, StoreUnavailable(f"{away}. {MAY_STILL_HAPPEN}"))
                self._wishes.refuse(StoreUnavailable(f"{away}. {NOT_BEGUN}"), PAUSE)

    def _tell(self) -> None:
        for listening in self._listeners:
            try:
                listening.hear()
            except Exception:
                log.exception("a listener failed; this master ends, and the next one writes what is missing")
                listening.missed.clear()
                self._wishes.close()
                self._on_broken()


Wish = TypeVar("Wish")


class Wishes(Generic[Wish]):
    """The events that wait for the ledger, each with a future for its result. Any thread enters wishes; one takes them out, in
    order. Closed until ``open``."""

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
