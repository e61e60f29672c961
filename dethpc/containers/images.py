"""Which images a run can start from."""

from __future__ import annotations

import posixpath


def kind(path: str) -> str:
    """ "sif", "sqsh" or "folder", by its name alone."""
    suffix = posixpath.splitext(path)[1].lower()
    return {".sif": "sif", ".sqsh": "sqsh", ".sqfs": "sqsh", ".squashfs": "sqsh"}.get(suffix, "folder")
