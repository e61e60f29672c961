"""Size limit of the node's folder: datasets that are not being read are removed, least recently used first."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import List, NamedTuple, Optional

from dethpc.data_layer.about import ABOUT, DATA
from dethpc.data_layer.entry import remove_unused
from dethpc.errors import DataLayerError

logger = logging.getLogger("dethpc.data_layer")


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
