"""``Cache`` provides a dataset: from the node's folder, else from the bucket, else built by the training code."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any, Callable, Iterable, Optional, Set

from dethpc.data_layer import build, eviction
from dethpc.data_layer.about import DATA, About
from dethpc.data_layer.bucket import Copy
from dethpc.data_layer.entry import Entry, Lease
from dethpc.data_layer.key import Key
from dethpc.data_layer.place import Place
from dethpc.data_layer.records import Records
from dethpc.errors import DatasetDamaged
from dethpc.rundir.tree import remove
from dethpc.storage import manifest

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
            eviction.make_space(self._place.folder, self._place.most, size, entry.folder)

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
            eviction.make_space(self._place.folder, self._place.most, about.data.size, entry.folder)
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
