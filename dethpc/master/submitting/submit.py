"""Runs that are wanted become jobs, each once.

Before a job is handed over, its run directory says so. Where the scheduler's answer is lost, the run is unclear until the claim or
the scheduler shows its job, or until the time is over in which the job may still appear and a second look finds none. The jobs of
all unclear runs are looked up together, when the scheduler is asked anyway.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable
from typing import Any

from dethpc.domain.facts import Run, Task, Trial
from dethpc.domain.states import Intent, RunState
from dethpc.engine import events
from dethpc.errors import RunDirError, SchedulerUnavailable, SubmitRejected, SubmitUncertain
from dethpc.insight.waiting import WAITS_FOR_IMAGE
from dethpc.master.parts import Parts
from dethpc.master.submitting.hand_over import SUBMITTING, Answer, Batch, HandOver
from dethpc.master.submitting.holds import Hold, job_of, taken_before
from dethpc.master.watching.live_runs import LiveRun
from dethpc.master.watching.trouble import LONGEST_REST, TRIES_OF_A_DISK, Trouble, everybodys
from dethpc.master.watching.watch import Watch
from dethpc.rundir.claim import claimed_by
from dethpc.rundir.files import read_json
from dethpc.rundir.filesystem import FULL
from dethpc.rundir.layout import RunDir

log = logging.getLogger(__name__)

SUBMIT_AT_ONCE = 100
"""Submissions in a row, before anything else is looked at."""

TRIES_TO_WRITE = 5
"""How many failures to write its run directory a trial may have before it is given up, unless the file system is to blame:
then as many as all that files are needed for."""

NEEDS = "what it needs"
LOOK_AGAIN = 1.0
"""Seconds between two looks whether what a run needs is there."""

Missing = Callable[[Run], str]
"""What a run waits for before it can be prepared, in words; "" for nothing. Raises SubmitRejected where that will never be there,
OSError."""

OnRefused = Callable[[Run, str], None]
"""Hears that the scheduler does not take the job of a run at present, and why; on the reconciler's thread."""


class Occupied(RunDirError):
    """Another run's files are in the place of a run."""


class Submitter:
    """Chooses which runs are handed over, and takes in what the scheduler said to each."""

    def __init__(
        self, parts: Parts, watch: Watch, hand_over: HandOver, trouble: Trouble, missing: Missing, on_refused: OnRefused
    ) -> None:
        self._ledger = parts.ledger
        self._store = parts.store
        self._home = parts.home
        self._cluster_id = parts.cluster_id
        self._runs = watch.runs
        self._cadence = watch.cadence
        self._holds = watch.holds
        self._hand_over = hand_over
        self._trouble = trouble
        self._missing = missing
        self._on_refused = on_refused

    def submit(self) -> None:
        """Hand the next wanted runs to the scheduler. Raises LeaseHeld."""
        batch = Batch()
        fresh = self._fresh(batch) if self._cadence.may_submit() else []
        if fresh:
            self._hand_over.submit(fresh, batch)
        given_up = [answer for live, error in batch.unwritable for answer in self._cannot_write(live, error)]
        for committed in [self._ledger.post(answer) for answer in [*batch.answers, *given_up]]:
            committed.result()
        self._runs.take_in()
        self._take_refusals(batch)
        if isinstance(batch.stopped_by, SchedulerUnavailable):
            self._cadence.unanswered(batch.stopped_by)
        elif isinstance(batch.stopped_by, SubmitUncertain):
            self._cadence.submission_unclear(batch.stopped_by)
        elif fresh and not batch.unwritable:
            self._cadence.submitted()
        if batch.answers or batch.stopped_by is not None:
            self._cadence.poll_soon()

    def _take_refusals(self, batch: Batch) -> None:
        """A refusal that meets what was taken before, and what the site has closed for a while, hold the experiment."""
        accepted = [self._runs.get(answer.run_id) for answer in batch.answers if isinstance(answer, events.Submitted)]
        for live in filter(None, accepted):
            live.refusal = ""
            self._holds.release(live.run)
        for live, error in batch.refused:
            if isinstance(error, SubmitRejected) and not taken_before(live.run, self._ledger.state, self._store):
                self._trouble.tell(live, f"the job was refused for good: {error}")
                self._runs.do(events.SubmitFailed(live.run.id, str(error), time.time()))
                continue
            live.refused_at = time.monotonic()
            self._runs.do(events.SubmitDeferred(live.run.id, str(error), time.time()))
            if live.refusal != str(error):
                live.refusal = str(error)
                log.warning("run %s is submitted again later: %s", live.run.id, error)
                self._on_refused(live.run, str(error))
        for live in {job_of(live.run): live for live, _ in batch.refused if live.refusal}.values():
            self._holds.refused(live.run, live.refusal)

    def _fresh(self, batch: Batch) -> list[LiveRun]:
        """The next runs that have no job and can have none; of what is held one, the longest not tried."""
        fresh: list[LiveRun] = []
        tries: dict[Hold, LiveRun] = {}
        now = time.monotonic()
        self._holds.keep({job_of(live.run) for live in self._runs.all() if live.run.state is RunState.SUBMITTING})
        for live in self._runs.all():
            if live.run.state is not RunState.SUBMITTING or time.monotonic() < live.rests_until.get(SUBMITTING, 0.0):
                continue
            if live.run.intent is Intent.GO and self._waits(live):
                continue
            hold = self._holds.of(live.run)
            if hold is not None and live.run.intent is Intent.GO:
                held = tries.get(hold)
                if now >= hold.next_try and (held is None or self._tried_at(live) < self._tried_at(held)):
                    tries[hold] = live
                continue
            if self._may_be_tried(live, batch):
                fresh.append(live)
            if len(fresh) == SUBMIT_AT_ONCE:
                break
        return fresh + [live for live in tries.values() if self._may_be_tried(live, batch)]

    def _waits(self, live: LiveRun) -> bool:
        """Whether what the run needs before it can be prepared, its image, is not there yet. Its row and its trial's log say so,
        and it lets others pass."""
        if time.monotonic() < live.rests_until.get(NEEDS, 0.0):
            return True
        try:
            why = self._missing(live.run)
        except SubmitRejected as error:
            self._trouble.tell(live, str(error))
            self._runs.do(events.SubmitFailed(live.run.id, str(error), time.time()))
            return True
        except OSError as error:
            why = f"{WAITS_FOR_IMAGE}that cannot be looked for: {error}"
        if not why:
            return False
        live.rests_until[NEEDS] = time.monotonic() + LOOK_AGAIN
        if live.refusal != why:
            live.refusal = why
            self._runs.do(events.SubmitDeferred(live.run.id, why, time.time()))
            with contextlib.suppress(OSError):  # its log lies there, and nothing else yet
                self._home.run(live.run.id).make()
            self._on_refused(live.run, why)
        return True

    def _tried_at(self, live: LiveRun) -> tuple[float, float]:
        """When its job was last tried, and when it was itself."""
        return self._holds.last_try(live.run), live.refused_at

    def _may_be_tried(self, live: LiveRun, batch: Batch) -> bool:
        try:
            return self._needs_a_job(live)
        except Occupied as error:
            self._runs.do(events.SubmitFailed(live.run.id, str(error), time.time()))
            return False
        except Exception as error:
            if everybodys(error):
                raise
            batch.unwritable.append((live, error))
            return False

    def _needs_a_job(self, live: LiveRun) -> bool:
        """False: it has a job, or may have one, or nobody wants it any more. Asks files alone.

        Raises OSError; RunDirError, Occupied when another run's files are in its place.
        """
        run, state = live.run, self._ledger.state
        run_dir = self._home.run(run.id)
        held_by = claimed_by(run_dir)
        if not live.earlier_submission_read:
            check_directory(run_dir, self._cluster_id, run, state.tasks.get(run.task_id), state.trial_of(run))
            earlier = read_json(run_dir.path / SUBMITTING)
            live.unclear_since = float(earlier["at"]) if earlier is not None else None
            live.handed_to = str((earlier or {}).get("scheduler") or "")
            live.earlier_submission_read = True
        if held_by is not None:
            self._runs.do(events.Submitted(live.run.id, held_by, time.time(), live.handed_to))
            return False
        if live.unclear_since is not None:
            self._cadence.poll_soon()
            return False
        if live.run.intent is not Intent.GO:
            self._runs.do(events.AttemptEnded(live.run.id, -1, None, None, time.time()))
            return False
        return True

    def _cannot_write(self, live: LiveRun, error: Exception) -> list[Answer]:
        """A failing file system may recover, but a run that waits for it for ever helps nobody. For room it waits for ever.

        What is wrong with one run's directory alone lets the others pass.
        """
        message = f"the run directory cannot be written: {error}"
        log.warning("run %s: %s", live.run.id, message, exc_info=None if isinstance(error, OSError) else error)
        unwanted, most, rest = live.run.intent is not Intent.GO, TRIES_TO_WRITE, self._cadence.pace.fastest_poll
        tries = f"{TRIES_OF_A_DISK if isinstance(error, OSError) else TRIES_TO_WRITE} times in all"
        if isinstance(error, OSError):
            self._cadence.submit_later()
            if not unwanted:
                most, rest = TRIES_OF_A_DISK, min(LONGEST_REST, rest * 2 ** min(live.write_failures, 10))
            if not unwanted and error.errno in FULL:
                most, tries = live.write_failures + 2, "until there is room"
                message = (
                    f"there is no room for the run directory: {self._home.run(live.run.id).path}: {error.strerror}"
                )
        live.rests_until[SUBMITTING] = time.monotonic() + rest
        live.write_failures += 1
        if live.write_failures < most and not (unwanted and not isinstance(error, OSError)):
            if live.in_trouble(message):
                self._trouble.tell(live, f"{message}; the master tries again, {tries}")
                # The trial's log may lie on the same disk: its row says it as well.
                return [] if unwanted else [events.SubmitDeferred(live.run.id, message, time.time())]
            return []
        if unwanted:
            return [events.AttemptEnded(live.run.id, -1, None, None, time.time())]
        return [events.SubmitFailed(live.run.id, message, time.time())]


def check_directory(run_dir: RunDir, cluster_id: str, run: Run, task: Task | None, trial: Trial | None) -> None:
    """Whether a run directory belongs to its run: files that another run left there are neither read nor overwritten.

    Raises Occupied when the directory holds anything of another run, or of one that does not say whose it is; OSError.

    Once a run is prepared, its place is its own: it was found free then, and the database, which knows of every run that there are
    files of, gives no id twice. What its spec says otherwise is damage, which is nobody's word.
    """
    if run.token_sha256:
        return
    try:
        spec = read_json(run_dir.spec)
    except RunDirError:
        spec = None
    if spec is None:
        if run_dir.claim.exists() or run_dir.attempts():
            raise _occupied(run_dir, "a run that does not say whose it was")
    elif not _of_this_run(spec, cluster_id, run, task, trial):
        raise _occupied(
            run_dir, f"another run {spec.get('run')} (experiment {spec.get('queue_id') or 'without a uuid'})"
        )


def _of_this_run(spec: dict[str, Any], cluster_id: str, run: Run, task: Task | None, trial: Trial | None) -> bool:
    if spec.get("cluster_id") != cluster_id or spec.get("run") != run.id:
        return False
    if task is not None and spec.get("queue_id") not in (None, "", task.queue_id):  # empty: of an earlier release
        return False
    return trial is None or (spec.get("trial_id"), spec.get("trial_seed"), _text(spec.get("hparams"))) == (
        trial.id,
        trial.seed,
        _text(trial.hparams),
    )


def _text(value: Any) -> str:
    """As JSON, so that what was read equals what was written."""
    return json.dumps(json.loads(json.dumps(value)), sort_keys=True)


def _occupied(run_dir: RunDir, whose: str) -> Occupied:
    return Occupied(
        f"{run_dir.path} holds files of {whose}; move that directory away, then continue the trial in a new experiment"
    )
