"""Regular expressions that users write, in RE2's syntax: matching takes time in proportion to the text, whatever the pattern is.

Python's own engine can take years over thirty characters, and lets no other thread run meanwhile.
"""

from __future__ import annotations

import re2

LONGEST = 1000
"""Characters of a pattern."""

LARGEST = 5000
"""Instructions of a pattern once it is compiled: what each character of the text may cost."""

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = 1 << 19

_FOREIGN = ("(?=", "(?!", "(?<", "(?>", "(?(", "invalid escape sequence: \\")


class Pattern:
    """A user's regular expression. Raises: ValueError with words that follow "is": what is wrong with it."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise ValueError(f"too long: {len(text)} characters, and {LONGEST} are allowed")
        try:
            self._compiled = re2.compile(text, _OPTIONS)
        except UnicodeEncodeError:
            raise ValueError("not a regular expression: it holds half a character") from None
        except re2.error as error:
            raise ValueError(_why(error)) from None
        if self._compiled.programsize > LARGEST:
            raise ValueError("too large once its repetitions are counted out; repeat fewer times")

    def found_in(self, text: str) -> bool:
        return self._compiled.search(text) is not None


def _why(error: re2.error) -> str:
    said = error.args[0].decode("utf-8", "replace") if error.args and isinstance(error.args[0], bytes) else str(error)
    if "pattern too large" in said or "repetition size" in said:
        return "too large once its repetitions are counted out; repeat fewer times"
    if any(mark in said for mark in _FOREIGN) or said.endswith(": (?P"):
        return (
            f"not a regular expression of RE2 ({said}): it has no look-around, back-references, possessive or "
            "conditional groups, which cannot be matched in bounded time"
        )
    return f"not a regular expression ({said})"
