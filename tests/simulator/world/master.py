"""The production daemon without its threads: whoever waits for the ledger has it take the events, and commits happen at once."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from dethpc.config.site import SiteConfig
from dethpc.domain.facts import Row
from dethpc.domain.ports import Snapshot
from dethpc.errors import StoreError
from dethpc.master import daemon as daemons
from dethpc.master import parts
from dethpc.master.daemon import Daemon
from dethpc.master.durable import at_rest
from dethpc.master.durable import ledger as ledgers
from dethpc.master.durable.ledger import Ledger, Wishes
from dethpc.master.files import folding
from dethpc.master.submitting import hand_over
from dethpc.master.watching.live_runs import Pace
from dethpc.rundir import process as processes
from dethpc.rundir.home import Home
from dethpc.state import store as stores
from dethpc.state.store import SqlStore
from dethpc.state.sums import Recent
from dethpc.state.writer import Writer, _Item
from tests.simulator.world.disk import Disk, Killed
from tests.simulator.world.slurm import POOL, Slurm

CLUSTER = "0123456789"
PACE = Pace(files=3.0, fastest_poll=10.0, slowest_poll=60.0, rest=5.0, smallest_array=2)
SITE = SiteConfig.model_validate({"cluster_name": "world", "pools": {POOL: {}}, "fold_after_hours": 0})
_FOLDS = 5  # cycles between two looks for trials to fold


class _Waiting(Future[Any]):
    """Its ledger has no thread: whoever asks for the result has it work."""

    drain: Callable[[], None] = staticmethod(lambda: None)

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self.drain()
        return super().result(0)


class _Ending(threading.Event):
    """Who waits for it waits in virtual time."""

    def wait(self, timeout: float | None = None) -> bool:
        time.sleep(timeout or 0.0)
        return self.is_set()


class _Line(Wishes[Any]):
    """Those who wait for an answer have the ledger work; it gathers what is there and returns."""

    def __init__(self, drain: Callable[[], None]) -> None:
        super().__init__()
        self._drain, self.ending = drain, _Ending()

    def enter(self, wish: Any, future: Future[Any], within: float = 0.0) -> bool:
        """Nobody else comes along while one works."""
        assert isinstance(future, _Waiting)
        future.drain = self._drain
        return super().enter(wish, future)

    def gather(self, most: int, timeout: float | None) -> tuple[list[Any], bool]:
        found, _ = super().gather(most, 0.0) if len(self) else ([], False)
        return found, len(self) > 0


class SteppedLedger(Ledger):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._wishes = _Line(self.drain)

    def start(self) -> None:
        self._wishes.open()

    @property
    def alive(self) -> bool:
        return self._broken_by is None

    def drain(self) -> None:
        """Take what has gathered, as the thread does, and then end."""
        self._run()
        if isinstance(self._broken_by, Killed):
            raise self._broken_by


class InlineWriter(Writer):
    """Commits in the thread that asks. ``disk`` may strike before and after; ``failing``: the database takes nothing."""

    disk: Disk
    failing: Callable[[], str]
    committed: Callable[[], None]

    def __init__(self, engine: Any, absence: Any) -> None:
        self.before_commit = None
        self._engine, self._recent, self._absence = engine, Recent(), absence

    def submit(self, rows: Any) -> Future[Any]:
        self.disk.point()
        item = _Item(rows)
        if why := self.failing():
            item.future.set_exception(StoreError(why))
            return item.future
        self._group([item])
        if item.future.exception() is None:
            self.committed()
        self.disk.point()
        return item.future

    def close(self) -> None:
        pass


class Database(SqlStore):
    """A file that outlives its masters; ``unreadable`` while it cannot be read, either."""

    unreadable = False

    def load(self, also: Sequence[int] = ()) -> Snapshot:
        if self.unreadable:
            raise StoreError("the database failed: disk I/O error")
        return super().load(also)


class _Inline:
    """In place of a pool of threads."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> _Inline:
        return self

    def __exit__(self, *_: object) -> None: ...

    def shutdown(self, *_: object, **__: object) -> None: ...

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future


class Host:
    """Which process of which machine the production code takes itself for."""

    def __init__(self) -> None:
        self.pid, self.name, self.alive = 1000, "login1", set[int]()
        self._last = self.pid

    def new_process(self, name: str = "login1") -> int:
        self._last += 1  # no two have one pid, whichever acts when another begins
        self.pid, self.name = self._last, name
        self.alive.add(self.pid)
        return self.pid

    @contextmanager
    def installed(self) -> Iterator[None]:
        with (
            mock.patch.object(os, "getpid", lambda: self.pid),
            mock.patch.object(socket, "gethostname", lambda: self.name),
            mock.patch.object(processes, "started", lambda pid: pid if pid in self.alive else None),
        ):
            yield


@contextmanager
def no_threads(open_store: Callable[[Any], SqlStore], disk: Disk, on_disk: dict[str, int]) -> Iterator[None]:
    pwrite = os.pwrite

    def synced(fd: Any) -> None:
        disk.changes(disk.root)
        number = fd if isinstance(fd, int) else fd.fileno()
        on_disk[os.readlink(f"/proc/self/fd/{number}")] = os.fstat(number).st_size

    def written(fd: int, data: bytes, offset: int) -> int:
        """A disk that fails may have taken a part."""
        try:
            disk.changes(disk.root)
        except OSError:
            pwrite(fd, data[: len(data) // 2], offset)
            raise
        return pwrite(fd, data, offset)

    with ExitStack() as stack:
        for target, name, replacement in (
            (parts, "Ledger", SteppedLedger),
            (parts, "open_store", open_store),
            (daemons, "build_harness", lambda root: Path(root) / "harness.zip"),
            (at_rest, "check_inputs", lambda home, bundle, context: []),  # there is neither a bundle nor a context
            (stores, "Writer", InlineWriter),
            (ledgers, "Future", _Waiting),
            (hand_over, "ThreadPoolExecutor", _Inline),
            (futures, "ThreadPoolExecutor", _Inline),
            (folding, "REST", 0.0),
            (os, "fsync", synced),
            (os, "pwrite", written),
        ):
            stack.enter_context(mock.patch.object(target, name, replacement))
        yield


class Master:
    """One life of a master, until it is killed, ends itself, or hears that another has taken over."""

    def __init__(self, home: Home, slurm: Slurm, host: Host) -> None:
        self.pid, self.host, self.scheduler = host.pid, host.name, slurm
        self.daemon = Daemon(home, SITE, slurm, CLUSTER, PACE)
        self.daemon.ledger.start()
        self.daemon.lease.publish(f"http://{host.name}:8080")
        self.failures = self.cycles = self.folded = 0

    @property
    def ledger(self) -> Ledger:
        return self.daemon.ledger

    @property
    def over(self) -> bool:
        """It has decided to end."""
        return self.daemon._stopped.is_set()

    def after_polls(self, do: Callable[[], None]) -> None:
        """``do`` is called after each poll that came to its end."""
        poller = self.daemon._reconciler._poller
        poll = poller.poll

        def polled() -> None:
            poll()
            do()

        poller.poll = polled  # type: ignore[method-assign]

    def cycle(self) -> float:
        """One round of its reconciler; the seconds until the next. Raises LeaseHeld."""
        runs = self.daemon._reconciler._runs
        runs.changed.clear()
        try:
            self.daemon._reconciler.cycle()
            self.failures = 0
            self.cycles += 1
            if self.cycles % _FOLDS == 0:
                self.folded += self.daemon.folding.fold_due(time.time())
        except Exception as error:
            if type(error).__name__ == "LeaseHeld":
                raise
            self.failures += 1
        return 0.1 if runs.changed.is_set() else self.daemon._reconciler._pause(self.failures)


def rows_of(committed: Sequence[Row], kind: type) -> list[Any]:
    return [row for row in committed if isinstance(row, kind)]


@cache
def _empty_database() -> bytes:
    """As a first start makes it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        SqlStore(str(path)).close()
        return path.read_bytes()


def fresh_database(path: Path) -> None:
    path.write_bytes(_empty_database())
