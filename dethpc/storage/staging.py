"""Where a machine keeps what it is about to bring to a store that is no folder, or has just got from there."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Optional

from dethpc.errors import CheckpointError
from dethpc.rundir import scratch
from dethpc.rundir.tree import remove
from dethpc.storage.base import PathLike


class Staging:
    """``disk``: a folder of this machine that all its processes of one job share; None: one in the temporary folder, of this user
    alone."""

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
        if not scratch.is_own(str(folder)):
            raise CheckpointError(f"{folder} is not this user's alone: checkpoints cannot be staged there; set TMPDIR")
        return folder
