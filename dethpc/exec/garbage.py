"""``python3 -m dethpc.exec.garbage FILE``: removes the files of an experiment that is deleted. Doing it twice does no harm.

Its job runs on a compute node as any other run's. ``FILE`` is a ``Garbage``, which the master writes into the run's directory.
"""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import asdict, dataclass, field
from typing import Any, Callable, Iterator

from dethpc import storage
from dethpc.errors import DethpcError
from dethpc.rundir.files import read_json
from dethpc.rundir.tree import remove

_CLOCKS = 2.0  # seconds by which a file server's times may be coarse


@dataclass(frozen=True)
class Garbage:
    """What is to go. ``present``: the storage must be there on the node, for it holds some of the checkpoints."""

    storage: dict[str, Any] = field(default_factory=dict)  # a checkpoint_storage section
    present: bool = False
    checkpoints: list[str] = field(default_factory=list)  # uuids
    beside: str = ""  # a folder beside the checkpoints
    folders: list[str] = field(default_factory=list)  # absolute paths
    context: str = ""  # a file that other experiments may want again, "" where one has it already
    unused_at: float = 0.0  # since when nobody has wanted the context, by the clock of its file system

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def remove_all(garbage: Garbage) -> Iterator[str]:
    """What could not be removed, and why, in words. One thing's trouble keeps nothing else."""
    if garbage.storage:
        yield from _of_storage(garbage)
    for folder in garbage.folders:
        yield from _tried(folder, lambda: _folder(folder))  # noqa: B023
    if garbage.context:
        yield from _tried(garbage.context, lambda: _context(garbage.context, garbage.unused_at))


def _tried(what: str, do: Callable[[], object]) -> Iterator[str]:
    try:
        do()
    except (OSError, DethpcError) as error:
        yield f"{what}: {error}"


def _of_storage(garbage: Garbage) -> Iterator[str]:
    try:
        store = storage.build(garbage.storage)
    except DethpcError as error:
        yield str(error)
        return
    if garbage.present and not os.path.isdir(str(store)):
        where = os.uname().nodename
        yield f"checkpoint storage {store} is not there on {where}; mount it, or make an empty folder if its files are gone"
        return
    for uuid in garbage.checkpoints:
        yield from _tried(f"checkpoint {uuid}", lambda: store.delete(uuid))  # noqa: B023
    if garbage.beside:
        yield from _tried(f"{garbage.beside} in {store}", lambda: store.remove_beside(garbage.beside))


def _folder(path: str) -> None:
    remove(path)
    if os.path.lexists(path):
        raise OSError("something in it cannot be removed")


def _context(path: str, unused_at: float) -> None:
    """Remove it unless somebody has wanted it since: who wants it touches it, or finds it gone and writes it again."""
    aside = f"{path}.going"
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, aside)
        if os.stat(aside).st_mtime < unused_at - _CLOCKS:
            os.unlink(aside)
        else:
            os.rename(aside, path)


def main(file: str) -> int:
    found = read_json(file)
    if found is None:
        sys.stderr.write(f"{file} is missing\n")
        return 1
    left = list(remove_all(Garbage(**{name: found[name] for name in Garbage.__dataclass_fields__ if name in found})))
    for words in left:
        sys.stderr.write(f"{words}\n")
    if left:
        more = f"; and {len(left) - 3} more, as its log says" if left[3:] else ""
        sys.stderr.write(f"garbage: {'; '.join(left[:3])}{more}\n")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
