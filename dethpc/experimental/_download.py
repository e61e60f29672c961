"""Downloads of a checkpoint's files, from its storage or through the master."""

from __future__ import annotations

import contextlib
import enum
from pathlib import Path
from typing import Any, Dict, Iterator, Sequence, Set, Tuple

from dethpc import storage
from dethpc.client import checkpoints
from dethpc.client.downloads import through_master
from dethpc.client.session import Session
from dethpc.errors import (
    CheckpointNotFound,
    ConfigError,
    DethpcError,
    MultipleDownloadsFailed,
    Refused,
)
from dethpc.rundir.home import Home, home
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
