"""What the master remembers of each run that has not ended, and when it may ask the scheduler again.

Everything here is lost when the master ends, and none of it is missed: the rows say what is wanted, the run directories what
happened.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dethpc.domain.facts import Attempt, Row, Run
from dethpc.domain.states import Intent, RunState
from dethpc.engine import events
from dethpc.errors import SchedulerUnavailable, SubmitUncertain
from dethpc.master.durable.ledger import Ledger
from dethpc.master.heartbeat import Heartbeat
from dethpc.rundir.journal import RemainsReader

log = logging.getLogger(__name__)

RunListener = Callable[[Run, Run | None], None]


@dataclass(slots=True, frozen=True)
class Pace:
    """How many seconds to wait before looking again."""

    files: float = 0.5  # at the directory of a live run that has just given a sign of life
    fastest_poll: float = 10.0  # between two questions to the scheduler, when much happens
    slowest_poll: float = 60.0  # when nothing does
    rest: float = 5.0  # a trial's after its first failure; after each further one twice as long
    submit_at_once: int = 1  # submissions under way at the same time
    smallest_array: int = 3  # so many submissions that are alike go as one job array; 0: never
    submit_for: float = 1.0  # before anything else is looked at: a scheduler may be slow
    confirm: float = 1.0  # before the scheduler is asked what has become of jobs that it was told to end
    quiet: float = 60.0  # at most, at the directory of a run that gives no sign of life


SHARE = 8
"""A look comes when this part of the silence so far has gone by since the one before."""

LONGEST_REST = 30.0
"""Seconds that a job which rings writes on before it rings again, at most: what a look finds meanwhile is still told of."""

LATE_FILES = 5.0
"""Seconds by which a file may arrive later than the bell that tells of it."""


@dataclass(slots=True)
class PollInterval:
    """When to poll a run's directory: at once after a notification, and with exponential back-off while none comes.
    ``heard`` is for any thread, all else for the reconciler's. Times are of ``time.monotonic``.

    A job rings when its attempt starts and ends, and whenever it reports; the scheduler tells when its state changes. A look
    between these is for what nobody told of. A job whose bell is not heard (nothing of it reaches the master by HTTP) is looked at
    as often as it writes: what it writes is seen after an eighth of the time for which it had been silent, and never later than
    ``quiet``.
    """

    due: float = 0.0  # the next one
    alive_at: float = field(default_factory=time.monotonic)  # the last sign of life
    every_attempt: bool = True  # it is for attempts that nobody told of, too: a master that starts has heard of none
    notice: bool = False  # somebody said that there is something
    rings: bool = False  # the bell is heard: nothing was found since of which it did not tell
    heard_at: float = float("-inf")
    late_until: float = 0.0  # what was told of may still arrive: files can come after the word of them
    others: bool = False  # workers beside the chief write, who do not ring

    def now(self, *, notice: bool = False, every_attempt: bool = False) -> None:
        """Something has happened: the next cycle looks, and others do so soon after it."""
        self.due, self.alive_at = 0.0, time.monotonic()
        self.notice, self.every_attempt = self.notice or notice, self.every_attempt or every_attempt

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
            self.rings, self.alive_at = self.notice or now - self.heard_at <= LONGEST_REST, now
        elif self.notice:
            self.rings, self.late_until = True, now + LATE_FILES
        self.notice = self.every_attempt = False
        rests = self.rings and not self.others and now >= self.late_until
        share = min(quiet, max(fastest, (now - self.alive_at) / SHARE))
        self.due = min(self.due, now + (quiet if rests else share))


@dataclass(slots=True)
class LiveRun:
    """A run that has not ended. ``run`` is its last committed row; what is remembered about it goes when it ends."""

    run: Run
    poll_interval: PollInterval = field(default_factory=PollInterval)  # at its directory
    unclear_since: float | None = (
        None  # epoch seconds: the scheduler was, or may have been, handed its job and gave no id
    )
    handed_to: str = (
        ""  # identity of the scheduler that was, or may have been, handed its job; its row says it once there is an id
    )
    earlier_submission_read: bool = False  # whether the run directory was asked for an earlier, unclear submission
    unconfirmed_since: float | None = None  # monotonic: its job was found ended or gone, and no end report is there
    grown: tuple[int, ...] = ()  # sizes of what its attempt writes, when its job was first missed
    known_job: tuple[str, str] = ("", "")  # id and name of a job that is known to be its own
    refusal: str = ""  # why the scheduler last took no job of it
    refused_at: float = 0.0  # monotonic: when
    killed_at: float | None = None  # monotonic: when its job was last cancelled
    write_failures: int = 0  # how many times its directory could not be written
    trouble: str = ""  # what last went wrong with it alone
    remains: RemainsReader | None = None  # of the journal of an attempt that is over, while it is read
    remains_of: int = -1  # which attempt
    missing_reports: tuple[int, int] = (-1, 0)  # an attempt, and how many of its reports are damaged or gone
    tries: dict[str, int] = field(default_factory=dict)  # what is being done about it -> how often that failed in a row
    rests_until: dict[str, float] = field(default_factory=dict)  # the same -> monotonic: when it is next tried
    intent_passed_on: tuple[int, Intent] | None = None  # attempt and intent that its directory tells
    restarts: int = 0  # how many times the scheduler has started its job again
    begin_time_cleared: int = 0  # the restart that was last allowed to start at once

    @property
    def handed_over(self) -> bool:
        """Whether a scheduler was, or may have been, handed its job."""
        return self.run.scheduler_job_id is not None or self.unclear_since is not None

    def in_trouble(self, message: str) -> bool:
        """Remember what is wrong. False: that is what was wrong before, and has been said."""
        repeated, self.trouble = self.trouble == message, message
        return not repeated


@dataclass(slots=True)
class Leftover:
    """A job whose run has ended. ``lost``: nobody had told of its end, and another may train in its place by now."""

    run_id: str
    lost: bool
    since: float = field(default_factory=time.monotonic)


class LiveRuns:
    """Every run that has a job, or is to get one, until it has ended. For the reconciler's thread alone.

    Runs of trials that are trained elsewhere have no job and are not here.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._runs = {id: LiveRun(run) for id, run in ledger.state.runs.items() if ledger.state.submits(run)}
        self._committed_runs: queue.SimpleQueue[Run] = queue.SimpleQueue()
        # Run -> every attempt; once for each, however often it rang since the last look.
        self._rung: dict[str, bool] = {}
        self._rung_lock = threading.Lock()
        self._listeners: list[RunListener] = []
        self.changed = threading.Event()  # set when a run may have changed: look now
        self.leftover_jobs: dict[str, Leftover] = {}  # jobs of runs that ended before the scheduler said so
        self.heartbeat = Heartbeat()
        self.started: Counter[str] = Counter()  # pool -> runs that started since the queue was last looked at
        ledger.listen(self._committed)

    def __len__(self) -> int:
        return len(self._runs)

    def all(self) -> list[LiveRun]:
        return list(self._runs.values())

    def get(self, run_id: str) -> LiveRun | None:
        """None: it has ended."""
        return self._runs.get(run_id)

    def last_attempt(self, run: Run) -> Attempt | None:
        """Of the run's trial, in this run or one before; None: it has had none."""
        return next(reversed(self._ledger.state.attempts.get(run.task_id, [])), None)

    def listen(self, on_run_changed: RunListener) -> None:
        """``on_run_changed`` gets each new value of a live run and the one before, on the reconciler's thread."""
        self._listeners.append(on_run_changed)

    def heard(self, run_id: str) -> None:
        """The run's bell brought what there was to tell. From any thread."""
        if (live := self._runs.get(run_id)) is not None:
            live.poll_interval.heard()

    def rung(self, run_id: str, *, every_attempt: bool = False) -> None:
        """There is something to read in the run's directory; ``every_attempt``: perhaps of one that is not known yet. From any
        thread."""
        with self._rung_lock:
            self._rung[run_id] = self._rung.get(run_id, False) or every_attempt
        self.changed.set()

    def do(self, event: events.Event) -> None:
        """Decide, commit, and remember what that made of the runs."""
        self._ledger.do(event)
        self.take_in()

    def take_in(self) -> None:
        """Remember what was committed since."""
        self.heartbeat.beat()
        with self._rung_lock:
            rung, self._rung = self._rung, {}
        for run_id, every_attempt in rung.items():
            if (live := self._runs.get(run_id)) is not None:
                live.poll_interval.now(notice=True, every_attempt=every_attempt)
        while not self._committed_runs.empty():
            run = self._committed_runs.get()
            before = self._runs.get(run.id)
            if run.state is RunState.ENDED:
                if (over := self._runs.pop(run.id, None)) is not None:
                    over.run = run
                continue
            for listener in self._listeners:
                try:
                    listener(run, before.run if before is not None else None)
                except Exception:
                    log.exception("run %s: what changed could not be told", run.id)
            if before is None:
                self._runs[run.id] = LiveRun(run)
            else:
                if (before.run.state, before.run.intent, before.run.attempt) != (run.state, run.intent, run.attempt):
                    before.poll_interval.now()
                before.run = run

    def _committed(self, rows: Sequence[Row]) -> None:
        """On the ledger's thread."""
        for row in rows:
            if isinstance(row, Run) and (row.state is RunState.ENDED or self._ledger.state.submits(row)):
                self._committed_runs.put(row)
                self.changed.set()


@dataclass(slots=True)
class Cadence:
    """When the scheduler may be asked: often while something is about to change, rarely otherwise, and not at all for a while after
    it gave no answer. For the reconciler's thread; ``unavailable_because`` may be read by any."""

    pace: Pace
    unavailable_because: str = ""  # why the scheduler gave no answer last; empty while it answers
    listed_at: float = 0.0  # when it said last what has become of our jobs (time.monotonic)
    _next_poll: float = 0.0
    _interval: float = field(init=False)
    _ask_not_before: float = 0.0
    _submit_not_before: float = 0.0
    _confirm_not_before: float = 0.0
    _confirm_again: float | None = None
    _unclear_pause: float = field(init=False)

    def __post_init__(self) -> None:
        self._interval = self._unclear_pause = self.pace.fastest_poll

    def may_ask(self) -> bool:
        return time.monotonic() >= self._ask_not_before

    def may_submit(self) -> bool:
        return time.monotonic() >= max(self._ask_not_before, self._submit_not_before)

    def poll_is_due(self) -> bool:
        return time.monotonic() >= max(self._next_poll, self._ask_not_before)

    def polled(self) -> None:
        """The scheduler was asked for all jobs: the next question may wait twice as long as this one did."""
        self._next_poll = time.monotonic() + self._interval
        self._interval = min(self.pace.slowest_poll, self._interval * 2)
        if self._confirm_again is not None:
            self._next_poll, self._confirm_again = min(self._next_poll, self._confirm_again), None

    def poll_soon(self) -> None:
        """Something is about to change: ask again as soon as the pace allows."""
        self._interval = self.pace.fastest_poll
        self._next_poll = min(self._next_poll, time.monotonic() + self._interval)

    def confirm_soon(self, *, waited: bool, ran: bool) -> None:
        """Jobs were cancelled that ``waited``, which are over, or that ``ran``, which take a moment to end; what comes after waits
        for their slots. Asked out of turn once in ``fastest_poll`` seconds at most: somebody may kill a thousand jobs one by one.
        """
        now = time.monotonic()
        self.poll_soon()
        if now >= self._confirm_not_before:
            self._confirm_not_before = now + self.pace.fastest_poll
            self._next_poll = min(self._next_poll, now if waited else now + self.pace.confirm)
            self._confirm_again = now + self.pace.confirm if waited and ran else None

    def answered(self) -> None:
        self.unavailable_because = ""
        self._ask_not_before = 0.0

    def unanswered(self, error: SchedulerUnavailable) -> None:
        self.unavailable_because = str(error)
        log.warning("the scheduler does not answer: %s", error)
        self._ask_not_before = time.monotonic() + self.pace.fastest_poll

    def submitted(self) -> None:
        self.unavailable_because = ""
        self._unclear_pause = self.pace.fastest_poll

    def submit_later(self) -> None:
        self._submit_not_before = time.monotonic() + self.pace.fastest_poll

    def submission_unclear(self, error: SubmitUncertain) -> None:
        """A scheduler that loses answers has too much to do: each time, submit nothing for twice as long as before."""
        self.unavailable_because = str(error)
        self._submit_not_before = time.monotonic() + self._unclear_pause
        self._unclear_pause = min(self.pace.slowest_poll, self._unclear_pause * 2)
