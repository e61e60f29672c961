"""The cache of pulled images on shared_fs.

``FORMAT/HEX.EXTENSION`` is an image, by the digest that its registry gave for it and the format of a runtime; it appears when it is
whole. ``FORMAT/HEX.json`` says where it came from, ``names/*.json`` which digest a name had when it was last asked for,
``needed/*`` which master's runs have started from what, and ``work/*`` holds what is being pulled. Several masters, and jobs of
several users, may share one cache.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from dethpc.errors import RunDirError
from dethpc.rundir.files import read_json, read_object, write_json
from dethpc.rundir.tree import remove

SIF, SQUASHFS, FOLDER = "sif", "squashfs", "folder"
EXTENSIONS = {SIF: ".sif", SQUASHFS: ".sqsh", FOLDER: ""}
GOING = ".going"
NEEDED_FOR = 30 * 86400.0
"""Seconds for which an image counts as needed after a run of another master has started from it: longer than runs are."""
ABANDONED = 7 * 86400.0
"""Seconds after which what a pull has brought is not kept any more for a next one."""


class Named(NamedTuple):
    """``at``: when a registry said so, in epoch seconds."""

    digest: str
    at: float


class Entry(NamedTuple):
    """An image that is there. ``bytes``: as it was made."""

    format: str
    digest: str
    path: str
    name: str
    bytes: int
    made_at: float


class Cache:
    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    def path(self, format: str, digest: str) -> Path:
        """Where the image of this digest lies, or will."""
        return self.root / format / (_hex(digest) + EXTENSIONS[format])

    def has(self, format: str, digest: str) -> bool:
        return self.path(format, digest).exists()

    def named(self, name: str) -> Optional[Named]:
        """What a registry last said of the name; None before it was asked."""
        entry = read_object(self._name(name))
        digest, at = entry.get("digest"), entry.get("at")
        if entry.get("name") != name or not isinstance(digest, str) or not isinstance(at, (int, float)):
            return None
        return Named(digest, float(at))

    def name(self, name: str, digest: str) -> None:
        """Remember what a registry said just now. Raises OSError."""
        self._make(self._name(name).parent)
        write_json(self._name(name), {"name": name, "digest": digest, "at": time.time()}, durable=False)
        self.share(self._name(name))

    def note(self, format: str, digest: str, name: str, size: int, python: bool = True) -> None:
        """Say of an image where it came from, and whether it has a ``python3``. Raises OSError."""
        about = {"digest": digest, "name": name, "bytes": size, "made_at": time.time(), "python": python}
        write_json(self._note(format, digest), about, durable=False)
        self.share(self._note(format, digest))

    def lacks_python(self, format: str, digest: str) -> bool:
        """Whether no file of the image is called ``python3``, as who pulled it has found."""
        return read_object(self._note(format, digest)).get("python") is False

    def share(self, path: Path) -> None:
        """Let those use it who may use the cache."""
        mode = os.stat(self.root).st_mode & 0o777
        with contextlib.suppress(OSError):
            os.chmod(path, mode if path.is_dir() else mode & 0o666)

    def entries(self) -> List[Entry]:
        """All images that are there, the newest first."""
        entries = []
        for format, extension in EXTENSIONS.items():
            for path in _listed(self.root / format):
                digits = path.name[: len(path.name) - len(extension)] if extension else path.name
                if len(digits) != 64 or not path.name.endswith(extension):
                    continue
                about = read_object(path.with_name(f"{digits}.json"))
                name, size, at = about.get("name"), about.get("bytes"), about.get("made_at")
                entries.append(
                    Entry(
                        format,
                        f"sha256:{digits}",
                        str(path),
                        name if isinstance(name, str) else "",
                        size if isinstance(size, int) else 0,
                        float(at) if isinstance(at, (int, float)) else 0.0,
                    )
                )
        return sorted(entries, key=lambda entry: -entry.made_at)

    def need(self, format: str, digest: str, who: str) -> None:
        """Say that runs of this master start from the image, where the cache may be written to."""
        mark = self._mark(format, digest, who)
        with contextlib.suppress(OSError):
            self._make(mark.parent)
            mark.touch()
            os.utime(mark)

    def need_no_more(self, format: str, digest: str, who: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._mark(format, digest, who))

    def needed_by_others(self, who: str) -> Set[Tuple[str, str]]:
        """Formats and digests of what other masters that share the cache have started runs from, not too long ago."""
        needed = set()
        for mark in _listed(self.root / "needed"):
            format, digits, other = (mark.name.split(".") + ["", ""])[:3]
            with contextlib.suppress(OSError):
                if other != _key(who) and time.time() - mark.stat().st_mtime < NEEDED_FOR:
                    needed.add((format, f"sha256:{digits}"))
        return needed

    def put_aside(self, format: str, digest: str) -> Optional[Path]:
        """Take an image away from those who look for it; returns what is left to be removed. None: it is not there, or of another
        user of the cache, who alone may. Raises OSError."""
        path = self.path(format, digest)
        going = self.root / "work" / f"{path.name}.{os.getpid()}.{time.time_ns()}{GOING}"
        self._make(going.parent)
        try:
            os.rename(path, going)
        except (FileNotFoundError, PermissionError):
            return None
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._note(format, digest))
        return going

    def work(self, name: str, format: str) -> Path:
        """The folder in which an image is being made, made on demand. Raises OSError."""
        folder = self._work(name, format)
        self._make(folder)
        self._make(self.root / format)
        return folder

    def abandoned(self) -> List[Path]:
        """What pulls have left that nobody has gone on with for long: layers, and images that were to be removed."""
        folders = []
        for folder in _listed(self.root / "work"):
            touched = [_touched(path) for path in (folder, folder / "lock", folder / "blobs", folder / "progress.json")]
            if time.time() - max(touched) > ABANDONED:
                folders.append(folder)
        return folders

    def progress(self, name: str, format: str) -> Dict[str, Any]:
        """What a pull last said: ``step``, ``done`` and ``total`` in bytes; {} where none has said anything."""
        return read_object(self._work(name, format) / "progress.json")

    def _work(self, name: str, format: str) -> Path:
        return self.root / "work" / f"{_key(name)}.{format}"

    def _mark(self, format: str, digest: str, who: str) -> Path:
        return self.root / "needed" / f"{format}.{_hex(digest)}.{_key(who)}"

    def _name(self, name: str) -> Path:
        return self.root / "names" / f"{_key(name)}.json"

    def _note(self, format: str, digest: str) -> Path:
        return self.root / format / f"{_hex(digest)}.json"

    def _make(self, folder: Path) -> None:
        """Below a cache that a site made for several users, folders are theirs as the cache is."""
        if not self.root.exists():
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = os.stat(self.root).st_mode & 0o7777
        for part in [*reversed(folder.relative_to(self.root).parents), folder.relative_to(self.root)]:
            path = self.root / part
            if part.parts and path.is_symlink():  # of somebody who shares the cache, to what is not in it
                raise OSError(errno.ELOOP, "a link, where the cache has a folder", str(path))
            if not path.is_dir():
                path.mkdir(exist_ok=True)
                with contextlib.suppress(OSError):
                    os.chmod(path, mode)


STALE, BEAT = 60.0, 5.0
"""Seconds after which nobody lives who has not touched a lock, and between two touches of one who does."""


@contextlib.contextmanager
def locked(folder: Path, owner: str, wait: float = 2.0) -> Iterator[None]:
    """The only pull that works in this folder. Waits for another one, whose owner it prints, as long as that lives.

    It spares work and no more: what is made appears in one step, so that a lock that is lost to a clock that jumps
    does no harm.
    Raises OSError.
    """
    lock = Lock(folder / "lock", owner)
    announced = False
    while not lock.take():
        if not announced:
            print(f"image: {lock.held_by() or 'another pull'} is pulling it; this one waits", flush=True)
            announced = True
        time.sleep(wait)
    over = threading.Event()
    beats = threading.Thread(target=lock.beat, args=(over,), daemon=True)
    beats.start()
    try:
        yield
    finally:
        over.set()
        beats.join()
        lock.release()


class Lock:
    """A file that its owner touches. Times are those of the file system."""

    def __init__(self, path: Path, owner: str) -> None:
        self._path, self._owner = path, owner

    def held_by(self) -> str:
        return str(read_object(self._path).get("owner") or "")

    def take(self) -> bool:
        mine = self._path.with_name(f"lock.{os.uname().nodename}.{os.getpid()}")
        write_json(mine, {"owner": self._owner}, durable=False)
        try:
            now = os.stat(mine).st_mtime
            with contextlib.suppress(FileNotFoundError):
                if now - os.stat(self._path).st_mtime > STALE:
                    os.unlink(self._path)
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return False
        finally:
            with contextlib.suppress(OSError):
                os.unlink(mine)
        os.close(fd)
        write_json(self._path, {"owner": self._owner}, durable=False)
        return True

    def beat(self, over: threading.Event) -> None:
        """Say that this one lives, whatever it waits for, until ``over``."""
        while not over.wait(BEAT):
            with contextlib.suppress(OSError):
                os.utime(self._path)

    def release(self) -> None:
        with contextlib.suppress(OSError, RunDirError):
            if (read_json(self._path) or {}).get("owner") == self._owner:
                os.unlink(self._path)


def away(path: Path) -> None:
    """Remove a file, or a folder with all that is in it. What will not go stays."""
    if path.is_dir() and not path.is_symlink():
        remove(path)
        return
    with contextlib.suppress(OSError):
        os.unlink(path)


def _key(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def _hex(digest: str) -> str:
    return digest.partition(":")[2]


def _touched(path: Path) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0


def _listed(folder: Path) -> List[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
