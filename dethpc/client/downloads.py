"""Downloads of a checkpoint's files through the master, for clients that cannot read its storage."""

from __future__ import annotations

import tarfile
import time
from typing import Iterator, Sequence

from dethpc.client.session import Session
from dethpc.errors import MasterUnreachable, ProxiedDownloadFailed
from dethpc.rundir.tree import PathLike, Tree

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
