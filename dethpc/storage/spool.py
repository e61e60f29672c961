"""Spool for checkpoints whose store is unreachable: a shared folder, where they outlive their job until a task uploads them.

A checkpoint in the spool counts as one in its store: ``Spooled`` is a store that finds it in either place and moves it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, TypeVar, cast

from dethpc.errors import CheckpointDamaged, CheckpointError, CheckpointNotFound
from dethpc.rundir.tree import Tree, remove
from dethpc.storage.base import CheckpointStore, Content, PathLike, Selector
from dethpc.storage.files import FileStore
from dethpc.storage.ownership import Claim, Identity, Owner

M = TypeVar("M", bound=Callable[..., Any])

MOST_BYTES = 64 << 30
"""What the spool of an installation holds at most."""

_SIGN = ".removed"  # ends the name of the empty file that a deletion leaves

_ABANDONED = 86400.0  # seconds after which a copy that is not whole has no writer any more


def _free(path: str) -> int:
    """Bytes that an ordinary user may still write there. Not by shutil: ``det`` loads this module, too."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


class Spool(FileStore):
    """The folder. It is made when the first checkpoint comes."""

    @contextlib.contextmanager
    def held(self, uuid: str) -> Iterator[Optional[CheckpointStore]]:
        """A store to read the checkpoint from until the end, even when it is brought to its own meanwhile; None: it is there."""
        if not self.exists(uuid):
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
            return self if self.exists(uuid) else None
        return FileStore(links) if self.exists(uuid) else None

    def check_room(self, size: int) -> None:
        """Makes the folder, too."""
        Path(str(self)).mkdir(mode=0o700, parents=True, exist_ok=True)
        held = sum(one.size for one in self.names())
        if held + size > MOST_BYTES or 2 * size > _free(str(self)):
            raise OSError(errno.ENOSPC, f"{self} has no room for {size} bytes more")

    def publish(self, uuid: str, *args: Any, **kwargs: Any) -> Dict[str, int]:
        with contextlib.suppress(FileNotFoundError):  # it was deleted, and is written anew
            self._sign(uuid).unlink()
        return super().publish(uuid, *args, **kwargs)

    def forget(self, uuid: str) -> None:
        if self.exists(uuid):
            super()._vanish(uuid)

    def _vanish(self, uuid: str) -> None:
        """Of a deletion, which leaves a sign: a checkpoint that is merely gone has been moved by another process, and must stay in
        its store."""
        with contextlib.suppress(OSError):  # on a full disk, deletions make room
            self._sign(uuid).touch()
        super()._vanish(uuid)

    def _sign(self, uuid: str) -> Path:
        return self._path(uuid).with_name(f".{uuid}{_SIGN}")

    def tidy(self) -> None:
        """Remove copies whose writers died, and old signs of deletions. Raises OSError."""
        for sign in Path(str(self)).glob(f".*{_SIGN}"):
            if sign.stat().st_mtime < time.time() - _ABANDONED:
                sign.unlink()
        for one in list(self.names()):
            if not one.whole and one.changed < time.time() - _ABANDONED:
                self.discard(one.uuid)

    def move(self, uuid: str, store: CheckpointStore) -> None:
        """Move a checkpoint to its ``store``, which looks into no spool; it is in one of the two at any time. Several processes may
        do it, one after the other or at once: a job that the scheduler takes for dead may still run. Raises OSError and
        CheckpointError: CheckpointNotFound where it is in neither, or was deleted meanwhile."""
        owner, gone = self.identity(uuid).owner, CheckpointNotFound(f"checkpoint {uuid} is not in {self}")
        if self._is_in(store, uuid, owner):
            store.discard(uuid)  # what is left of the staging of one that died right after publishing
        else:
            try:
                with self.held(uuid) as source, (source or self).restore(uuid) as folder:
                    store.stage(uuid)
                    brought = store.add(uuid, folder)
                    if not self.exists(uuid):
                        raise gone
                    store.publish(uuid, brought, owner=owner)
                # A deletion leaves its sign first, then takes it out of the spool, and then out of the store. So if there is no
                # sign by now, the deletion finds it in the store.
                if self._sign(uuid).exists():
                    store.delete(uuid)
                    raise gone
            except (OSError, CheckpointError):
                if self.exists(uuid):
                    raise
                if not self._sign(uuid).exists() and self._is_in(store, uuid, owner):
                    return  # another process has moved it
                store.discard(uuid)
                raise gone from None
        self.forget(uuid)

    def _is_in(self, store: CheckpointStore, uuid: str, owner: Optional[Owner]) -> bool:
        """What is damaged there makes room for the copy that is whole. Raises CheckpointNotOwned where it is another's."""
        if owner is not None:
            store.check_claim(uuid, Claim(owner.cluster, owner.experiment))
        try:
            return store.exists(uuid) and store.files(uuid) is not None
        except CheckpointDamaged:
            store.delete(uuid)
            return False


def _by_store(method: M) -> M:
    """The method of ``Spooled`` that calls the same of its store."""
    name = method.__name__

    def call(self: Spooled, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.store, name)(*args, **kwargs)

    return cast(M, call)


class Spooled(CheckpointStore):
    """``store``, with what waits for it in ``fallback``, which is looked at first: it is there when the store is away."""

    fallback: Spool

    def __init__(self, store: CheckpointStore, spool: Spool) -> None:
        self.store, self.fallback = store, spool
        self.owner = store.owner

    def __str__(self) -> str:
        return str(self.store)

    @contextlib.contextmanager
    def _of(self, uuid: str) -> Iterator[CheckpointStore]:
        with self.fallback.held(uuid) as spooled:
            yield spooled or self.store

    # --- reading

    def exists(self, uuid: str) -> bool:
        return self.fallback.exists(uuid) or self.store.exists(uuid)

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
        spooled = self.fallback.identity(uuid)
        return spooled if spooled.exists else self.store.identity(uuid)

    def delete(self, uuid: str, globs: Sequence[str] = ("**/*",), *, claim: Optional[Claim] = None) -> Dict[str, int]:
        """In both places, in the spool first: whoever brings it from there looks there again when it has arrived."""
        remaining = self.fallback.delete(uuid, globs, claim=claim)
        stored = self.store.delete(uuid, globs, claim=claim)
        return remaining or stored

    def bring(self, uuid: str) -> None:
        self.fallback.move(uuid, self.store)

    # --- what the store alone does

    @property
    def may_be_away(self) -> bool:
        return self.store.may_be_away

    may_come_back = _by_store(CheckpointStore.may_come_back)
    full = _by_store(CheckpointStore.full)
    stage = _by_store(CheckpointStore.stage)
    add = _by_store(CheckpointStore.add)
    flush = _by_store(CheckpointStore.flush)
    publish = _by_store(CheckpointStore.publish)
    discard = _by_store(CheckpointStore.discard)
    leave = _by_store(CheckpointStore.leave)
    without_checksums = _by_store(CheckpointStore.without_checksums)
    add_checksums = _by_store(CheckpointStore.add_checksums)
    share = _by_store(CheckpointStore.share)
    is_there = _by_store(CheckpointStore.is_there)
    names = _by_store(CheckpointStore.names)
    synced_folder = _by_store(CheckpointStore.synced_folder)
    mirror = _by_store(CheckpointStore.mirror)
    remove_folder = _by_store(CheckpointStore.remove_folder)
    mark = _by_store(CheckpointStore.mark)
    find_mark = _by_store(CheckpointStore.find_mark)
