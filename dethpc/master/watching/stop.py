"""Stops and kills: the run directory tells the job what is wanted of it, and a kill cancels it besides."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dethpc.domain.attempts.stopping import StopRequest
from dethpc.domain.ports import JobRecord, JobState
from dethpc.domain.states import Intent
from dethpc.errors import SchedulerUnavailable
from dethpc.master.parts import Parts
from dethpc.master.watching.job_identity import JobIdentity
from dethpc.master.watching.live_runs import LiveRun
from dethpc.master.watching.watch import Watch
from dethpc.rundir.files import create_once, write_json

KILL_AGAIN = 10.0
"""Seconds after which a job that is still there is cancelled once more."""


class Stopper:
    def __init__(self, parts: Parts, watch: Watch, identity: JobIdentity) -> None:
        self._home = parts.home
        self._scheduler = parts.scheduler
        self._lease = parts.lease
        self._runs = watch.runs
        self._cadence = watch.cadence
        self._identity = identity

    def pass_on_intent(self, live: LiveRun) -> None:
        """Write into the run's directory that it shall end, once for each attempt and intent. Raises OSError."""
        run = live.run
        if run.intent is Intent.GO or live.intent_passed_on == (run.attempt, run.intent):
            return
        run_dir = self._home.run(run.id)
        word = {"intent": run.intent.value.lower(), "reason": run.intent_reason, "at": time.time()}
        # Not on disk yet: the row is, and says it again should the machine stop now. Of a thousand each would wait for the disk.
        write_json(run_dir.closed, word, durable=False)
        if run.attempt >= 0 and run.intent is Intent.STOP:
            create_once(run_dir.attempt(run.attempt).stop, StopRequest(run.intent_reason, word["at"]).to_json())
        live.intent_passed_on = run.attempt, run.intent
        self._cadence.poll_soon()

    def cancel_killed(self) -> None:
        """Cancel the jobs of killed runs, in one request. Raises LeaseHeld."""
        now = time.monotonic()
        due = [
            live
            for live in self._runs.all()
            if live.run.intent is Intent.KILL
            and live.run.scheduler_job_id is not None
            and (live.killed_at is None or now - live.killed_at >= KILL_AGAIN)
        ]
        if not due or not self._cadence.may_ask():
            return
        self._lease.check()
        try:
            records = self._records(due)
            listed = [record for live in due if (record := self._identity.record(live, records)) and record.state.live]
            if listed:
                self._scheduler.cancel([record.job_id for record in listed])
        except SchedulerUnavailable as error:
            self._cadence.unanswered(error)
            return
        for live in due:
            live.killed_at = now
        waited = sum(record.state is JobState.PENDING for record in listed)
        self._cadence.confirm_soon(waited=waited > 0, ran=waited < len(listed))

    def _records(self, due: Sequence[LiveRun]) -> dict[str, JobRecord]:
        """A job that the listing lacks is asked for a second way: its id may have been given to somebody else's job meanwhile."""
        listed = self._scheduler.jobs()
        missing = [id for live in due if (id := live.run.scheduler_job_id) is not None and id not in listed]
        return {**listed, **(self._scheduler.records(missing) if missing else {})}
