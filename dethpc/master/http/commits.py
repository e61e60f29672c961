"""Notifies open web pages of commits, so that they reload what has changed without polling."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence

from dethpc.domain.facts import Experiment, Row
from dethpc.master.durable.ledger import Ledger

LEAST = 1.0
"""Seconds between two rounds of words to pages."""

MOST = 60.0
"""Seconds that the next round waits at most, however much it costs to make all the pages again."""

SHARE = 0.025
"""Of a processor that goes into pages made again, whatever they show and however many are open."""


class Commits:
    """Hears on the ledger's thread; all else belongs to the event loop that serves the pages.

    A page watches one experiment ("experiment-7"), or the list of all ("experiments"). What concerns it is told to all pages
    together, in rounds: what one of them is shown in a round is right for the others, too.
    """

    def __init__(self, ledger: Ledger) -> None:
        ledger.listen(self._heard)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watching: dict[str, set[_Page]] = {}
        self._over = False
        self._master, self._heard_of = secrets.token_hex(4), 0
        self._round, self._told_at, self._spent = 0, -MOST, 0.0
        self._next: asyncio.TimerHandle | None = None

    @property
    def at(self) -> str:
        """What was committed so far, as a text that is another one after each commit and each start of the master."""
        return f"{self._master}-{self._heard_of}"

    @property
    def round(self) -> int:
        """How many rounds there have been. What a page is shown that was asked for in this one is right for all in this one:
        what is committed later is told in the next."""
        return self._round

    def cost(self, seconds: float) -> None:
        """So much of a processor went into pages that were made again: the next round waits for the longer."""
        self._spent += seconds

    def _heard(self, rows: Sequence[Row]) -> None:
        loop = self._loop
        self._heard_of += 1
        if loop is None or not self._watching:
            return
        touched = {_of(row) for row in rows}
        try:
            loop.call_soon_threadsafe(self._wake, touched)
        except RuntimeError:  # the server has ended
            self._loop = None

    async def changes(self, of: str, since: str = "") -> AsyncIterator[None]:
        """Yields in the round after something concerning ``of`` was committed. ``since``: what ``at`` was when the page was made;
        what came after it counts too."""
        self._loop = asyncio.get_running_loop()
        page = _Page()
        self._watching.setdefault(of, set()).add(page)
        if since and since != self.at:
            self._owe({page})
        try:
            while not self._over:
                await page.told.wait()
                page.told.clear()
                if not self._over:
                    yield
        finally:
            watchers = self._watching.get(of, set())
            watchers.discard(page)
            if not watchers:
                self._watching.pop(of, None)

    def end(self) -> None:
        """The server ends: who waits for a change hears that there will be none, and its connection ends by itself."""
        self._over = True
        for page in self._pages():
            page.told.set()

    def _pages(self) -> list[_Page]:
        return [page for pages in self._watching.values() for page in pages]

    def _wake(self, touched: set[int | None]) -> None:
        names = {f"experiment-{number}" for number in touched if number is not None} | {"experiments"}
        if None in touched:
            names.add("tasks")
        for name in names & self._watching.keys():
            self._owe(self._watching[name])

    def _owe(self, pages: set[_Page]) -> None:
        for page in pages:
            page.owed = True
        if self._next is None:
            self._tell()

    def _tell(self) -> None:
        """A round, if it is time for one; otherwise later."""
        loop = asyncio.get_running_loop()
        due = self._told_at + min(MOST, max(LEAST, self._spent / SHARE))
        if loop.time() < due:
            self._next = loop.call_at(due, self._tell)
            return
        self._next, self._told_at, self._spent, self._round = None, loop.time(), 0.0, self._round + 1
        for page in self._pages():
            if page.owed:
                page.owed = False
                page.told.set()


class _Page:
    """``owed``: something was committed that it was not told of; ``told``: it was its turn."""

    def __init__(self) -> None:
        self.owed, self.told = False, asyncio.Event()


def _of(row: Row) -> int | None:
    """The experiment that a row concerns."""
    if isinstance(row, Experiment):
        return row.id
    experiment_id = getattr(row, "experiment_id", None)
    return experiment_id if isinstance(experiment_id, int) else None
