"""Downloads of a checkpoint's files, from its storage or, for clients that cannot read it, through the master."""

from __future__ import annotations

import contextlib
import enum
import tarfile
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Sequence, Set, Tuple

from dethpc import storage
from dethpc.client.nouns import checkpoints
from dethpc.client.session import Session
from dethpc.errors import (
    CheckpointNotFound,
    ConfigError,
    DethpcError,
    MasterUnreachable,
    MultipleDownloadsFailed,
    ProxiedDownloadFailed,
    Refused,
)
from dethpc.rundir.home import Home, home
from dethpc.rundir.tree import PathLike, Tree
from dethpc.storage import globs as globs_


class DownloadMode(enum.Enum):
    """``DIRECT``: from checkpoint storage. ``MASTER``: through the master. ``AUTO``: from storage where that can be read from
    here, else through the master."""

    DIRECT = "direct"
    MASTER = "master"
    AUTO = "auto"

    def __str__(self) -> str:
        return str(self.value)


def download(
    session: Session, wire: Dict[str, Any], target: Path, mode: DownloadMode, globs: Sequence[str] = ()
) -> DownloadMode:
    """Copy a checkpoint (the wire's object), or what ``globs`` mean of it, to ``target``; returns how it came.

    Raises CheckpointError, OSError, Refused (also where no file matches), MasterError, ConfigError; for AUTO,
    MultipleDownloadsFailed when neither way worked.
    """
    checkpoints.refuse_elsewhere(wire["uuid"], wire.get("elsewhere") or "")
    with _no_folder_for_nothing(target):
        came, files = _downloaded(session, wire, target, mode, globs)
        if globs and not files:
            raise Refused(checkpoints.no_match(wire, globs))
    return came


@contextlib.contextmanager
def _no_folder_for_nothing(target: Path) -> Iterator[None]:
    """A failure leaves no empty folder that was not there before."""
    missing = [folder for folder in (target, *target.parents) if not folder.exists()]
    try:
        yield
    except BaseException:
        for folder in missing:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _downloaded(
    session: Session, wire: Dict[str, Any], target: Path, mode: DownloadMode, globs: Sequence[str]
) -> Tuple[DownloadMode, int]:
    """How it came, and how many files did; counted on both ways with ``globs`` alone."""
    if mode is DownloadMode.MASTER:
        return _from_master(session, wire["uuid"], target, globs)
    try:
        store = storage.build(checkpoints.storage(wire), spool=Home(home()).spool)
        chosen: Set[str] = set()

        def choose(path: str) -> bool:
            if matches := globs_.within(path, globs):
                chosen.add(path)
            return matches

        store.download(wire["uuid"], target, choose if globs else None)
        return DownloadMode.DIRECT, sum(not path.endswith("/") for path in chosen)
    except (CheckpointNotFound, ConfigError, OSError) as direct:
        if mode is DownloadMode.DIRECT or (isinstance(direct, OSError) and _is_targets(direct, target)):
            raise
        try:
            return _from_master(session, wire["uuid"], target, globs)
        except (DethpcError, OSError) as through:
            raise MultipleDownloadsFailed(
                f"checkpoint {wire['uuid']} comes neither from its storage ({direct}) nor through the master ({through})"
            ) from through


def _from_master(session: Session, uuid: str, target: Path, globs: Sequence[str]) -> Tuple[DownloadMode, int]:
    target.mkdir(parents=True, exist_ok=True)
    return DownloadMode.MASTER, through_master(session, uuid, target.resolve(), globs)


def _is_targets(error: OSError, target: Path) -> bool:
    """Whether it is the place to write to that cannot be written: no other way helps."""
    return not isinstance(error, DethpcError) and str(error.filename or "").startswith(str(target))


_TRIES = 5  # without a file that came whole
_AT_ONCE = 1 << 20


def through_master(session: Session, uuid: str, target: PathLike, globs: Sequence[str] = ()) -> int:
    """Copy a checkpoint, or what ``globs`` mean of it, to the directory ``target``, which is there; returns how many files came.

    Where an answer breaks off, the next one goes on after the last file that is whole. Nothing is written outside of ``target``.
    Raises NotFound, Refused, MasterError, OSError, and ProxiedDownloadFailed when it breaks off again and again.
    """
    after, files, tries = "", 0, 0
    with Tree(target) as tree:
        while True:
            try:
                body = session.chunks(f"/checkpoints/{uuid}", {"path": list(globs), "after": after})
                for path in _unpacked(body, tree):
                    after, files, tries = path, files + (not path.endswith("/")), 0
                return files
            except (MasterUnreachable, tarfile.TarError) as error:
                tries += 1
                if tries == _TRIES:
                    raise ProxiedDownloadFailed(
                        f"checkpoint {uuid} does not come through the master: its answer breaks off after "
                        f"{after or 'nothing'} ({error}); the master's log says why (det master logs)"
                    ) from error
            time.sleep(min(8.0, 2.0**tries / 4))


def _unpacked(body: Iterator[bytes], tree: Tree) -> Iterator[str]:
    """Each path once it is there, whole."""
    source = _Source(body)
    with tarfile.open(fileobj=source, mode="r|") as archive:  # type: ignore[call-overload]  # it only ever reads
        for member in archive:
            if member.isdir():
                tree.make(member.name)
                yield f"{member.name.rstrip('/')}/"
            elif member.isreg():
                _write(archive, member, tree)
                yield member.name
    source.to_the_end()


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, tree: Tree) -> None:
    content = archive.extractfile(member)
    assert content is not None
    try:
        with tree.write(member.name) as file:
            while piece := content.read(_AT_ONCE):
                file.write(piece)
    except BaseException:
        tree.remove(member.name)  # a part of a file looks like a file
        raise


class _Source:
    """The body as a file that is read once."""

    def __init__(self, body: Iterator[bytes]) -> None:
        self._body, self._rest = body, b""

    def read(self, size: int) -> bytes:
        pieces, remaining = [], size
        while remaining > 0:
            if not self._rest:
                self._rest = next(self._body, b"")
                if not self._rest:
                    break
            pieces.append(self._rest[:remaining])
            self._rest = self._rest[remaining:]
            remaining -= len(pieces[-1])
        return b"".join(pieces)

    def to_the_end(self) -> None:
        """An answer that breaks off behind its last file is no whole one either."""
        for _ in self._body:
            pass
