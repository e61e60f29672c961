"""Lines of a log that repeat a configuration or a command. Pure.

A training that prints its environment or its configuration prints the patterns of its log policies, and words such as "error" in
them. Such lines are in the log, and nothing is concluded from them.
"""

from __future__ import annotations

import re
from typing import Dict, Optional

_CONFIGURATION = re.compile(r"log_policies|DET_EXPERIMENT_CONFIG|\b(?:cancel_retries|exclude_node)\b")
_OF_DETHPC = re.compile(r"dethpc: ")
_TRACED = re.compile(r"\++ \S")
_GOES_ON = re.compile(r"""[-\]})'",]""")  # at the beginning's own depth: an item of a list, or what closes it

LONGEST_DUMP = 500
"""Lines of a configuration, from the name of its log policies on."""


class Quotations:
    """One output of one process. Of several workers in it, each ``rank`` prints for itself."""

    def __init__(self) -> None:
        self._dumps: Dict[Optional[int], _Dump] = {}

    def repeats(self, text: str, rank: Optional[int] = None) -> bool:
        """Whether the next line is of a configuration."""
        dump = self._dumps.get(rank)
        if dump is not None and dump.has(text):
            return True
        self._dumps.pop(rank, None)
        match = _CONFIGURATION.search(text)
        if match is not None and _is_open(text[match.end() :]):
            self._dumps[rank] = _Dump(_depth(text))
        return match is not None


def quotes(text: str) -> bool:
    """Whether a line tells of a command of a shell under ``set -x``, or is dethpc's, which may quote a log."""
    return _TRACED.match(text) is not None or _OF_DETHPC.match(text) is not None


class _Dump:
    """A configuration that is printed over several lines."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._lines = 0

    def has(self, text: str) -> bool:
        self._lines += 1
        if self._lines > LONGEST_DUMP:
            return False
        depth, content = _depth(text), text.lstrip()
        return not content or depth > self._depth or (depth == self._depth and _GOES_ON.match(content) is not None)


def _depth(text: str) -> int:
    return len(text) - len(text.lstrip())


def _is_open(rest: str) -> bool:
    """Whether what follows the name goes on in the next line."""
    opened = sum(rest.count(mark) for mark in "[{(") - sum(rest.count(mark) for mark in "]})")
    return (
        opened > 0
        or rest.strip(" '\"\\") in ("", ":", "=", ": |", ": >", ": >-")
        or rest.rstrip().endswith((" '", ' "'))
    )


def configured(pattern: str) -> re.Pattern[str]:
    """What finds the source of a regular expression where a configuration prints it: behind its key, and anywhere if no message of
    a program would hold it."""
    spellings = {pattern, pattern.replace("'", "''")}
    for _ in range(3):  # a string in JSON in a string
        spellings |= {text.replace("\\", "\\\\") for text in spellings}
        spellings |= {text.replace('"', '\\"') for text in spellings} | {text.replace("/", "\\/") for text in spellings}
    source = "|".join(re.escape(text) for text in sorted(spellings, key=len, reverse=True))
    key = r"""\bpattern['"\\]*\s*[:=|]+\s*['"\\]*"""
    anywhere = rf"|{source}" if _DISTINCT.search(pattern) else ""
    return re.compile(f"{key}(?:{source}){anywhere}")


_DISTINCT = re.compile(r"[*+?^$|(){}\[\]\\]")
