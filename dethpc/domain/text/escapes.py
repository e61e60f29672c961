"""Control characters made visible, where text that users wrote meets a terminal or a log.

A terminal obeys them: they set its title, its clipboard and where the next text appears. A newline in a log begins what looks like
the next entry; marks of writing direction show text in another order than it has.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

_CONTROL = [*range(0x20), *range(0x7F, 0xA0)]
_DIRECTION = [0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_LINES = [0x2028, 0x2029]
_HALVES = range(0xD800, 0xE000)  # of surrogate pairs


@functools.cache
def _shown(spared: str) -> Mapping[int, str]:
    """How each of them is spelled out, but for those ``spared``."""
    codes = (code for code in (*_CONTROL, *_DIRECTION, *_LINES, *_HALVES) if chr(code) not in spared)
    return {code: ascii(chr(code))[1:-1] for code in codes}


def escaped(text: str) -> str:
    """``text`` as lines of a terminal: tabs and newlines stay, all other control characters are spelled out."""
    return text if text.isprintable() else text.translate(_shown("\t\n"))


def in_one_line(text: str) -> str:
    """``text`` without any control character, newlines included."""
    return text if text.isprintable() else text.translate(_shown(""))
