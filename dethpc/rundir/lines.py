"""Whole lines of a file that somebody may be writing to, from either end, in bounded memory: many as one block, or one by one.

All functions give the offset of what they read and its bytes, newlines included. For what is longer than ``MOST`` bytes, and so no
line, they give empty bytes instead, once for each piece of it that was passed over, with the offset to which they have come.
"""

from __future__ import annotations

import os
from typing import Iterator, Tuple, Union

from dethpc.rundir.files import open_kept, read_at

Path = Union[str, "os.PathLike[str]"]

MOST = 1 << 20
"""Bytes of a line, and of a block."""

_BLOCK = 1 << 16  # the first; the next ones double, so that a few lines cost little and all of them few calls


def forward(path: Path, offset: int = 0) -> Iterator[Tuple[int, bytes]]:
    """Lines from byte ``offset`` on. No file is no line. Raises: OSError."""
    for at, block in blocks(path, offset):
        if not block:
            yield at, block
        for raw in split(block):
            yield at, raw
            at += len(raw)


def split(block: bytes) -> list[bytes]:
    return [text + b"\n" for text in block[:-1].split(b"\n")] if block else []


def blocks(path: Path, begin: int = 0, most: int = MOST) -> Iterator[Tuple[int, bytes]]:
    """Whole lines from ``begin``, where one begins, about ``most`` bytes at a time. No file is no line.

    Raises: OSError.
    """
    try:
        file = open_kept(path)
    except FileNotFoundError:
        return
    with file:
        size, broken = min(_BLOCK, MOST), False  # broken: in the middle of what is too long
        while True:
            piece = read_at(file, size, begin)
            cut = (piece.find(b"\n") if broken else piece.rfind(b"\n")) + 1
            if cut:
                at, begin = begin, begin + cut
                yield (begin, b"") if broken else (at, piece[:cut])
                size, broken = min(2 * size, most, MOST), False
            elif len(piece) < size:
                return  # nothing more, or still being written
            elif size < MOST and not broken:
                size = min(2 * size, MOST)
            else:
                begin, broken = begin + len(piece), True
                yield begin, b""


def blocks_backward(path: Path, most: int = MOST) -> Iterator[Tuple[int, bytes]]:
    """As ``blocks``, the last one first. Raises: OSError."""
    try:
        file = open_kept(path)
    except FileNotFoundError:
        return
    with file:
        position = file.seek(0, os.SEEK_END)
        size = min(_BLOCK, MOST)
        rest = b""  # of the line that began before ``position``
        broken = True  # what is read first belongs to no line: it is too long, or still being written
        while position > 0:
            step = min(size, position)
            position -= step
            piece = read_at(file, step, position)
            if broken:
                piece = piece[: piece.rfind(b"\n") + 1]
                broken = not piece
            elif len(piece) - (last := piece.rfind(b"\n") + 1) + len(rest) > MOST:
                piece, rest, broken = piece[:last], b"", not last
                if last:
                    yield position + last, b""
            if broken:
                yield position, b""
            whole = piece + rest
            first = whole.find(b"\n") + 1 if position > 0 else 0
            if first < len(whole):
                yield position + first, whole[first:]
            rest = whole[:first]
            size = min(2 * size, most, MOST)
