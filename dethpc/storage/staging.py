"""Staging folders of a machine, for files on their way to and from an object store."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import List, Optional

from dethpc.errors import CheckpointError
from dethpc.rundir import scratch
from dethpc.rundir.tree import remove
from dethpc.storage.base import PathLike


class Staging:
    """``disk``: a folder of this machine that all its processes of one job share; None: one in the temporary folder, of this user
    alone, which all processes of this user find again."""

    def __init__(self, disk: Optional[PathLike] = None) -> None:
        self._disk = None if disk is None else os.fspath(disk)

    def path(self, uuid: str) -> Path:
        """Of a checkpoint. Training code may look for the checkpoint's name in the path that it saves to."""
        return self.folder() / f"{uuid}.partial" / uuid

    def leave(self, uuid: str) -> None:
        remove(self.path(uuid).parent)

    def temporary(self, name: str) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix=f"{name}-", dir=self.folder())

    def folder(self) -> Path:
        """Raises CheckpointError."""
        if self._disk is not None:
            Path(self._disk).mkdir(parents=True, exist_ok=True)
            return Path(self._disk)
        folder = Path(tempfile.gettempdir(), f"dethpc-staging-{os.geteuid()}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        return folder if scratch.is_own(str(folder)) else _another(folder)


def _another(folder: Path) -> Path:
    """A folder of this user's alone in the place of ``folder``, which another user has: its name cannot be foreseen, and nobody
    else can make one that is this user's, so that the first one of its kind is found again by all processes. Raises
    CheckpointError."""

    def own() -> List[str]:
        names = (name for name in os.listdir(folder.parent) if name.startswith(f"{folder.name}-"))
        return sorted(name for name in names if scratch.is_own(str(folder.with_name(name))))

    try:
        if not own():
            tempfile.mkdtemp(prefix=f"{folder.name}-{time.time_ns():020d}-", dir=folder.parent)
        return folder.with_name(own()[0])
    except OSError as error:
        raise CheckpointError(
            f"{folder} is not this user's alone, and no other folder can be made beside it ({error.strerror}): checkpoints cannot "
            "be staged there; set TMPDIR"
        ) from error
