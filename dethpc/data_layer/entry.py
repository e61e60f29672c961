"""One cached dataset in the node's folder, and the locks of its users. ::

<folder>/<key>/lock                      held by whoever builds, fetches, removes or sends it
<folder>/<key>/building-*/               what is being built; left over where nobody holds the lock
<folder>/<key>/data/data.mdb             the records (LMDB), never changed
<folder>/<key>/data/about.json           what they are; whoever reads holds a shared lock on it; changed when last used
<folder>/<key>/data/checked.json         since which boot, and of which file, the checksum was right
<folder>/<key>/data/sent.json            in which bucket it is, too
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, Iterator, Optional

from dethpc.data_layer.about import ABOUT, DATA, About
from dethpc.data_layer.key import Key
from dethpc.errors import CheckpointError, DataLayerError, DatasetDamaged, RunDirError
from dethpc.rundir.files import read_json, read_object, sealed, write_json
from dethpc.rundir.tree import remove
from dethpc.storage import manifest

_BUILDING, _DATA, _LOCK = "building-", "data", "lock"
_CHECKED, _SENT = "checked.json", "sent.json"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Lease:
    """The right to read a dataset: until it is closed, nobody removes it. A child process shares it."""

    def __init__(self, file: int, folder: Path, about: About) -> None:
        self._file, self.folder, self.about = file, folder, about

    @property
    def data(self) -> Path:
        return self.folder / DATA

    def is_of(self, other: Lease) -> bool:
        """Whether both are of what was made, or fetched, at the same time."""
        mine, its = os.fstat(self._file), os.fstat(other._file)
        return (mine.st_dev, mine.st_ino) == (its.st_dev, its.st_ino)

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def __del__(self) -> None:
        self.close()


class Entry:
    """The folder of ``key`` below ``root``."""

    def __init__(self, root: Path, key: Key) -> None:
        self.key, self.folder = key, root / key.folder
        self._data = self.folder / _DATA

    def lease(self) -> Optional[Lease]:
        """None when it is not there. Raises DatasetDamaged.

        The whole file is summed once after each boot, and when it was touched: damaged pages of LMDB's own end a process that
        follows them.
        """
        file = self._lock_to_read()
        if file is None:
            return None
        try:
            about = About.from_json(self.key, _read(self._data / ABOUT, self.key))
            self._check(about)
            with contextlib.suppress(OSError):  # a disk that is full
                os.utime(file)
            return Lease(file, self._data, about)
        except BaseException:
            os.close(file)
            raise

    def _lock_to_read(self) -> Optional[int]:
        while True:
            try:
                file = os.open(self._data / ABOUT, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                return None
            if take(file, self._data / ABOUT, shared=True) and self._is_current(file):
                return file
            os.close(file)  # it is being removed, or was since it was opened

    def _is_current(self, file: int) -> bool:
        mine = os.fstat(file)
        try:
            there = os.stat(self._data / ABOUT)
        except FileNotFoundError:
            return False
        return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)

    def _check(self, about: About) -> None:
        sums = {DATA: about.data}
        try:
            manifest.check_sizes(self._data, sums)
            if read_object(self._data / _CHECKED) != _seen(self._data / DATA):
                manifest.compare(str(self.key), sums, manifest.measure(self._data, [DATA]))
                self._note_checked()
        except (CheckpointError, OSError) as error:
            raise DatasetDamaged(f"{self.key} is damaged in {self._data}: {error}") from None

    def _note_checked(self) -> None:
        with contextlib.suppress(OSError):
            write_json(self._data / _CHECKED, _seen(self._data / DATA), durable=False)

    @contextlib.contextmanager
    def building(self, waiting: Optional[Callable[[], None]] = None) -> Iterator[None]:
        """Nobody else builds, removes or sends it until the block ends. What a builder who died has left is removed."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DataLayerError(f"{self.key} cannot be cached in {self.folder}: {error.strerror}") from error
        with held(self.folder / _LOCK, waiting):
            _clear(self.folder)
            yield

    def alone(self) -> ContextManager[bool]:
        """Whether nobody else does any of that; then nobody does until the block ends."""
        return held_if_free(self.folder / _LOCK)

    def stage(self) -> Path:
        """A new folder for what is being built."""
        return Path(tempfile.mkdtemp(prefix=_BUILDING, dir=self.folder))

    def publish(self, staged: Path, about: About) -> None:
        """``staged``, which holds the data, takes the place of what is there."""
        write_json(staged / ABOUT, sealed(about.to_json()))
        write_json(staged / _CHECKED, _seen(staged / DATA), durable=False)
        _take_away(self._data)
        os.rename(staged, self._data)

    def is_in(self, bucket: str) -> bool:
        return read_object(self._data / _SENT).get("where") == bucket

    def note_sent(self, bucket: str) -> None:
        with contextlib.suppress(OSError):
            write_json(self._data / _SENT, {"where": bucket}, durable=False)


def remove_unused(folder: Path) -> None:
    """Remove what nobody reads of the dataset in ``folder``, and what is left of builders who died; unless somebody builds it."""
    with held_if_free(folder / _LOCK) as free:
        if free:
            _clear(folder)
            about = folder / _DATA / ABOUT
            with held_if_free(about) as unread:
                if unread or not about.exists():
                    _take_away(folder / _DATA)


def _clear(folder: Path) -> None:
    for leftover in folder.glob(f"{_BUILDING}*"):
        remove(leftover)


def _take_away(data: Path) -> None:
    """Whoever reads it keeps what is open."""
    if data.exists():
        gone = tempfile.mkdtemp(prefix=_BUILDING, dir=data.parent)
        os.rename(data, os.path.join(gone, _DATA))
        remove(gone)


def _read(file: Path, key: Key) -> Dict[str, Any]:
    try:
        return read_json(file) or {}
    except (OSError, RunDirError) as error:
        raise DatasetDamaged(f"{key}: {error}") from None


def _seen(data: Path) -> Dict[str, Any]:
    """What a file has been checked as: another boot, or a change, wants another look."""
    status = os.stat(data)
    boot = ""
    with contextlib.suppress(OSError):
        boot = _BOOT.read_text().strip()
    return {"boot": boot, "inode": status.st_ino, "size": status.st_size, "changed": status.st_mtime_ns}


_LOOK_EVERY = 0.2  # seconds


@contextlib.contextmanager
def held(file: Path, waiting: Optional[Callable[[], None]] = None) -> Iterator[None]:
    """Hold the lock ``file``, which is made where it is missing, alone. ``waiting`` is called once when another has it.

    Raises DataLayerError where the file system has no locks, or nothing can be written.
    """
    try:
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DataLayerError(f"nothing can be cached in {file.parent}: {error.strerror}") from error
    try:
        while not take(lock, file):
            if waiting is not None:
                waiting()
                waiting = None
            time.sleep(_LOOK_EVERY)  # and not for ever in the kernel, where a signal's handler is not called
        yield
    finally:
        os.close(lock)


@contextlib.contextmanager
def held_if_free(file: Path) -> Iterator[bool]:
    """Whether the lock could be had, without waiting; it is held until the block ends."""
    try:
        lock = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        yield take(lock, file)
    finally:
        os.close(lock)


def take(lock: int, file: Path, *, shared: bool = False) -> bool:
    """Lock an open file, for as long as it is open in any process that inherits it; False: another process has it."""
    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise DataLayerError(
            f"{file} cannot be locked ({error.strerror}): let data_layer name a folder on the node's own disk"
        ) from error
    return True
