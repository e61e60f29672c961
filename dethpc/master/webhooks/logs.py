"""Lines of trials' logs that webhooks report, read on a thread of its own.

A log is a file that nodes write, which no transaction covers: it is read on from where the last look ended, and by the next master
from its beginning. What a trial's log reports has an event id of its own, so that it is reported once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from dethpc.config.patterns import Pattern
from dethpc.domain.attempts.end_report import plain_text
from dethpc.domain.facts import Experiment, Row, Run
from dethpc.domain.ids import task_id
from dethpc.domain.records import TriggerType, Webhook, WebhookDelivery
from dethpc.domain.states import RunState
from dethpc.master.files.log_follower import Follower
from dethpc.master.files.logs import Filter, Line, Source, sources
from dethpc.master.parts import Parts
from dethpc.master.rounds import Rounds
from dethpc.master.webhooks.triggers import LONGEST_TEXT, Occurrence, Triggers
from dethpc.state import queries
from dethpc.state.queries.webhooks import trials_ended_since

EVERY = 10.0
"""Seconds between two looks."""

LOOK_BACK = 24 * 3600.0
"""Seconds: a master still reads logs of trials that ended no longer before its start."""


class _Watched(NamedTuple):
    """What one webhook looks for in the log of one trial."""

    experiment_id: int
    trial_id: int
    webhook_id: int
    regex: str


class LogWatch:
    """``send`` commits deliveries, and has them sent."""

    def __init__(self, parts: Parts, triggers: Triggers, send: Callable[[Sequence[WebhookDelivery]], None]) -> None:
        self._parts, self._triggers, self._send = parts, triggers, send
        self._followers: dict[_Watched, Follower] = {}
        self._reported: set[_Watched] = set()
        self._ended: deque[tuple[int, int]] = deque()  # experiment and trial of runs that have ended
        self._started = False
        self._rounds = Rounds(
            "webhook logs", self.look, EVERY, first=1.0, trouble="logs could not be read for webhooks"
        )
        self.start, self.stop = self._rounds.start, self._rounds.stop
        parts.ledger.listen(self._committed)

    def _committed(self, rows: Sequence[Row]) -> None:
        if any(self._triggers.of_type(TriggerType.TASK_LOG)):
            ended = [row for row in rows if isinstance(row, Run) and row.state is RunState.ENDED]
            self._ended.extend(_trials_of(ended))
            if ended:
                self._rounds.wake()  # nothing more is written to their logs

    def look(self) -> None:
        """Read on. Raises StoreError, OSError."""
        triggers = list(self._triggers.of_type(TriggerType.TASK_LOG))
        if not triggers:
            return
        if not self._started:
            since = max(time.time() - LOOK_BACK, min(webhook.created_at for webhook, _ in triggers))
            with self._parts.store.read() as connection:
                self._ended.extend(trials_ended_since(connection, since))
            self._started = True
        ended = {self._ended.popleft() for _ in range(len(self._ended))}
        trials = ended | set(_trials_of(self._parts.live_runs()))
        watching: dict[_Watched, Follower] = {}
        for trial in sorted(trials):
            for webhook, condition in triggers:
                watched = _Watched(*trial, webhook.id, condition["regex"])
                if watched in self._reported or self._rounds.stopping:
                    continue
                follower = self._followers.get(watched) or self._follower(watched, webhook)
                if line := self._first_line(follower):
                    self._report(watched, webhook, line)
                else:
                    watching[watched] = follower
        self._followers = watching

    def _follower(self, watched: _Watched, webhook: Webhook) -> Follower:
        line_filter = Filter(text=Pattern(watched.regex), after=webhook.created_at)
        return Follower(partial(self._sources, watched.trial_id), line_filter)

    def _sources(self, trial_id: int) -> list[list[Source]]:
        with self._parts.store.read() as connection:
            runs = [run.id for run in queries.runs_of_trial(connection, trial_id)]
        return sources(self._parts.home.find, runs)

    def _first_line(self, follower: Follower) -> Line | None:
        """The first that matches, of what was written since the last look."""
        while not self._rounds.stopping:
            if lines := follower.more():
                return lines[0]
            if not follower.behind:
                break
        return None

    def _report(self, watched: _Watched, webhook: Webhook, line: Line) -> None:
        task, condition = task_id(watched.experiment_id, watched.trial_id), {"regex": watched.regex}
        text = plain_text(line.text)[:LONGEST_TEXT]
        log = {"task_id": task, "node_name": line.node, "triggering_log": text}
        occurrence = Occurrence(
            TriggerType.TASK_LOG,
            self._experiment(watched.experiment_id),
            condition,
            {"task_log": log},
            watched.trial_id,
            f"{task} {watched.regex}",
            webhook.id,
        )
        self._send(self._triggers.deliveries([occurrence]))
        self._reported.add(watched)

    def _experiment(self, experiment_id: int) -> Experiment:
        with self._parts.store.read() as connection:
            return queries.experiment(connection, experiment_id)


def _trials_of(runs: Sequence[Run]) -> Iterator[tuple[int, int]]:
    """Experiment and trial of runs; other tasks have none."""
    for run in runs:
        parts = run.id.split(".")
        if len(parts) == 3 and parts[0].isdecimal() and parts[1].isdecimal():
            yield int(parts[0]), int(parts[1])
