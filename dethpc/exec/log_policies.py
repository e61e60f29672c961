"""The log policies of a trial, judged while the lines of its log are written.

Users' patterns are searched by Python's ``re``, which may take years over a short line. So a policy has a budget: its share of a
second of processor time (nobody hears a signal meanwhile), and a microsecond for each character of the log. The one that is about
to use more is interrupted and watches no longer, and the log says so: judging costs time that grows with the log alone, whatever
the patterns are.
"""

from __future__ import annotations

import contextlib
import re
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Callable, Iterable, Iterator, Optional, Sequence

from dethpc.domain.attempts.log_policies import LogMatch, LogPolicy, compiled
from dethpc.domain.text.quotations import configured
from dethpc.rundir.files import sealed, write_json

JUDGED = 8192
"""Characters of a line that are looked at: ``re`` looks for signals only now and then."""

BUDGET = 1.0
PER_CHARACTER = 1e-6


class _TooSlow(Exception):
    pass


class _Watched:
    """One policy that has not matched yet, and the seconds that it may still use."""

    def __init__(self, policy: LogPolicy, pattern: re.Pattern[str], budget: float) -> None:
        self.policy, self._pattern = policy, pattern
        self._configured = configured(policy.pattern)
        self._left = self._budget = budget

    def first(self, texts: Sequence[str]) -> Optional[str]:
        """The first of ``texts`` that matches. Raises: _TooSlow when its budget is used up."""
        self._left = min(self._budget, self._left) + PER_CHARACTER * sum(map(len, texts))
        began = time.process_time()
        try:
            with _at_most(self._left):
                return next(filter(self._is_matched_by, texts), None)
        finally:
            self._left -= time.process_time() - began

    def _is_matched_by(self, text: str) -> bool:
        """Where the policy itself is printed, by what else is in the line."""
        return bool(self._pattern.search(text) and self._pattern.search(self._configured.sub("\n", text)))


class LogPolicies:
    """``file`` takes what matched on this node; ``note`` a line for the log."""

    def __init__(self, policies: Iterable[LogPolicy], node: str, file: Path, note: Callable[[str, str], None]) -> None:
        self._node, self._file, self._note = node, file, note
        self._matches: list[LogMatch] = []
        self._unwritten = False
        self._watched: list[_Watched] = []
        policies = list(policies)
        for policy in policies:
            try:
                self._watched.append(_Watched(policy, compiled(policy.pattern), BUDGET / len(policies)))
            except ValueError as error:  # a configuration of an earlier release
                note("WARNING", f"dethpc: {policy.title} has no effect: its pattern is {error}")

    def judge(self, lines: Sequence[str]) -> None:
        """Look at ``lines``, which user code has just written. Never raises."""
        texts = [line[:JUDGED] for line in lines] if self._watched else []
        for watched in list(self._watched):
            try:
                match = watched.first(texts)
            except _TooSlow:
                self._watched.remove(watched)
                message = f"its pattern takes too long to be searched for: {watched.policy.pattern}"
                self._note("WARNING", f"dethpc: {watched.policy.title} watches no longer: {message}")
                continue
            if match is not None:
                self._watched.remove(watched)
                self._matched(watched.policy, match)

    def _matched(self, policy: LogPolicy, line: str) -> None:
        match = LogMatch(policy.name, policy.pattern, policy.action, line, self._node, time.time())
        self._matches.append(match)
        self._unwritten = True
        self.write()
        self._note("ERROR" if policy.action else "INFO", f"dethpc: {match.notice}")

    def write(self) -> None:
        """Write what matched, as far as it is not written yet. A disk that is full is tried again with the next call."""
        if self._unwritten:
            with contextlib.suppress(OSError):
                write_json(self._file, sealed({"matches": [match.to_json() for match in self._matches]}))
                self._unwritten = False


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Interrupt the block when this process has computed for so long. Raises: _TooSlow. For the main thread."""
    if seconds <= 0:
        raise _TooSlow
    runs = True

    def interrupt(number: int, frame: Optional[FrameType]) -> None:
        if runs:  # else it came a moment too late
            raise _TooSlow

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        runs = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
