"""Ends a master that has been idle for as long as the site configuration allows; the next command starts another."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from dethpc.domain.states import State, TaskKind
from dethpc.errors import ShuttingDown
from dethpc.master.files.garbage_runs import names_of_spooled
from dethpc.master.parts import Parts
from dethpc.master.rounds import Rounds
from dethpc.state import queries

log = logging.getLogger(__name__)

_CHECKS = 20
"""In the time after which it ends."""


class Traffic(Protocol):
    """What has come over the network."""

    @property
    def requests(self) -> int:
        """So many have been answered."""

    @property
    def answering(self) -> bool:
        """One is being answered, such as a log that is followed."""


class Idle:
    """``after``: the seconds without a request and without anything to do after which ``end`` is called; None: never."""

    def __init__(self, after: float | None, traffic: Traffic, parts: Parts, end: Callable[[], None]) -> None:
        self._ledger = parts.ledger
        self._store = parts.store
        self._home = parts.home
        self._after = after
        self._traffic = traffic
        self._end = end
        self._since = time.monotonic()
        self._requests = -1
        trouble = "whether there is anything to do cannot be found out"
        self._rounds = Rounds("dethpc-idle", self.check, None if after is None else after / _CHECKS, trouble=trouble)

    def start(self) -> None:
        if self._after is not None:
            self._rounds.start()

    def stop(self) -> None:
        self._rounds.stop()

    def check(self) -> None:
        assert self._after is not None
        now, requests = time.monotonic(), self._traffic.requests
        if requests != self._requests or self._traffic.answering or self._has_work():
            self._since, self._requests = now, requests
        elif now - self._since >= self._after:
            log.info("nothing to do for %.3g hours: this master ends, as the site wants", self._after / 3600)
            self._end()
            raise ShuttingDown("the master ends")

    def _has_work(self) -> bool:
        """Whether anything goes on, or is to be done, without anybody asking. An experiment that is paused waits for its owner."""
        state = self._ledger.state
        if state.runs or any(task.kind is not TaskKind.TRIAL for task in state.tasks.values()):
            return True
        if any(experiment.row.state is not State.PAUSED for experiment in state.active()):
            return True
        if names_of_spooled(self._home) or self._home.copies.is_dir() and any(self._home.copies.iterdir()):
            return True
        with self._store.read() as connection:
            return bool(queries.removals(connection) or queries.experiments_to_collect(connection))
