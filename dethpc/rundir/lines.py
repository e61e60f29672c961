"""Whole lines of a file that somebody may be writing to, from either end, in bounded memory.

Both functions give the offset of each line and its bytes, newline included. For what is longer than ``MOST`` bytes, and so no line,
they give empty bytes instead, once for each piece of it that was passed over, with the offset to which they have come.
"""

from __future__ import annotations

import os
from typing import Iterator, Tuple, Union

from dethpc.rundir.files import open_regular

Path = Union[str, "os.PathLike[str]"]

MOST = 1 << 20
"""Bytes of a line."""

_BLOCK = 1 << 16


def forward(path: Path, offset: int = 0) -> Iterator[Tuple[int, bytes]]:
    """Lines from byte ``offset`` on. No file is no line. Raises: OSError."""
    try:
        file = open_regular(path)
    except FileNotFoundError:
        return
    with file:
        file.seek(offset)
        broken = False  # in the middle of what is too long
        while piece := file.readline(MOST):
            ends = piece.endswith(b"\n")
            if not ends and len(piece) < MOST:
                return  # still being written
            begin, offset = offset, offset + len(piece)
            if ends and not broken:
                yield begin, piece
            else:
                yield offset, b""
            broken = not ends


def backward(path: Path) -> Iterator[Tuple[int, bytes]]:
    """Lines from the last one back. No file is no line. Raises: OSError."""
    try:
        file = open_regular(path)
    except FileNotFoundError:
        return
    with file:
        position = file.seek(0, os.SEEK_END)
        rest = b""  # read from ``position`` on, and not given yet
        broken = True  # what is read first belongs to no line: it is too long, or still being written
        while position > 0:
            step = min(_BLOCK, position)
            position -= step
            file.seek(position)
            rest = file.read(step) + rest
            if broken:
                rest = rest[: rest.rfind(b"\n") + 1]
                broken = not rest
            first = rest.find(b"\n") + 1
            at = position + len(rest)
            for text in reversed(rest[first:-1].split(b"\n")) if first < len(rest) else ():
                at -= len(text) + 1
                yield at, text + b"\n"
            rest = rest[:first]
            if len(rest) > MOST:
                rest, broken = b"", True
            if broken:
                yield position, b""
        if rest:
            yield 0, rest
