"""``.detignore``: the meaning that git gives to the same lines in a ``.gitignore``."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from pathspec import GitIgnoreSpec, RegexPattern

from dethpc.domain.context_files import LEFT_OUT

ALWAYS = ("*.pyc", "__pycache__", ".git")
"""Ignored whatever else is said; git itself never looks into ``.git`` either."""

_CLASSES = {
    "[:alnum:]": "a-zA-Z0-9",
    "[:alpha:]": "a-zA-Z",
    "[:blank:]": " \t",
    "[:digit:]": "0-9",
    "[:lower:]": "a-z",
    "[:space:]": " \t\r\f\v",
    "[:upper:]": "A-Z",
    "[:xdigit:]": "0-9a-fA-F",
}
_TRAILING_SPACE = re.compile(r"(?<!\\) +$")


class Ignore:
    """Whether a path is ignored, for a walk that does not go into ignored directories.

    pathspec translates each pattern. Its own matching takes everything below a match as matched too, which differs from git once
    a negated pattern matches a directory; here a pattern speaks of the whole path alone, and the walk does the rest.
    """

    def __init__(self, text: str) -> None:
        lines = [line for line in (_explicit(line) for line in text.split("\n")) if line]
        patterns = [pattern for line in (*LEFT_OUT, *lines, *ALWAYS) for pattern in _patterns(_bytewise(line))]
        self._patterns = [(pattern.regex, bool(pattern.include)) for pattern in reversed(patterns) if pattern.regex]

    def __call__(self, path: str, is_dir: bool) -> bool:
        """``path`` is relative with ``/``. Its parents are not ignored, or nobody would ask."""
        name = _bytewise(path + "/" if is_dir else path)
        return next((ignored for regex, ignored in self._patterns if regex.fullmatch(name)), False)


def _patterns(line: str) -> Sequence[RegexPattern]:
    try:
        return GitIgnoreSpec.from_lines([line]).patterns
    except ValueError:
        return ()  # such as "!" or "data\\": to git, too, it matches nothing


def _bytewise(text: str) -> str:
    """One character for each byte: ``?`` is a byte to git."""
    return os.fsencode(text).decode("latin-1")


def _explicit(line: str) -> str:
    """The line in words that pathspec has too, a final ``*`` or ``**`` as a pattern of the path's last name."""
    line = _TRAILING_SPACE.sub("", line.rstrip("\r"))
    for name, members in _CLASSES.items():
        line = line.replace(name, members)
    body, only_dirs = (line[:-1], "/") if line.endswith("/") else (line, "")
    negation, body = ("!", body[1:]) if body.startswith("!") else ("", body)
    *above, last = body.split("/")
    if last == "*":
        last = "?*"
    elif last == "**":
        last = "**/?*" if any(above) else "?*"
        above = above if any(above) else []
    return negation + "/".join([*above, last]) + only_dirs
