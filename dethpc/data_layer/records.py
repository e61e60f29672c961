"""The records of a cached dataset: a sequence that reads each from the node's disk when it is asked for."""

from __future__ import annotations

import logging
import operator
import os
import threading
from typing import Any, Callable, Dict, Iterator, SupportsIndex, Tuple
from weakref import WeakValueDictionary

from dethpc.data_layer.build import index, lmdb
from dethpc.data_layer.entry import Entry, Lease
from dethpc.data_layer.key import Key
from dethpc.data_layer.record import decode
from dethpc.errors import DatasetDamaged

logger = logging.getLogger("dethpc.data_layer")

Renew = Callable[[Lease], Lease]
"""A lease of the dataset, made again unless what is there is another than this, which is damaged."""


class Records:
    """As a list of them, in their order. Any thread may read, a child process, too, and a copy by pickle on the same node.

    A record that is damaged is said in the log, and the dataset is made again; where that is not possible, in a copy by pickle,
    DatasetDamaged is raised.
    """

    def __init__(self, key: Key, lease: Lease, renew: Renew) -> None:
        self.key = key
        self._lease = lease
        self._environment = _environment(lease)
        self._renew = renew
        self._length = lease.about.records
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, at: SupportsIndex) -> Any:
        """Raises IndexError."""
        n = operator.index(at)
        if not -self._length <= n < self._length:
            raise IndexError(f"{self.key} has {self._length} records, and none is number {n}")
        n %= self._length
        environment = self._environment
        try:
            return environment.read(n)
        except DatasetDamaged as error:
            logger.warning("%s: record %d: %s; it is made again", self.key, n, error)
        self._replace(environment)
        return self._environment.read(n)

    def __iter__(self) -> Iterator[Any]:
        return (self[n] for n in range(self._length))

    def _replace(self, damaged: _Environment) -> None:
        with self._lock:
            if self._environment is not damaged:
                return  # another thread has done it
            lease = self._renew(self._lease)
            if lease.about.records != self._length:
                raise DatasetDamaged(
                    f"{self.key} was damaged, and has {lease.about.records} records now instead of {self._length}: what makes it "
                    "makes something else by now; give it another dataset_version"
                )
            self._lease, self._environment = lease, _environment(lease)

    def __getstate__(self) -> Dict[str, Any]:
        return {"key": self.key, "folder": self._lease.folder, "about": self._lease.about}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        key, about = state["key"], state["about"]
        lease = Entry(state["folder"].parent.parent, key).lease()
        if lease is None or lease.about.records != about.records:
            raise DatasetDamaged(f"{key} is not in {state['folder']} any more: a copy is read where it was made")
        self.__init__(key, lease, _cannot_renew)  # type: ignore[misc]


def _cannot_renew(damaged: Lease) -> Lease:
    raise DatasetDamaged("the dataset is damaged, and this process does not know how to make it: start the trial again")


class _Environment:
    """LMDB's, of one file. It may not be opened twice in a process, nor in a child, which goes on with its parent's: read-only and
    without locks it is nothing but a piece of memory."""

    def __init__(self, path: str) -> None:
        library = lmdb()
        self._damaged = library.Error
        self._env = library.open(path, subdir=False, readonly=True, lock=False, readahead=False, max_spare_txns=16)

    def read(self, n: int) -> Any:
        """Raises DatasetDamaged."""
        try:
            with self._env.begin(buffers=True) as transaction:
                stored = transaction.get(index(n))
                if stored is None:
                    raise DatasetDamaged("it is missing")
                return decode(stored)
        except self._damaged as error:
            raise DatasetDamaged(str(error)) from error


_environments: WeakValueDictionary[Tuple[int, int], _Environment] = WeakValueDictionary()
_opening = threading.Lock()


def _environment(lease: Lease) -> _Environment:
    """Raises DatasetDamaged."""
    status = os.stat(lease.data)
    with _opening:
        environment = _environments.get((status.st_dev, status.st_ino))
        if environment is None:
            try:
                environment = _Environment(str(lease.data))
            except lmdb().Error as error:
                raise DatasetDamaged(f"{lease.data} is damaged: {error}") from error
            _environments[status.st_dev, status.st_ino] = environment
        return environment


def _let_go_in_child() -> None:
    """Another thread of the parent's may have held it."""
    global _opening
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_let_go_in_child)
