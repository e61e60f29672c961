"""``python3 -m dethpc.exec.garbage FILE``: removes files of checkpoints, or all of an experiment; brings checkpoints that
wait for their storage to it. Doing it twice does no harm.

Its job runs on a compute node as any other run's. ``FILE`` is a ``Garbage``, which the master writes into the run's directory. What
was removed of which checkpoint stands in ``DONE`` beside it afterwards: ``{uuid: {"globs", "left": {path: bytes}, "why"}}``, where
``why`` says of one that does not belong to its experiment why its files were left in place; what was brought, in ``BROUGHT``:
``{"checkpoints": [uuid], "damaged": {uuid: why}}``, of which the latter could not be, and never can.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Callable, Generator, Iterator, Optional

from dethpc import storage
from dethpc.errors import CheckpointDamaged, CheckpointNotOwned, DethpcError
from dethpc.rundir.files import left_by_writers, read_json, write_json
from dethpc.rundir.tree import remove
from dethpc.storage import CheckpointStore
from dethpc.storage.ownership import Claim
from dethpc.storage.spool import Spool
from dethpc.storage.variables import given

DONE = "removed.json"
BROUGHT = "brought.json"
_AT_ONCE = 500  # checkpoints after which is written down what is done: a job may end at any time
_MOST_TOLD = 4 << 20  # bytes of what a task says is left, after which the next task goes on: the master reads no more
_CLOCKS = 2.0  # seconds by which a file server's times may be coarse


@dataclass(frozen=True)
class Garbage:
    """What is to go. ``present``: the storage must be there on the node, for it holds some of the checkpoints. ``claims``: by the
    uuid of each checkpoint that is to go, here and in ``parts``, the fields of a ``Claim``."""

    storage: dict[str, Any] = field(default_factory=dict)  # a checkpoint_storage section
    environment: dict[str, str] = field(default_factory=dict)  # variables of the experiment's that its storage needs
    present: bool = False
    checkpoints: list[str] = field(default_factory=list)  # uuids
    beside: str = ""  # a folder beside the checkpoints
    folders: list[str] = field(default_factory=list)  # absolute paths
    files: list[str] = field(default_factory=list)  # absolute paths
    context: str = ""  # a file that other experiments may want again, "" where one has it already
    unused_at: float = 0.0  # since when nobody has wanted the context, by the clock of its file system
    parts: list[dict[str, Any]] = field(default_factory=list)  # each the fields of a ``Part``
    spool: str = ""  # the folder in which checkpoints wait for their storage
    bring: list[dict[str, Any]] = field(default_factory=list)  # of the spool; each the fields of a ``Bring``
    forget: list[str] = field(default_factory=list)  # uuids in the spool that nobody wants any more
    claims: dict[str, list[Any]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def claim(self, uuid: str) -> Claim:
        """Without one nothing is anybody's: a checkpoint of which nobody says whose it is stays."""
        return Claim(*self.claims.get(uuid, ("", "")))


@dataclass(frozen=True)
class Part:
    """Files of checkpoints in one storage. ``present``, ``environment``: as for ``Garbage``."""

    storage: dict[str, Any]
    present: bool
    globs: dict[str, list[str]]  # by uuid
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Bring:
    """Checkpoints in the spool that belong into a storage. ``environment``: as for ``Garbage``."""

    storage: dict[str, Any]
    checkpoints: list[str]
    environment: dict[str, str] = field(default_factory=dict)


def remove_all(garbage: Garbage) -> Iterator[str]:
    """What could not be removed, and why, in words. One thing's trouble keeps nothing else, but for the directories of runs: while
    checkpoints are there whose manifests name nobody, these alone say whose they are."""
    unproven = False
    if garbage.storage:
        with given(garbage.environment):
            unproven = yield from _of_storage(garbage)
    for folder in [] if unproven else garbage.folders:
        yield from _tried(folder, lambda: _folder(folder))  # noqa: B023
        yield from _tried(folder, lambda: _archives(folder))  # noqa: B023
    for file in garbage.files:
        yield from _tried(file, lambda: _written(file))  # noqa: B023
    if garbage.context:
        yield from _tried(garbage.context, lambda: remove_context(garbage.context, garbage.unused_at))


def _tried(what: str, do: Callable[[], object]) -> Iterator[str]:
    try:
        do()
    except (OSError, DethpcError) as error:
        yield f"{what}: {error}"


def _of_storage(garbage: Garbage) -> Generator[str, None, bool]:
    """Whether checkpoints stay until their storage is back whose manifests may name nobody."""
    store = yield from _opened(garbage.storage, garbage.present, garbage.spool)
    if store is None:
        return any(garbage.claim(uuid).published for uuid in garbage.checkpoints)
    unproven = False
    for uuid in garbage.checkpoints:
        try:
            store.delete(uuid, claim=garbage.claim(uuid))
        except CheckpointNotOwned as error:
            _say_left(error)
        except (OSError, DethpcError) as error:
            unproven |= isinstance(error, OSError) and garbage.claim(uuid).published
            yield f"checkpoint {uuid}: {error}"
    if garbage.beside:
        yield from _tried(f"{garbage.beside} in {store}", lambda: store.remove_folder(garbage.beside))
    return unproven


def _say_left(error: CheckpointNotOwned) -> None:
    """In the task's log. It is no failure: nobody is to try again."""
    sys.stderr.write(f"{error}; its files are left in place: det checkpoint audit shows what to do with them\n")


def _opened(section: dict[str, Any], present: bool, spool: str) -> Generator[str, None, Optional[CheckpointStore]]:
    try:
        store = storage.build(section, spool=spool or None)
    except DethpcError as error:
        yield str(error)
        return None
    if present and not os.path.isdir(str(store)):
        where = os.uname().nodename
        yield f"checkpoint storage {store} is not there on {where}; mount it, or make an empty folder if its files are gone"
        return None
    return store


def bring(garbage: Garbage, done: Path) -> Iterator[str]:
    """What of the spool could not be brought to its storage, which is likely still away; what was is written to ``done``."""
    spool = Spool(garbage.spool)
    brought: list[str] = []
    damaged: dict[str, str] = {}
    for part in (Bring(**fields) for fields in garbage.bring):
        with given(part.environment):
            yield from _brought_of(part, spool, brought, damaged, done)
    for uuid in garbage.forget:
        try:
            spool.delete(uuid, claim=garbage.claim(uuid))
        except CheckpointNotOwned as error:
            _say_left(error)
        except (OSError, DethpcError) as error:
            yield f"checkpoint {uuid} in {spool}: {error}"
    yield from _tried(str(spool), spool.tidy)


def _brought_of(part: Bring, spool: Spool, brought: list[str], damaged: dict[str, str], done: Path) -> Iterator[str]:
    """Adds what was ``brought`` and what can never be."""
    try:
        store = storage.build(part.storage)
    except DethpcError as error:
        yield str(error)
        return
    for uuid in part.checkpoints:
        try:
            if why := _brought(spool, uuid, store):
                damaged[uuid] = why
                yield why
            else:
                brought.append(uuid)
            write_json(done, {"checkpoints": brought, "damaged": damaged})
        except (OSError, DethpcError) as error:
            yield f"checkpoint {uuid} is still in {spool}: {error}"
            if isinstance(error, OSError) and store.may_come_back(error):  # away for the others, too
                return


def _brought(spool: Spool, uuid: str, store: CheckpointStore) -> str:
    """Why it cannot be brought now or later: "" where it was."""
    try:
        spool.move(uuid, store)
        return ""
    except CheckpointDamaged as error:
        return f"{error}, and this was its only copy, in {spool}"


def remove_files(garbage: Garbage, done: Path) -> Iterator[str]:
    """What could not be removed, as ``remove_all``; what was is written to ``done``. Where that is much, the rest is left to the
    next task."""
    removed: dict[str, Any] = {}
    size = 0
    for part in (Part(**fields) for fields in garbage.parts):
        with given(part.environment):
            store = yield from _opened(part.storage, part.present, garbage.spool)
            if store is None:
                continue
            for uuid, globs in part.globs.items():
                if size >= _MOST_TOLD:
                    break
                try:
                    remaining = store.delete(uuid, globs, claim=garbage.claim(uuid))
                    removed[uuid] = {"globs": globs, "left": remaining}
                    size += len(json.dumps(remaining))
                except CheckpointNotOwned as error:
                    _say_left(error)
                    removed[uuid] = {"globs": globs, "left": {}, "why": str(error)}
                except (OSError, DethpcError) as error:
                    yield f"checkpoint {uuid}: {error}"
                if len(removed) % _AT_ONCE == 0:
                    write_json(done, removed)
    write_json(done, removed)


def _folder(path: str) -> None:
    remove(path)
    if os.path.lexists(path):
        raise OSError("something in it cannot be removed")


def _file(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _written(path: str) -> None:
    for file in (path, *left_by_writers(path)):
        _file(file)


def _archives(folder: str) -> None:
    """What the runs of a trial are folded into, of which this was the directory of the last one."""
    for path in (f"{folder}.zip", f"{folder}.zip.part"):
        _file(path)
    remove(f"{folder}.going")


def remove_context(path: str, unused_at: float) -> None:
    """Remove it unless it has been wanted since: what wants it touches it, or writes it again where it is gone."""
    aside = f"{path}.going"
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, aside)
        if os.stat(aside).st_mtime < unused_at - _CLOCKS:
            os.unlink(aside)
        else:
            os.rename(aside, path)


def main(file: str) -> int:
    content = read_json(file)
    if content is None:
        sys.stderr.write(f"{file} is missing\n")
        return 1
    garbage = Garbage(**{name: content[name] for name in Garbage.__dataclass_fields__ if name in content})
    failures = list(remove_all(garbage))
    if garbage.parts:
        failures += remove_files(garbage, Path(file).with_name(DONE))
    if garbage.spool:  # what cannot be brought is tried again soon: no failure of this task
        for message in bring(garbage, Path(file).with_name(BROUGHT)):
            sys.stderr.write(f"{message}\n")
    for message in failures:
        sys.stderr.write(f"{message}\n")
    if failures:
        more = f"; and {len(failures) - 3} more, as its log says" if failures[3:] else ""
        sys.stderr.write(f"garbage: {'; '.join(failures[:3])}{more}\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
