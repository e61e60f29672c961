"""Small JSON files, written atomically: a reader sees them whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import json
import os
import stat
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, Iterator, Optional, Union

from dethpc.errors import RunDirError

if TYPE_CHECKING:
    from dethpc.rundir.folded import Status

Path = Union[str, "os.PathLike[str]"]

MOST_BYTES = 16 << 20
"""How large a JSON file of a run may be."""

MOST_VALUES = 500_000
"""How many values a JSON text may hold: an empty list takes three bytes there, and some twenty times as many in memory."""

_SUM = "sha256"
"""Key of the digest over all other values."""

_counter = itertools.count()


def write_json(path: Path, obj: dict[str, Any], *, durable: bool = True) -> None:
    """Write ``obj`` to ``path`` (mode 0600) in one step, on disk when this returns unless it need not be ``durable``.

    Raises: OSError (disk full, I/O error); then ``path`` is what it was before.
    """
    with replacement(path, durable=durable) as file:
        file.write(_line(obj))


@contextlib.contextmanager
def replacement(path: Path, *, durable: bool = True, check: Callable[[], None] = lambda: None) -> Iterator[BinaryIO]:
    """A new file (mode 0600), which takes the place of ``path`` in one step after the block, unless the block or ``check`` raises.

    Then it is on disk, and so is its name, unless it need not be ``durable``. Raises: OSError; ``path`` is what it was before.
    """
    with _staged(path, durable=durable) as (staged, file):
        yield file
    try:
        check()
        os.replace(staged, path)
    except Exception:
        _unlink(staged)
        raise
    if durable:
        sync_name(path)


def left_by_writers(path: Path) -> list[str]:
    """What writers of ``path`` that were killed have left beside it. Raises: OSError."""
    folder, name = os.path.split(os.fspath(path))
    temporary = sorted(entry for entry in names(folder) if entry.startswith(f"{name}.") and entry.endswith(".tmp"))
    return [os.path.join(folder, entry) for entry in temporary]


def create_once(path: Path, obj: dict[str, Any]) -> bool:
    """Create ``path`` holding ``obj`` unless it exists. Of several callers, on several nodes, exactly one gets True.

    Raises: OSError.
    """
    with _staged(path) as (staged, file):
        file.write(_line(obj))
    try:
        try:
            os.link(staged, path)
        except FileExistsError:
            # Over NFS a repeated request may answer "exists" about the link that its first copy made.
            if os.stat(staged).st_nlink != 2:
                return False
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            return _create_without_link(path, obj)
    finally:
        _unlink(staged)
    sync_name(path)
    return True


def sealed(obj: dict[str, Any]) -> dict[str, Any]:
    """``obj`` with a digest, by which ``read_json`` notices a value that the disk altered: it may well be JSON still."""
    return {**obj, _SUM: _digest(obj)}


def _digest(obj: dict[str, Any]) -> str:
    """Of the values as they are read again."""
    import hashlib  # it loads OpenSSL, and most who import this seal nothing

    read = json.loads(json.dumps(obj))
    return hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()


def read_json(path: Path) -> Optional[dict[str, Any]]:
    """The object in ``path``, or None when there is no such file.

    Raises: RunDirError when it holds no JSON object, or other values than those that were ``sealed``; OSError.
    """
    try:
        data = _read(path, MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise RunDirError(f"{os.fspath(path)} is damaged: it is a directory") from None
    if len(data) > MOST_BYTES or too_many_values(data):
        allowed = f"{MOST_BYTES >> 20} MiB and {MOST_VALUES} values are allowed"
        raise RunDirError(f"{os.fspath(path)} is damaged: it is too large; {allowed}")
    try:
        obj = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RunDirError(f"{os.fspath(path)} is damaged: {error}") from None
    if not isinstance(obj, dict):
        raise RunDirError(f"{os.fspath(path)} is damaged: it holds no JSON object")
    if (_SUM in obj and obj.pop(_SUM) != _digest(obj)) or any(map(_is_nearly_the_sum, obj)):
        raise RunDirError(f"{os.fspath(path)} is damaged: its values are not those that were written")
    return obj


def _is_nearly_the_sum(key: str) -> bool:
    """Whether a bit that flipped in the name of the digest makes this key: the file would pass for one that has none."""
    return len(key) == len(_SUM) and sum(one != other for one, other in zip(key, _SUM)) == 1


def too_many_values(json_text: Union[str, bytes]) -> bool:
    """Whether it may hold more than ``MOST_VALUES``: each begins a list or a mapping, or has a comma before it."""
    if len(json_text) <= MOST_VALUES:
        return False
    if isinstance(json_text, str):
        return sum(map(json_text.count, ("[", "{", ","))) > MOST_VALUES
    return sum(map(json_text.count, (b"[", b"{", b","))) > MOST_VALUES


def read_object(path: Path) -> dict[str, Any]:
    """The object in ``path``; {} when there is none that can be read."""
    try:
        return read_json(path) or {}
    except (OSError, RunDirError):
        return {}


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read it. What is no regular file is refused: a pipe or a device would keep the reader for ever.

    ``path`` may lead through the archive of a folded trial. Raises: OSError.
    """
    try:
        return open(path, "rb", opener=descriptor)
    except NotADirectoryError:
        from dethpc.rundir import folded  # here: a job has no use for it

        return folded.open_member(path)


def open_to_append(path: Path) -> BinaryIO:
    """Open a file to write at its end, and make it where there is none. As ``open_regular``: a pipe that nobody reads would keep
    the writer for ever. Raises: OSError."""
    return open(path, "ab", opener=descriptor)


def descriptor(path: Path, flags: int, mode: int = 0o666) -> int:
    """As ``os.open``, of regular files alone: where anybody may have put something else. Raises: OSError."""
    try:
        fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno != errno.ENXIO:  # a pipe that nobody reads, or a socket
            raise
        raise OSError(errno.EINVAL, "It is no regular file", os.fspath(path)) from None
    about = os.fstat(fd)
    if stat.S_ISREG(about.st_mode):
        os.set_blocking(fd, True)  # for programs that write to it and would wonder
        return fd
    os.close(fd)
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise OSError(errno.EINVAL, "It is no regular file", os.fspath(path))


def open_kept(path: Path) -> BinaryIO:
    """As ``open_regular``, also where the run's trial was folded since somebody asked where the file is. Raises: OSError."""
    try:
        return open_regular(path)
    except FileNotFoundError:
        from dethpc.rundir import folded

        if (now := folded.moved(path)) is None:
            raise
        return open_regular(now)


def read_at(file: BinaryIO, size: int, at: int) -> bytes:
    """So many bytes from there on, or what there is. For files that ``open_regular`` has opened. Raises: OSError."""
    raw: Any = getattr(file, "raw", None)
    if isinstance(raw, io.FileIO):
        return os.pread(file.fileno(), size, at)
    if raw is not None and hasattr(raw, "read_at"):  # a member of an archive
        content: bytes = raw.read_at(size, at)
        return content
    file.seek(at)
    return file.read(size)


def status(path: Path) -> Union[os.stat_result, Status]:
    """``st_size`` and ``st_mtime``, also where ``path`` leads through an archive. Raises: OSError."""
    try:
        return os.stat(path)
    except NotADirectoryError:
        from dethpc.rundir import folded

        return folded.status(path)


def exists(path: Path) -> bool:
    """Whether there is a file or a folder, also where ``path`` leads through an archive. Raises: OSError where nobody can say."""
    try:
        status(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def names(folder: Path) -> list[str]:
    """What is in a folder, also where it is in an archive; nothing where there is none. Raises: OSError."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        from dethpc.rundir import folded

        try:
            return folded.names(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []


def walk(folder: Path) -> Iterator[str]:
    """The files below a folder, as paths from there, also where it is in an archive; none where there is no folder. Raises:
    OSError."""
    from dethpc.rundir import folded

    if folded.place(folder) is not None:
        with contextlib.suppress(FileNotFoundError):
            yield from folded.walk(folder)
        return
    for here, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            yield os.path.relpath(os.path.join(here, name), folder)


def _read(path: Path, most: int) -> bytes:
    for attempt in (1, 2, 3):
        try:
            with open_regular(path) as file:
                return file.read(most)
        except OSError as error:
            # NFS: the file was replaced between look-up and read; the next look-up finds the new one.
            if error.errno != errno.ESTALE or attempt == 3:
                raise
    raise AssertionError("unreachable")


def _line(obj: dict[str, Any]) -> bytes:
    return json.dumps(obj).encode() + b"\n"


@contextlib.contextmanager
def _staged(path: Path, *, durable: bool = True) -> Iterator[tuple[str, BinaryIO]]:
    """A file to write under a name of its own in the same folder; whole under that name after the block.

    Only what is raised removes it: a writer that is killed leaves it (``left_by_writers``).
    """
    staged = f"{os.fspath(path)}.{os.uname().nodename}.{os.getpid()}.{next(_counter)}.tmp"
    fd = descriptor(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with open(fd, "wb") as file:
            yield staged, file
            if durable:
                file.flush()
                os.fsync(file.fileno())
    except Exception:
        _unlink(staged)
        raise


def _create_without_link(path: Path, obj: dict[str, Any]) -> bool:
    """For file systems without hard links: exclusive still, but a reader may see the file before its content."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    with open(fd, "wb") as file:
        file.write(_line(obj))
        file.flush()
        os.fsync(file.fileno())
    return True


def sync_name(path: Path) -> None:
    """Write the directory that ``path`` is in to disk, after a rename: its content alone does not bring the name there."""
    with contextlib.suppress(OSError):  # some network file systems refuse it; the rename itself has happened
        fd = os.open(os.path.dirname(os.fspath(path)) or ".", os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def link_or_copy(source: str, target: str) -> None:
    """Another name of the file, or a copy where the file system has no links. For ``shutil.copytree``."""
    import shutil

    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
