"""Files for TensorBoard: written where ``get_tensorboard_path()`` says, copied to checkpoint storage."""

from __future__ import annotations

import enum
import logging
import os
import stat
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, Iterator, Optional, Tuple

from dethpc.domain.text.not_finite import SPELLINGS

if TYPE_CHECKING:
    from dethpc.core._events import EventFile
    from dethpc.rundir.tree import Tree
    from dethpc.storage import CheckpointStore

logger = logging.getLogger("dethpc.core")

Selector = Callable[[Path], bool]
Mangler = Callable[[Path, int], Path]

_COPY_EVERY = 10.0  # seconds between two copies at least
_SHARE = 0.03  # of one core that writing may take from the training: who reports faster gets fewer points
_WAITING = 1000  # reports that wait at most
_FLUSH = 1.0  # seconds that closing spends on those that still wait


class TensorboardMode(enum.Enum):
    """``AUTO``: the chief's reports are written as event files, and its files are copied by themselves, every few seconds and at
    the end. ``MANUAL``: nothing is written, and files are copied by ``upload_tensorboard_files()`` alone."""

    AUTO = "AUTO"
    MANUAL = "MANUAL"


class TensorboardFiles:
    """Files below ``path`` (this worker's, on this machine) and their copies in ``store``, in ``folder`` beside the checkpoints."""

    def __init__(self, path: Path, store: CheckpointStore, folder: str) -> None:
        self._path = path
        self._store, self._folder = store, folder
        self._copied: Dict[str, Tuple[float, int]] = {}

    @property
    def path(self) -> Path:
        self._path.mkdir(parents=True, exist_ok=True)
        return self._path

    def sync(self, selector: Selector = lambda _: True, mangler: Mangler = lambda path, _: path, rank: int = 0) -> None:
        """Copy what is new or has changed. ``mangler`` gets the path relative to ``path`` and the rank, and names the copy.
        Raises OSError."""
        import shutil

        from dethpc.rundir.tree import Tree

        if not self._path.is_dir():
            return
        with Tree(self._path) as here:
            changed = {name: state for name, state in self._states(here, selector) if self._copied.get(name) != state}
            if not changed:
                return
            with self._store.synced_folder(self._folder) as folder, Tree(folder) as there:
                for name in changed:
                    with here.read(name) as old, there.write(os.fspath(mangler(Path(name), rank))) as new:
                        shutil.copyfileobj(old, new)
        self._copied.update(changed)

    def _states(self, tree: Tree, selector: Selector) -> Iterator[Tuple[str, Tuple[float, int]]]:
        """Each file that ``selector`` wants, with what changes when the file does."""
        for name, status in tree.walk():
            if stat.S_ISREG(status.st_mode) and selector(self._path / name):
                yield name, (status.st_mtime, status.st_size)


def local_folder(scratch: Optional[Path], rank: int) -> Path:
    """Where a worker writes: in the attempt's folder on its node, or without one in a new folder that goes with the process."""
    from dethpc.rundir.scratch import make_until_exit

    return (scratch or make_until_exit("tensorboard")) / f"tensorboard-{rank}"


def folder_of(cluster_id: str, experiment_id: int, trial_id: int) -> str:
    """Where a trial's files go, beside the checkpoints. Determined has them there, too."""
    return f"{cluster_id}/tensorboard/experiment/{experiment_id}/trial/{trial_id}"


class TensorboardWriter:
    """Mode ``AUTO``: a thread that writes what is reported and copies the files. ``report`` costs an append to a list.

    Tags are Determined's: ``Determined/<metric>`` for training, ``Determined/val_<metric>`` for validation,
    ``Determined/<group>/<metric>`` for other groups.
    """

    def __init__(self, files: TensorboardFiles) -> None:
        self._files = files
        self._waiting: Deque[Tuple[float, str, int, Dict[str, Any]]] = deque(maxlen=_WAITING)
        self._wake, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="dethpc-tensorboard", daemon=True)
        self._complained = False

    def start(self) -> None:
        self._thread.start()

    def report(self, group: str, steps: int, metrics: Dict[str, Any]) -> None:
        """``metrics`` as they are reported: only their numbers are drawn."""
        self._waiting.append((time.time(), group, steps, metrics))
        if not self._wake.is_set():  # which is asked in a tenth of the time that it takes to set it
            self._wake.set()

    def close(self) -> None:
        """Write what waits, for a moment at most, and copy all."""
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        from dethpc.core._events import EventFile

        events, copy_at = EventFile(self._files.path), time.monotonic() + _COPY_EVERY
        while not self._closing.is_set():
            self._wake.wait(_COPY_EVERY)
            self._wake.clear()
            while self._waiting and not self._closing.is_set():
                begin = time.thread_time()
                self._write(events)
                self._closing.wait((time.thread_time() - begin) / _SHARE)
            if time.monotonic() >= copy_at and not self._closing.is_set():
                begin = time.monotonic()
                self._copy()
                now = time.monotonic()
                copy_at = now + max(_COPY_EVERY, 20 * (now - begin))
        until = time.monotonic() + _FLUSH
        while self._waiting and time.monotonic() < until:
            self._write(events)
        events.close()
        self._copy()

    def _write(self, events: EventFile) -> None:
        at, group, steps, metrics = self._waiting.popleft()
        prefix = {"training": "", "validation": "val_"}.get(group, f"{group}/")
        scalars = {f"Determined/{prefix}{name}": number for name, value in metrics.items() for number in _number(value)}
        try:
            events.add(at, steps, scalars)
        except OSError as error:
            self._complain(error)

    def _copy(self) -> None:
        try:
            self._files.sync()
        except OSError as error:
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            self._complained = True
            logger.warning("TensorBoard files could not be written or copied: %s", error)


def _number(value: Any) -> Tuple[float, ...]:
    """The value in a tuple, or none when it is no number. Reports spell NaN and infinities as text."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return (float(value),)
        except OverflowError:
            return ()
    return (float(value),) if isinstance(value, str) and value in SPELLINGS else ()
