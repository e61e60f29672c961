"""``Cache`` provides a dataset: from the node's folder, else from the bucket, else built by the training code.

The node's folder has a size limit: datasets that are not being read are removed, least recently used first (``make_space``).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from pathlib import Path
from typing import Any, Callable, Iterable, List, NamedTuple, Optional, Set

from dethpc.data_layer import build
from dethpc.data_layer.about import ABOUT, DATA, About
from dethpc.data_layer.entry import Entry, Lease, remove_unused
from dethpc.data_layer.key import Key
from dethpc.data_layer.place import Place
from dethpc.data_layer.records import Records
from dethpc.errors import CheckpointDamaged, DataLayerError, DatasetDamaged
from dethpc.rundir.tree import remove
from dethpc.storage import manifest
from dethpc.storage.driver import Driver
from dethpc.storage.transfer import fetch, send

logger = logging.getLogger("dethpc.data_layer")


Make = Callable[[], Iterable[Any]]


class Cache:
    """The datasets of one ``Place``. All processes of a node may use it at once: of those that want the same dataset one makes it,
    and the others wait."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._distrusted: Set[str] = set()  # what was damaged in the bucket

    def records(self, key: Key, make: Make) -> Records:
        """The dataset ``key``; ``make`` returns its records where it is neither here nor in the bucket.

        Raises DataLayerError, ImportError without LMDB, and whatever ``make`` raises; then nothing is left of it.
        """
        build.lmdb()

        def renew(damaged: Lease) -> Lease:
            return self._lease(key, make, damaged)

        lease = self._lease(key, make)
        try:
            return Records(key, lease, renew)
        except DatasetDamaged as error:
            logger.warning("%s; it is made again", error)
        return Records(key, renew(lease), renew)

    def _lease(self, key: Key, make: Make, damaged: Optional[Lease] = None) -> Lease:
        entry = Entry(self._place.folder, key)
        lease = _usable(entry, damaged)
        if lease is None:
            with entry.building(lambda: logger.warning("%s is being made by another process, and waited for", key)):
                lease = _usable(entry, damaged)  # another may have made it meanwhile
                if lease is None:
                    self._bring(entry, make)
                    lease = _usable(entry, damaged)
        if lease is None:
            raise DatasetDamaged(f"{key} is damaged as soon as it is written: is the disk of {entry.folder} in order?")
        self._send(entry, lease)
        return lease

    def _bring(self, entry: Entry, make: Make) -> None:
        """From the bucket, or made."""
        staged = entry.stage()
        try:
            about = self._fetch(entry, staged)
            if about is not None:
                entry.publish(staged, about)
                entry.note_sent(self._where)
                return
            entry.publish(staged, self._build(entry, staged, make))
        finally:
            if staged.exists():
                remove(staged)

    def _build(self, entry: Entry, staged: Path, make: Make) -> About:
        logger.info("%s is made, in %s", entry.key, entry.folder)
        began = time.monotonic()

        def make_room(size: int) -> None:
            make_space(self._place.folder, self._place.most, size, entry.folder)

        count = build.write(staged, make(), make_room)
        data = manifest.measure(staged, [DATA])[DATA]
        logger.info("%s: %d records, %d bytes, in %.1f s", entry.key, count, data.size, time.monotonic() - began)
        return About(entry.key, os.urandom(8).hex(), count, data)

    # --- the bucket -----------------------------------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        return "" if self._place.bucket is None else self._place.bucket.where

    def _fetch(self, entry: Entry, staged: Path) -> Optional[About]:
        """None when it is not in the bucket, or cannot be had from there, which is said."""
        if self._place.bucket is None:
            return None
        copy, about = Copy(self._place.bucket, entry.key), None
        try:
            about = copy.about()
            if about is None:
                return None
            make_space(self._place.folder, self._place.most, about.data.size, entry.folder)
            copy.fetch(about, staged)
        except (DatasetDamaged, OSError) as error:
            logger.warning("%s cannot be fetched, and is made here: %s", entry.key, error)
            if about is not None and isinstance(error, DatasetDamaged):
                self._distrusted.add(about.build_id)
            (staged / DATA).unlink(missing_ok=True)  # what came of it
            return None
        logger.info("%s: %d records fetched from %s", entry.key, about.records, self._where)
        return about

    def _send(self, entry: Entry, lease: Lease) -> None:
        """It goes to the bucket unless it is there; a bucket that is away costs a warning, and the next trial tries again."""
        if self._place.bucket is None or entry.is_in(self._where):
            return
        with entry.alone() as free:
            if not free or entry.is_in(self._where):
                return  # another process does it, or did
            copy = Copy(self._place.bucket, entry.key)
            try:
                there = _whole(copy)
                if there is None or there.build_id in self._distrusted:
                    copy.send(lease.about, lease.folder, there)
                entry.note_sent(self._where)
            except OSError as error:
                logger.warning("%s is not kept in %s: %s", entry.key, self._where, error)


def _usable(entry: Entry, damaged: Optional[Lease]) -> Optional[Lease]:
    """None when it is not there, or is what is damaged."""
    try:
        lease = entry.lease()
    except DatasetDamaged as error:
        logger.warning("%s; it is made again", error)
        return None
    if lease is not None and damaged is not None and lease.is_of(damaged):
        lease.close()
        return None
    return lease


def _whole(copy: Copy) -> Optional[About]:
    try:
        return copy.about()
    except DatasetDamaged:
        return None


class Copy:
    """The copy in the bucket of the dataset ``key``. Every method raises OSError when the bucket does not answer."""

    def __init__(self, driver: Driver, key: Key) -> None:
        self._driver, self._key = driver, key

    def about(self) -> Optional[About]:
        """None when it is not there. Raises DatasetDamaged."""
        try:
            return About.from_text(self._key, self._driver.get(f"{self._key.folder}/{ABOUT}"))
        except FileNotFoundError:
            return None

    def fetch(self, about: About, folder: Path) -> None:
        """Bring ``data.mdb`` to ``folder``, compared with its checksums. Raises DatasetDamaged."""
        try:
            fetch(self._driver, self._at(about), {DATA: about.data}, folder)
        except CheckpointDamaged as error:
            raise DatasetDamaged(f"{self._key} is damaged in {self._driver.where}: {error}") from None

    def send(self, about: About, folder: Path, instead_of: Optional[About]) -> None:
        """Bring up what is in ``folder``. ``instead_of``: what was there before, which goes."""
        send(self._driver, folder, self._at(about), [DATA])
        self._driver.replace(f"{self._key.folder}/{ABOUT}", json.dumps(about.to_json()).encode())
        if instead_of is not None and instead_of.build_id != about.build_id:
            self._driver.remove([f"{self._at(instead_of)}/{DATA}"])

    def _at(self, about: About) -> str:
        return f"{self._key.folder}/{about.build_id}"


class Held(NamedTuple):
    """A dataset's folder; ``size`` in bytes, with what is being built; ``used``: Unix time, 0 of what has not been published."""

    folder: Path
    size: int
    used: float


def held(root: Path) -> List[Held]:
    """All datasets below ``root``, the one that was used longest ago first."""
    datasets = [Held(folder, _size(folder), _used(folder)) for folder in root.iterdir() if folder.is_dir()]
    return sorted(datasets, key=lambda one: one.used)


def make_space(root: Path, most: Optional[int], need: int, mine: Path) -> None:
    """Room for ``need`` bytes, with what is in the folder ``mine`` of the dataset that wants them already.

    ``most``: bytes that all may take together; None: half of what the disk would have free without them. Raises DataLayerError
    when what can be removed is not enough.
    """
    others = [one for one in held(root) if one.folder != mine]
    used = sum(one.size for one in others)
    if most is None:
        system = os.statvfs(root)
        most = (used + _size(mine) + system.f_bavail * system.f_frsize) // 2
    for one in others:
        if used + need <= most:
            return
        remove_unused(one.folder)
        remaining = _size(one.folder)
        if remaining < one.size:
            logger.info("%s was used longest ago: %d bytes of it make room", one.folder, one.size - remaining)
        used += remaining - one.size
    if used + need > most:
        raise DataLayerError(
            f"{root} may hold {most} bytes, and needs {used + need}: {used} of them are being read or built; raise "
            "data_layer.local_cache_size_gib, or name a folder on a larger disk"
        )


def _size(folder: Path) -> int:
    size = 0
    for file in folder.glob(f"*/{DATA}"):
        with contextlib.suppress(OSError):  # another removes it
            size += file.stat().st_size
    return size


def _used(folder: Path) -> float:
    try:
        return (folder / "data" / ABOUT).stat().st_mtime
    except OSError:
        return 0.0
