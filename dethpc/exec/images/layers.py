"""Unpacks the layers of an image, one over the other, into the root folder of a container.

What a layer says stays below the folder, whatever names and links it has. As an ordinary user everything in it is one's own;
devices are left out (a runtime brings its own), and nothing is setuid.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import stat
import subprocess
import tarfile
import zlib
from pathlib import Path
from typing import IO, Iterator, Optional, Set, Tuple

from dethpc.errors import ImageError

WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_MOST_LINKS = 40
OPEN = 0o755
"""Of folders that no layer tells the mode of, whatever the umask of the job: Podman's root inside is not who owns them."""
ALWAYS, PACKED = 1 << 30, 100
"""Bytes that a layer may have in any case, and how many times its own size: images are packed by 2 to 10, a bomb by 1,000."""


def apply(layer: Path, root: Path) -> None:
    """Lay a layer, a tar that may be compressed, over what is in ``root``. Raises ImageError, OSError."""
    written: Set[str] = set()
    with _members(layer) as (archive, members):
        for member in members:
            _put(archive, member, root, written)


def names(layer: Path) -> Set[str]:
    """What the files and links of a layer are called, in whatever folder. Raises ImageError, OSError."""
    with _members(layer) as (_, members):
        return {os.path.basename(member.name) for member in members if not member.isdir()}


@contextlib.contextmanager
def _members(layer: Path) -> Iterator[Tuple[tarfile.TarFile, Iterator[tarfile.TarInfo]]]:
    try:
        with _opened(layer) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            yield archive, _bounded(layer, archive)
    except (tarfile.TarError, EOFError, ValueError, zlib.error) as error:
        raise ImageError(f"layer {layer.name[:12]} cannot be unpacked: {error}") from None


def _bounded(layer: Path, archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    budget = max(ALWAYS, PACKED * layer.stat().st_size)
    for member in archive:
        budget -= max(0, member.size)
        if budget < 0:
            raise ImageError(f"layer {layer.name[:12]} unpacks to more than {PACKED} times its size")
        yield member


@contextlib.contextmanager
def _opened(layer: Path) -> Iterator[IO[bytes]]:
    with open(layer, "rb") as file:
        head = file.read(4)
        file.seek(0)
        if head.startswith(_GZIP):
            with gzip.open(file) as stream:
                yield stream  # type: ignore[misc]
        elif head == _ZSTD:
            with _unzstd(file) as stream:
                yield stream
        else:
            yield file


@contextlib.contextmanager
def _unzstd(file: IO[bytes]) -> Iterator[IO[bytes]]:
    program = shutil.which("zstd")
    if program is None:
        raise ImageError(
            "a layer is packed with zstd, and this node has no program of that name; have the site install it"
        )
    with subprocess.Popen([program, "-dcq"], stdin=file, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.stdout
        process.stdout.read()
        if process.wait():
            raise ImageError("a layer that is packed with zstd is damaged")


def _put(archive: tarfile.TarFile, member: tarfile.TarInfo, root: Path, written: Set[str]) -> None:
    parts = [part for part in member.name.split("/") if part not in ("", ".")]
    if not parts:
        return
    if ".." in parts or "\0" in member.name:
        raise ImageError(f"a layer names {member.name!r}, which is outside of the image")
    folder = inside(root, parts[:-1])
    if parts[-1].startswith(WHITEOUT):
        _take_out(folder, parts[-1], written)
        return
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk() or member.isfifo()):
        return
    target = folder / parts[-1]
    written.update(str(path) for path in (target, *target.parents) if len(path.parts) > len(root.parts))
    _make_way(target, member)
    if member.isdir():
        target.mkdir(exist_ok=True)
        os.chmod(target, (member.mode & 0o777) | 0o700)
    elif member.issym():
        os.symlink(member.linkname, target)
    elif member.islnk():
        _link(root, member.linkname, target)
    elif member.isfifo():
        os.mkfifo(target, member.mode & 0o777)
    else:
        source = archive.extractfile(member)
        assert source is not None
        with open(target, "wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
        os.chmod(target, (member.mode & 0o777) | 0o400)
        os.utime(target, (member.mtime, max(0, member.mtime)))


def inside(root: Path, parts: list[str]) -> Path:
    """The folder that ``parts`` lead to as a process in the image sees it: a link that leads to ``/`` leads to ``root``.

    Folders that are missing are made. Raises ImageError.
    """
    todo, at, links = list(reversed(parts)), root, 0
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            at = at.parent if at != root else root
            continue
        entry = at / part
        kind = _kind(entry)
        if kind is not None and stat.S_ISLNK(kind):
            links += 1
            if links > _MOST_LINKS:
                raise ImageError(f"links in the image lead round in a circle at {'/'.join(parts)}")
            target = os.readlink(entry)
            if target.startswith("/"):
                at = root
            todo += reversed(target.split("/"))
            continue
        if kind is None or not stat.S_ISDIR(kind):
            if kind is not None:
                os.unlink(entry)
            entry.mkdir()
            os.chmod(entry, OPEN)
        at = entry
    return at


def _kind(path: Path) -> Optional[int]:
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return None


def _make_way(target: Path, member: tarfile.TarInfo) -> None:
    kind = _kind(target)
    if kind is None or (stat.S_ISDIR(kind) and member.isdir()):
        return
    _remove(target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _take_out(folder: Path, name: str, written: Set[str]) -> None:
    """What lower layers have there; what this one has written stays."""
    if name != OPAQUE:
        hidden = name[len(WHITEOUT) :]
        if hidden in ("", ".", ".."):
            raise ImageError(f"a layer hides {hidden!r}, which is outside of the image")
        _remove(folder / hidden)
        return
    for path in list(folder.iterdir()):
        if str(path) not in written:
            _remove(path)


def _link(root: Path, name: str, target: Path) -> None:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        raise ImageError(f"a layer links {name!r}, which is outside of the image")
    source = inside(root, parts[:-1]) / parts[-1]
    if _kind(source) is None:
        raise ImageError(f"a layer links {name!r}, which is not in the image")
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # a file system without them
        shutil.copy2(source, target, follow_symlinks=False)
