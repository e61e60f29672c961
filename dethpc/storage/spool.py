"""Spool for checkpoints whose store is unreachable: a shared folder, where they outlive their job until a task uploads them.

A checkpoint in the spool counts as one in its store: ``Spooled`` is a store that finds it in either place, and ``bring`` moves it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional, Sequence, TypeVar

from dethpc.errors import CheckpointDamaged, CheckpointError, CheckpointNotFound
from dethpc.rundir.tree import Tree, remove
from dethpc.storage.base import CheckpointStore, Content, Held, PathLike, Selector
from dethpc.storage.files import FileStore
from dethpc.storage.manifest import Checksums, listing
from dethpc.storage.ownership import Claim, Identity, Owner

T = TypeVar("T")

MOST_BYTES = 64 << 30
"""What the spool of an installation holds at most."""

_ABANDONED = 86400.0  # seconds after which a copy that is not whole has no writer any more


def _free(path: str) -> int:
    """Bytes that an ordinary user may still write there. Not by shutil: ``det`` loads this module, too."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


class Spool:
    """The folder. It is made when the first checkpoint comes."""

    def __init__(self, folder: PathLike) -> None:
        self.store = FileStore(folder)

    def __str__(self) -> str:
        return str(self.store)

    def has(self, uuid: str) -> bool:
        return self.store.exists(uuid)

    @contextlib.contextmanager
    def held(self, uuid: str) -> Iterator[Optional[CheckpointStore]]:
        """A store to read the checkpoint from until the end, even when it is brought to its own meanwhile; None: it is there."""
        if not self.has(uuid):
            yield None
            return
        links = Path(str(self), f".{uuid}.{os.urandom(4).hex()}.partial")  # ``tidy`` removes it for a reader that died
        try:
            yield self._linked(uuid, links)
        finally:
            remove(links)

    def _linked(self, uuid: str, links: Path) -> Optional[CheckpointStore]:
        """The store is a folder of other names for the files. Who forgets a checkpoint takes away its own name first."""
        try:
            (links / uuid).mkdir(parents=True)
            with Tree(Path(str(self), uuid)) as tree, Tree(links / uuid) as mine:
                for path, _ in tree.walk():
                    if path.endswith("/"):
                        mine.make(path)
                    else:
                        os.link(Path(str(self), uuid, path), links / uuid / path)
        except OSError:  # it has gone meanwhile; or its file system has no room, or no such links
            return self.store if self.has(uuid) else None
        return FileStore(links) if self.has(uuid) else None

    def keep(self, uuid: str, source: PathLike) -> None:
        """Copy a whole checkpoint to it, brought to disk and summed. Raises OSError, also where there is too little room, and
        CheckpointError."""
        self.check_room(sum(listing(Path(source)).values()))
        self.store.stage(uuid)
        try:
            self.store.publish(uuid, self.store.add(uuid, source))
        except BaseException:
            self.store.discard(uuid)
            raise

    def check_room(self, size: int) -> None:
        """Make the folder; raises OSError where a checkpoint of this size would be too much."""
        Path(str(self)).mkdir(mode=0o700, parents=True, exist_ok=True)
        held = sum(one.size for one in self.store.names())
        if held + size > MOST_BYTES or 2 * size > _free(str(self)):
            raise OSError(errno.ENOSPC, f"{self} has no room for {size} bytes more")

    def forget(self, uuid: str, claim: Optional[Claim] = None) -> None:
        self.store.delete(uuid, claim=claim)

    def names(self) -> List[str]:
        """The checkpoints in it. Raises OSError."""
        return sorted(one.uuid for one in self.store.names() if one.whole)

    def tidy(self) -> None:
        """Remove copies whose writers died. Raises OSError."""
        for one in list(self.store.names()):
            if not one.whole and one.changed < time.time() - _ABANDONED:
                self.store.discard(one.uuid)

    def bring(self, uuid: str, store: CheckpointStore) -> None:
        """Move a checkpoint to its ``store``, which looks into no spool; it is in one of the two at any time. Doing it twice does
        no harm. Raises OSError and CheckpointError: CheckpointNotFound where it is in neither, or was deleted meanwhile."""
        owner = self.store.identity(uuid).owner
        if self._is_in(store, uuid, owner):
            store.discard(uuid)  # what is left of the staging of one that died right after publishing
        else:
            try:
                with self.held(uuid) as source, (source or self.store).restore(uuid) as folder:
                    store.stage(uuid)
                    brought = store.add(uuid, folder)
                    self.publish_unless_deleted(uuid, store, lambda: store.publish(uuid, brought, owner=owner))
            except (OSError, CheckpointError):
                if self.has(uuid):
                    raise
                store.discard(uuid)
                raise CheckpointNotFound(f"checkpoint {uuid} is not in {self}") from None
        self.forget(uuid)

    def publish_unless_deleted(self, uuid: str, store: CheckpointStore, publish: Callable[[], T]) -> T:
        """What ``publish`` returns, which publishes in ``store`` what is in the spool, too.

        A deletion takes it out of the spool first, and then out of the store. So what is gone from the spool by the time that it is
        in the store has been deleted, and goes from there; and what is still in the spool then, the deletion finds in the store.
        Raises CheckpointNotFound for one that was deleted, OSError.
        """
        if not self.has(uuid):
            raise CheckpointNotFound(f"checkpoint {uuid} was deleted from {self}")
        published = publish()
        if not self.has(uuid):
            store.delete(uuid)
            raise CheckpointNotFound(f"checkpoint {uuid} was deleted from {self} on its way to {store}")
        return published

    def _is_in(self, store: CheckpointStore, uuid: str, owner: Optional[Owner]) -> bool:
        """What is damaged there makes room for the copy that is whole. Raises CheckpointNotOwned where it is another's."""
        if owner is not None:
            store.check_claim(uuid, Claim(owner.cluster, owner.experiment))
        try:
            return store.exists(uuid) and store.files(uuid) is not None
        except CheckpointDamaged:
            store.delete(uuid)
            return False


class Spooled(CheckpointStore):
    """``store``, with what waits for it in ``spool``, which is looked at first: it is there when the store is away."""

    def __init__(self, store: CheckpointStore, spool: Spool) -> None:
        self.store, self.spool = store, spool
        self.owner = store.owner

    def __str__(self) -> str:
        return str(self.store)

    @contextlib.contextmanager
    def _of(self, uuid: str) -> Iterator[CheckpointStore]:
        with self.spool.held(uuid) as spooled:
            yield spooled or self.store

    # --- reading

    def exists(self, uuid: str) -> bool:
        return self.spool.has(uuid) or self.store.exists(uuid)

    @contextlib.contextmanager
    def restore(
        self, uuid: str, selector: Optional[Selector] = None, *, verify: Optional[Selector] = None
    ) -> Iterator[Path]:
        with self._of(uuid) as store, store.restore(uuid, selector, verify=verify) as path:
            yield path

    def download(self, uuid: str, target: PathLike, selector: Optional[Selector] = None) -> None:
        with self._of(uuid) as store:
            store.download(uuid, target, selector)

    def read(self, uuid: str, selector: Optional[Selector] = None) -> Iterator[Content]:
        with self._of(uuid) as store:
            yield from store.read(uuid, selector)

    def files(self, uuid: str) -> Dict[str, int]:
        with self._of(uuid) as store:
            return store.files(uuid)

    def metadata(self, uuid: str) -> Dict[str, Any]:
        with self._of(uuid) as store:
            return store.metadata(uuid)

    def surviving(self, uuid: str, globs: Sequence[str]) -> Dict[str, int]:
        with self._of(uuid) as store:
            return store.surviving(uuid, globs)

    def identity(self, uuid: str) -> Identity:
        spooled = self.spool.store.identity(uuid)
        return spooled if spooled.exists else self.store.identity(uuid)

    def delete(self, uuid: str, globs: Sequence[str] = ("**/*",), *, claim: Optional[Claim] = None) -> Dict[str, int]:
        """In both places, in the spool first: whoever brings it from there looks there again when it has arrived."""
        remaining = self.spool.store.delete(uuid, globs, claim=claim)
        stored = self.store.delete(uuid, globs, claim=claim)
        return remaining or stored

    # --- what the store alone does

    @property
    def may_be_away(self) -> bool:
        return self.store.may_be_away

    def may_come_back(self, error: OSError) -> bool:
        return self.store.may_come_back(error)

    def full(self) -> str:
        return self.store.full()

    def stage(self, uuid: str) -> Path:
        return self.store.stage(uuid)

    def add(self, uuid: str, source: PathLike, paths: Optional[Sequence[str]] = None) -> Checksums:
        return self.store.add(uuid, source, paths)

    def flush(self, uuid: str, paths: Sequence[str]) -> Checksums:
        return self.store.flush(uuid, paths)

    def publish(
        self,
        uuid: str,
        safe: Optional[Checksums] = None,
        files: Optional[Dict[str, int]] = None,
        *,
        defer_checksums: bool = False,
        owner: Optional[Owner] = None,
    ) -> Dict[str, int]:
        return self.store.publish(uuid, safe, files, defer_checksums=defer_checksums, owner=owner)

    def discard(self, uuid: str) -> None:
        self.store.discard(uuid)

    def leave(self, uuid: str) -> None:
        self.store.leave(uuid)

    def without_checksums(self, uuid: str) -> List[str]:
        return self.store.without_checksums(uuid)

    def add_checksums(self, uuid: str, paths: Sequence[str], part: int = 0) -> None:
        self.store.add_checksums(uuid, paths, part)

    def share(self, uuid: str, earlier: str, paths: Sequence[str]) -> int:
        return self.store.share(uuid, earlier, paths)

    def is_there(self) -> bool:
        return self.store.is_there()

    def names(self) -> Iterator[Held]:
        return self.store.names()

    def beside(self, folder: str) -> ContextManager[Path]:
        return self.store.beside(folder)

    def remove_beside(self, folder: str) -> None:
        self.store.remove_beside(folder)

    def mark(self) -> ContextManager[str]:
        return self.store.mark()

    def find_mark(self, mark: str) -> None:
        self.store.find_mark(mark)
