"""What lies in a folder in which others work: what goes while one looks is passed over, which ``Path.rglob`` does not do."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def files(folder: Path) -> list[Path]:
    """All that is no folder in it and below."""
    return [Path(here, name) for here, _, names in os.walk(folder) for name in names]


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """The ordinary files among them, each with what it holds."""
    for path in files(folder):
        if path.is_file():
            with contextlib.suppress(FileNotFoundError):
                yield path, path.read_bytes()
