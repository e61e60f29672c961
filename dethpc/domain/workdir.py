"""Code that names Determined's working directory, ``/run/determined/workdir``, by its path."""

from __future__ import annotations

from dethpc.domain.trial_config import WORKDIR

INSTEAD = "use a relative path, or $DET_WORKDIR"

ABSENT = f"outside of containers, nodes have no {WORKDIR}: {INSTEAD}"

MAX_BYTES = 1 << 20
"""A larger file is no code."""

_SUFFIXES = (".py", ".sh", ".bash", ".sbatch", ".slurm", ".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".ipynb")


def is_code(path: str, size: int) -> bool:
    """``size`` in bytes."""
    return path.endswith(_SUFFIXES) and size <= MAX_BYTES


def line_naming_it(content: bytes) -> int:
    """The number of the first line that names it; 0: none does."""
    at = content.find(WORKDIR.encode())
    return 0 if at < 0 else content.count(b"\n", 0, at) + 1
