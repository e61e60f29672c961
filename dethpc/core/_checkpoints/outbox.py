"""Queue of checkpoints that are complete on this machine and wait for an unreachable store while the training continues.

Each is also copied to the store's ``fallback`` where it has one, and then outlives the job: a task of the master uploads what is
still waiting when the training ends.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Set

from dethpc.core._checkpoints.saving import Finishing
from dethpc.errors import CheckpointError, CheckpointNotFound
from dethpc.storage import CheckpointStore
from dethpc.storage.driver import StoreAway

logger = logging.getLogger("dethpc.core")

MOST = 4  # checkpoints that wait; the next one waits with the training
MOST_BYTES = 64 << 30
PATIENCE = 1800.0  # seconds for which a training waits whose checkpoints may not become more
AT_THE_END = 900.0  # seconds for which the end of the training waits for them
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0


class Waiting:
    """A checkpoint that is whole: in the folder ``path`` of this machine, and with ``in_fallback`` where the store keeps what it
    cannot take; without a ``path`` there alone. ``size``: bytes on this machine. ``started``: by the monotonic clock, when saving
    began.
    """

    def __init__(
        self,
        uuid: str,
        files: Dict[str, int],
        plain: Dict[str, Any],
        store: CheckpointStore,
        finishing: Finishing,
        path: Optional[Path] = None,
        started: Optional[float] = None,
    ) -> None:
        self.uuid, self.files, self._plain, self._path, self._started = uuid, files, plain, path, started
        self._store, self._finishing = store, finishing
        self.in_fallback = path is None
        self.size = 0 if path is None else sum(files.values())
        self._gone = False

    def publish(self) -> None:
        """Bring it to the store. One that somebody has deleted meanwhile from the fallback is no failure of the training's. Raises
        OSError and CheckpointError."""
        if not self.in_fallback:
            self.files = self._bring()
            return
        try:
            self._store.bring(self.uuid)
        except CheckpointNotFound:
            self._gone = not self._store.exists(self.uuid)

    def _bring(self) -> Dict[str, int]:
        return self._store.publish(self.uuid, defer_checksums=True)

    def stay(self) -> None:
        """It is about to wait: copy what others may change meanwhile. Raises OSError."""

    def report(self, late: bool) -> None:
        """It is published, ``late`` if it had to wait: how long that took says nothing of how long the next one takes."""
        if self._gone:
            why = f"it was deleted from {self._store.fallback} before it reached its storage"
            self._finishing.report_lost(self.uuid, why)
        elif self.in_fallback:
            self.report_waiting("")
        else:
            self._finishing.report(self.uuid, self.files, self._plain, None if late else self._started)
        if self._store.fallback is not None:
            self._store.fallback.forget(self.uuid)

    def report_waiting(self, why: str) -> None:
        self._finishing.report_waiting(self.uuid, self.files, self._plain, why)

    def keep(self) -> bool:
        """Copy it to the fallback; False where there is none. Raises OSError and CheckpointError."""
        if self._store.fallback is None or self._path is None:
            return False
        self._store.fallback.put(self.uuid, self._path)
        return True

    def report_in_fallback(self) -> None:
        self._finishing.report_in_fallback(self.uuid, self.files, self._plain)

    def leave(self) -> None:
        """Remove it from this machine."""
        self._store.leave(self.uuid)

    def lost(self, why: str) -> None:
        """Forget it, and report that."""
        self._store.discard(self.uuid)
        if self._store.fallback is not None:
            self._store.fallback.delete(self.uuid)
        self._finishing.report_lost(self.uuid, why)


class Outbox:
    """Brings them in order, in a thread of its own that asks less and less frequently. Nothing overtakes what waits."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._waiting: List[Waiting] = []
        self._changed = threading.Condition()
        self._busy: Optional[Waiting] = None  # what is going up just now
        self._closing = False
        self._thread: Optional[threading.Thread] = None
        self._failures: List[BaseException] = []
        self._cannot_keep: Set[str] = set()
        self._keeping = threading.Lock()  # while one is copied to the fallback; or what became of it is reported

    def bring(self, checkpoint: Waiting, on_waiting: Callable[[str], object]) -> bool:
        """Publish it now, or have it wait, which ``on_waiting`` hears with the reason. Returns whether it is published.

        While too much waits already, this waits: for up to ``PATIENCE`` seconds, in which nothing went up; then raises the
        store's OSError. Raises what ``publish`` does.
        """
        self._raise_failure()
        with self._changed:
            behind = bool(self._waiting)
        why = f"{self._store} has not taken the checkpoint before yet"
        if not behind:
            try:
                checkpoint.publish()
                checkpoint.report(late=False)
                return True
            except OSError as error:
                if not self._store.may_come_back(error):
                    raise
                why = str(error)
        self._make_room(checkpoint)
        checkpoint.stay()
        self._append(checkpoint)
        logger.warning(
            "checkpoint %s is whole on this machine and waits for its storage (%s); the training goes on",
            checkpoint.uuid,
            why,
        )
        on_waiting(why)
        return False

    def follow(self, checkpoint: Waiting) -> None:
        """Bring one that is in the fallback, and nowhere on this machine, when its turn has come."""
        self._append(checkpoint)

    def is_behind(self) -> bool:
        """Whether something waits for the store."""
        return bool(self._waiting)

    def _append(self, checkpoint: Waiting) -> None:
        with self._changed:
            self._waiting.append(checkpoint)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="dethpc-outbox", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def settle(self, uuid: Optional[str] = None) -> None:
        """Wait until all can be read by everybody, in their store or its fallback, or this one; as ``bring`` waits for room. Raises
        OSError."""

        def waits() -> bool:
            return any(not one.in_fallback and uuid in (None, one.uuid) for one in self._waiting)

        with self._changed:
            self._wait_while(waits)
        self._raise_failure()

    def drop(self, uuid: str) -> bool:
        """Forget one that still waits; False where none of this name does."""
        with self._changed:
            self._changed.wait_for(lambda: self._busy is None or self._busy.uuid != uuid)
            dropped = [one for one in self._waiting if one.uuid == uuid]
            self._waiting = [one for one in self._waiting if one.uuid != uuid]
            self._changed.notify_all()
        for one in dropped:
            with self._keeping:
                one.lost("it was deleted before it reached its storage")
        return bool(dropped)

    def close(self, patience: Optional[float] = None) -> None:
        """Wait for what waits and cannot be kept, then give it up and say so. Raises what a publication failed with."""
        with self._changed:
            waiting = list(self._waiting)
        if waiting:
            logger.warning("the training has ended; %d checkpoint(s) still wait for %s", len(waiting), self._store)
        for one in waiting:  # at once, for the job may be about to be killed
            self._keep(one, again=True)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: all(one.in_fallback for one in self._waiting),
                AT_THE_END if patience is None else patience,
            )
            self._changed.wait_for(lambda: self._busy is None)  # or it would be lost and there
            unstored, self._waiting = self._waiting, []
            self._changed.notify_all()
        for one in unstored:
            if one.in_fallback:
                one.leave()
                continue
            message = f"{self._store} did not answer until the job ended, and the checkpoint was on this node alone"
            logger.error("checkpoint %s is lost: %s", one.uuid, message)
            one.lost(message)
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failures:
            raise self._failures.pop(0)

    def _make_room(self, checkpoint: Waiting) -> None:
        """The job forgets what is kept, the oldest first: a task will bring that."""
        gone: List[Waiting] = []

        def is_full() -> bool:
            for one in list(self._waiting):
                if self._is_full(checkpoint) and one.in_fallback and one is not self._busy:
                    self._waiting = [other for other in self._waiting if other is not one]
                    gone.append(one)
            return self._is_full(checkpoint)

        with self._changed:
            try:
                self._wait_while(is_full)
            finally:
                self._changed.notify_all()
        for one in gone:
            one.leave()

    def _keep(self, one: Waiting, again: bool = False) -> None:
        """``again``: even where it could not be kept before."""
        with self._keeping:
            if one.in_fallback or (one.uuid in self._cannot_keep and not again):
                return
            with self._changed:
                if one not in self._waiting:  # it has gone up meanwhile, or was deleted
                    return
            try:
                if not one.keep():
                    return
            except (OSError, CheckpointError) as error:
                self._cannot_keep.add(one.uuid)
                logger.warning("checkpoint %s is on this node alone: %s", one.uuid, error)
                return
            one.report_in_fallback()
            with self._changed:
                one.in_fallback = True
                self._changed.notify_all()

    def _wait_while(self, unfit: Callable[[], bool]) -> None:
        deadline, count = 0.0, -1
        while unfit():
            if len(self._waiting) != count:
                count, deadline = len(self._waiting), time.monotonic() + PATIENCE
                logger.warning("%d checkpoint(s) wait for %s, and the training with them", count, self._store)
            if not self._changed.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                raise StoreAway(f"{self._store} has taken none of {count} checkpoint(s) for {PATIENCE:.0f} s")

    def _is_full(self, checkpoint: Waiting) -> bool:
        size = sum(one.size for one in self._waiting)
        return bool(self._waiting) and (len(self._waiting) >= MOST or size + checkpoint.size > MOST_BYTES)

    def _work(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            with self._changed:
                if not self._waiting:
                    self._thread = None
                    return
                self._busy = first = self._waiting[0]
                others = list(self._waiting)
            for one in others:
                self._keep(one)
            failure: Optional[Exception] = None
            try:
                first.publish()
                with self._keeping:
                    first.report(late=True)
                    with self._changed:
                        self._waiting = [one for one in self._waiting if one is not first]  # noqa: B023
            except Exception as error:
                failure = error
            away = isinstance(failure, OSError) and self._store.may_come_back(failure)
            with self._changed:
                self._busy = None
                if not away:
                    self._waiting = [one for one in self._waiting if one is not first]
                if failure is not None and not away:
                    self._failures.append(failure)
                self._changed.notify_all()
                if away:
                    self._changed.wait_for(lambda: first not in self._waiting, pause)  # noqa: B023
                    pause = min(2 * pause, _LONGEST_PAUSE if not self._closing else _LONGEST_PAUSE / 4)
                    continue
            pause = _FIRST_PAUSE
            if failure is None:
                logger.info("checkpoint %s has gone up: %s answers again", first.uuid, self._store)
            else:
                logger.error("checkpoint %s cannot be published: %s", first.uuid, failure)
                with self._keeping:
                    first.leave() if first.in_fallback else first.lost(str(failure))
