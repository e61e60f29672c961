"""When to poll a run's directory: at once after a notification, and with exponential back-off while none comes.

A job rings when its attempt starts and ends, and whenever it reports; the scheduler tells when its state changes. A look between
these is for what nobody told of. A job whose bell is not heard (nothing of it reaches the master by HTTP) is looked at as often as
it writes: what it writes is seen after an eighth of the time for which it had been silent, and never later than ``quiet``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

SHARE = 8
"""A look comes when this part of the silence so far has gone by since the one before."""

LONGEST_REST = 30.0
"""Seconds that a job which rings writes on before it rings again, at most: what a look finds meanwhile is still told of."""

LATE_FILES = 5.0
"""Seconds by which a file may arrive later than the bell that tells of it."""


@dataclass(slots=True)
class PollInterval:
    """Those at one run. ``heard`` is for any thread, all else for the reconciler's. Times are of ``time.monotonic``."""

    due: float = 0.0  # the next one
    alive_at: float = field(default_factory=time.monotonic)  # the last sign of life
    every_attempt: bool = True  # it is for attempts that nobody told of, too: a master that starts has heard of none
    told: bool = False  # somebody said that there is something
    rings: bool = False  # the bell is heard: nothing was found since of which it did not tell
    heard_at: float = float("-inf")
    late_until: float = 0.0  # what was told of may still arrive: files can come after the word of them
    others: bool = False  # workers beside the chief write, who do not ring

    def now(self, *, told: bool = False, every_attempt: bool = False) -> None:
        """Something has happened: the next cycle looks, and others do so soon after it."""
        self.due, self.alive_at = 0.0, time.monotonic()
        self.told, self.every_attempt = self.told or told, self.every_attempt or every_attempt

    def heard(self) -> None:
        """The bell rang, and brought what there was to tell."""
        self.rings, self.heard_at = True, time.monotonic()

    def go_on(self) -> None:
        """There is more to read than one look takes in."""
        self.due = 0.0

    def is_due(self) -> bool:
        return time.monotonic() >= self.due

    def begin(self) -> None:
        """Before a look."""
        self.due = float("inf")

    def done(self, news: bool, fastest: float, quiet: float) -> None:
        """After a look. ``fastest`` and ``quiet``: seconds until the next one at least and at most."""
        now = time.monotonic()
        if news:
            self.rings, self.alive_at = self.told or now - self.heard_at <= LONGEST_REST, now
        elif self.told:
            self.rings, self.late_until = True, now + LATE_FILES
        self.told = self.every_attempt = False
        rests = self.rings and not self.others and now >= self.late_until
        share = min(quiet, max(fastest, (now - self.alive_at) / SHARE))
        self.due = min(self.due, now + (quiet if rests else share))
