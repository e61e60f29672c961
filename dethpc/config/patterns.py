"""Regular expressions that users write, in RE2's syntax: matching takes time in proportion to the text, whatever the pattern is.

Python's own engine can take years over thirty characters, and lets no other thread run meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    import re2

LONGEST = 1000
"""Characters of a pattern."""

LARGEST = 5000
"""Instructions of a pattern once it is compiled: what each character of the text may cost."""

_ESCAPED = re.compile(r"\\.", re.DOTALL)
_ANCHORED = re.compile(r"\\[AzCQE]")
_SWITCH = re.compile(r"\(\?(?!:|P<|i\)|i:)")  # groups that change what $ means

Seeker = Callable[[bytes, int], Optional[int]]
"""Where in the bytes something is, from an offset on."""

_FOREIGN = ("(?=", "(?!", "(?<", "(?>", "(?(", "invalid escape sequence: \\")


class Pattern:
    """A user's regular expression. Raises: ValueError with words that follow "is": what is wrong with it."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise ValueError(f"too long: {len(text)} characters, and {LONGEST} are allowed")
        import re2  # with its C++, which most masters never need: only whoever writes a pattern does

        try:
            self._text = text
            self._compiled = re2.compile(text, _options())
        except UnicodeEncodeError:
            raise ValueError("not a regular expression: it holds half a character") from None
        except re2.error as error:
            raise ValueError(_why(error)) from None
        if self._compiled.programsize > LARGEST:
            raise ValueError("too large once its repetitions are counted out; repeat fewer times")

    def among_lines(self) -> Seeker | None:
        """Finds, in the bytes of lines that each hold a text behind a tab, whatever is found in one of the texts, and more: what
        it finds first begins no later. None: this expression says too much about where a text begins or ends."""
        body = self._text.removeprefix("^")
        bare = _ESCAPED.sub("", body).replace("[^", "[")
        if _ANCHORED.search(body) or "^" in bare or _SWITCH.search(bare):
            return None
        import re2

        try:
            compiled = re2.compile(f"(?m:{body})".encode(), _options(within_lines=True))
        except re2.error:
            return None
        return lambda block, begin: match.start() if (match := compiled.search(block, begin)) else None

    def found_in(self, text: str) -> bool:
        return self._compiled.search(text) is not None


@lru_cache
def _options(within_lines: bool = False) -> re2.Options:
    """``within_lines``: what is found holds no end of a line, or each search would go on to the end of a text of many lines."""
    import re2

    options = re2.Options()
    options.never_nl = within_lines
    options.log_errors = False
    options.max_mem = 1 << 19
    return options


def _why(error: re2.error) -> str:
    message = (
        error.args[0].decode("utf-8", "replace") if error.args and isinstance(error.args[0], bytes) else str(error)
    )
    if "pattern too large" in message or "repetition size" in message:
        return "too large once its repetitions are counted out; repeat fewer times"
    if any(mark in message for mark in _FOREIGN) or message.endswith(": (?P"):
        return (
            f"not a regular expression of RE2 ({message}): it has no look-around, back-references, possessive or "
            "conditional groups, which cannot be matched in bounded time"
        )
    return f"not a regular expression ({message})"
