"""Differences between two context directories, by file and by line. Memory and time are bounded, whatever the files contain."""

from __future__ import annotations

import difflib
import hashlib
import io
import tarfile
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from dethpc.errors import ContextError
from dethpc.master.durable.contexts import DAMAGED

MOST_FILES = 200
"""Changes that are told."""

MOST_BYTES = 256 << 10
"""Of a file whose lines are compared."""

MOST_LINES = 5000
"""Of a file whose lines are compared: difflib's time grows with their square."""

MOST_ALL = 4 << 20
"""Bytes of all files whose lines are compared in one answer."""

_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class Change:
    """``diff``: unified; empty where ``why`` says why there is none."""

    path: str
    kind: Literal["added", "removed", "changed"]
    diff: str = ""
    why: str = ""


def changes(before: bytes, after: bytes) -> tuple[list[Change], int]:
    """From one tar.gz to the other, by path; and how many more there are than are told. Raises ContextError."""
    if before == after:
        return [], 0
    old, new = _digests(before), _digests(after)
    paths = sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
    text_paths = _that_fit(paths[:MOST_FILES], old, new)
    texts_before, texts_after = _texts(before, text_paths), _texts(after, text_paths)
    entries = [_change(path, old, new, texts_before.get(path), texts_after.get(path)) for path in paths[:MOST_FILES]]
    return entries, max(0, len(paths) - MOST_FILES)


_Digests = dict[str, tuple[int, str]]
"""Path -> size in bytes and SHA-256."""


def _digests(targz: bytes) -> _Digests:
    digests: _Digests = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(targz), mode="r:gz") as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isfile() else None
                if content is None:
                    if member.issym():
                        digests[member.name] = (0, f"-> {member.linkname}")
                    continue
                digest = hashlib.sha256()
                while piece := content.read(_AT_ONCE):
                    digest.update(piece)
                digests[member.name] = (member.size, digest.hexdigest())
    except DAMAGED as error:
        raise ContextError(f"the stored context directory is damaged: {error}") from error
    return digests


def _that_fit(paths: list[str], old: _Digests, new: _Digests) -> set[str]:
    """The files that are small enough to be compared, until they are too many together."""
    fit, total = set[str](), 0
    for path in paths:
        sizes = [side[path][0] for side in (old, new) if path in side]
        if max(sizes) <= MOST_BYTES and total + sum(sizes) <= MOST_ALL:
            total += sum(sizes)
            fit.add(path)
    return fit


def _texts(targz: bytes, paths: Collection[str]) -> dict[str, bytes]:
    texts = {}
    with tarfile.open(fileobj=io.BytesIO(targz), mode="r:gz") as tar:
        for member in tar:
            if member.name in paths and member.isfile() and (content := tar.extractfile(member)) is not None:
                texts[member.name] = content.read()
            elif member.name in paths and member.issym():
                texts[member.name] = f"a link to {member.linkname}\n".encode()
    return texts


def _change(path: str, old: _Digests, new: _Digests, before: bytes | None, after: bytes | None) -> Change:
    kind: Literal["added", "removed", "changed"] = (
        "added" if path not in old else "removed" if path not in new else "changed"
    )
    if before is None and after is None:
        return Change(path, kind, why="too large to compare its lines")
    if any(side is not None and b"\0" in side for side in (before, after)):
        return Change(path, kind, why="a binary file")
    old_lines, new_lines = ((side or b"").decode("utf-8", "replace").splitlines() for side in (before, after))
    if max(len(old_lines), len(new_lines)) > MOST_LINES:
        return Change(path, kind, why=f"more than {MOST_LINES} lines: too many to compare")
    lines = list(difflib.unified_diff(old_lines, new_lines, lineterm=""))
    diff = "\n".join(lines[2:])  # without the names of the two sides
    return Change(path, kind, diff, "" if diff else "only the ends of lines differ" if kind == "changed" else "empty")
