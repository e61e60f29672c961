"""Matching of a checkpoint's files by globs."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Dict, Iterable, List, Sequence


def matching(paths: Iterable[str], globs: Sequence[str]) -> List[str]:
    patterns = [[part for part in pattern.split("/") if part not in ("", ".")] for pattern in globs]
    return [path for path in paths if any(_matches(path.rstrip("/").split("/"), pattern) for pattern in patterns)]


def within(path: str, globs: Sequence[str]) -> bool:
    """Whether a glob means the path, or a directory that it is in."""
    parts = path.rstrip("/").split("/")
    return bool(matching(("/".join(parts[:n]) for n in range(1, len(parts) + 1)), globs))


def surviving(resources: Dict[str, int], globs: Sequence[str]) -> Dict[str, int]:
    """``resources`` without what matches, and without all that is in a directory that does."""
    gone = {path.rstrip("/") for path in matching(resources, globs)}

    def stays(path: str) -> bool:
        parts = path.rstrip("/").split("/")
        return not any("/".join(parts[:n]) in gone for n in range(1, len(parts) + 1))

    return {path: size for path, size in resources.items() if stays(path)}


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """As in ``glob``: ``**`` is any number of folders, and only what is written with a dot is found with one.

    All beginnings that match so far are kept side by side: to try one after the other takes years for many ``**``.
    """
    begun = {0}  # how many parts the pattern's beginning may take
    for piece in pattern:
        if piece == "**":
            folders = [at for at, part in enumerate(parts) if part.startswith(".")]
            begun = {
                at
                for begin in begun
                for at in range(begin, min((f for f in folders if f >= begin), default=len(parts)) + 1)
            }
        else:
            begun = {at + 1 for at in begun if at < len(parts) and _fits(parts[at], piece)}
    return len(parts) in begun


def _fits(part: str, piece: str) -> bool:
    hidden = part.startswith(".") and not piece.startswith(".")
    return not hidden and fnmatchcase(part, piece)
