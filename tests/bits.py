"""A bit of a file flips, as on a disk or in a memory that is going bad."""

from __future__ import annotations

from pathlib import Path


def flip(path: Path, at: bytes = b"", behind: int = 1) -> bytes:
    """Flip a bit so many bytes from where ``at`` begins, or in the middle; returns what the file held before. It is written in
    place: a disk that is full hinders neither this nor the same again, which mends it."""
    before = path.read_bytes()
    place = before.index(at) + behind if at else len(before) // 2
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(bytes([before[place] ^ 1]))
    return before
