"""Files for TensorBoard: written where ``get_tensorboard_path()`` says, copied to checkpoint storage."""

from __future__ import annotations

import enum
import logging
import os
from pathlib import Path
from typing import Callable, Dict, Tuple

logger = logging.getLogger("dethpc.core")

Selector = Callable[[Path], bool]
Mangler = Callable[[Path, int], Path]


class TensorboardMode(enum.Enum):
    """``AUTO``: the chief's files are copied by themselves, at checkpoints and at the end. ``MANUAL``: by
    ``upload_tensorboard_files()`` alone."""

    AUTO = "AUTO"
    MANUAL = "MANUAL"


class TensorboardFiles:
    """Files below ``path`` (this worker's, on this machine) and their copies below ``target`` (in checkpoint storage)."""

    def __init__(self, path: Path, target: Path) -> None:
        self._path = path
        self._target = target
        self._copied: Dict[Path, Tuple[float, int]] = {}

    @property
    def path(self) -> Path:
        self._path.mkdir(parents=True, exist_ok=True)
        return self._path

    def sync(self, selector: Selector = lambda _: True, mangler: Mangler = lambda path, _: path, rank: int = 0) -> None:
        """Copy what is new or has changed. ``mangler`` gets the path relative to ``path`` and the rank, and names the copy."""
        if not self._path.is_dir():
            return
        for here, _, names in os.walk(self._path):
            for name in names:
                source = Path(here, name)
                if selector(source):
                    self._copy(source, self._target / mangler(source.relative_to(self._path), rank))

    def _copy(self, source: Path, target: Path) -> None:
        import shutil

        found = source.stat()
        if self._copied.get(source) == (found.st_mtime, found.st_size):
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        self._copied[source] = (found.st_mtime, found.st_size)
