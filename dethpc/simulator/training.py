"""Trials that train on the simulated cluster: what they do between two validations, and how their attempts end."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.attempts.stopping import StopReason
from dethpc.domain.facts import Run, Trial
from dethpc.domain.ports import JobState
from dethpc.domain.reports import ReportKind
from dethpc.simulator.clock import Clock
from dethpc.simulator.faults import Faults
from dethpc.simulator.figures import Figures
from dethpc.simulator.jobs import FINISHED, Attempt, Job, Saved, stopped
from dethpc.simulator.site import Pace
from dethpc.simulator.workloads import Workload


class Chance(NamedTuple):
    """What may go wrong in a simulation, and where its random numbers come from: ``rng`` in the order of events, ``seed`` for what
    must not depend on that order."""

    faults: Faults
    seed: int
    rng: random.Random


class Listener(NamedTuple):
    """``over(job, again)`` is called when an attempt has ended (``again``: the scheduler keeps the job for another), ``ring``
    with a run's id when the run has news for the master."""

    over: Callable[[Job, bool], None]
    ring: Callable[[str], None]


class Training:
    """The attempts of all jobs: they train, report, save and end as ``pace`` and ``workload`` have it."""

    def __init__(
        self,
        clock: Clock,
        pace: Pace,
        workload: Workload,
        figures: Mapping[int, Figures],
        chance: Chance,
        listener: Listener,
    ) -> None:
        self.jobs: dict[str, Job] = {}  # by run
        self._clock, self._pace, self._workload, self._figures = clock, pace, workload, figures
        self._faults, self._seed, self._rng = chance
        self._over, self._ring = listener
        self._saved: dict[str, Saved] = {}

    def figures(self, run: Run) -> Figures:
        assert run.experiment_id is not None  # only searches are simulated
        return self._figures[run.experiment_id]

    def add(self, run: Run, trial: Trial) -> None:
        """The run is submitted."""
        figures = self.figures(run)
        targets = [math.ceil(length) for length in trial.search.get("lengths", ())]
        self.jobs[run.id] = Job(
            run=run,
            trial=trial,
            length=max(figures.length, *targets) if self._pace.length is None and targets else figures.length,
            targets=targets,
            checkpoint=self._saved.get(trial.latest_checkpoint or trial.source_checkpoint or ""),
            metric=figures.searcher.metric,
            unit=figures.searcher.unit_of_length(),
        )
        figures.jobs += 1

    def begin(self, job: Job, nodes: list[str]) -> None:
        """The job has its slots: an attempt starts."""
        now = self._clock.now
        saved = job.checkpoint
        own = saved is not None and saved.trial_id == job.trial.id
        steps = saved.steps if saved is not None and own else 0
        attempt = Attempt(k=len(job.attempts), started_at=now, resumed=saved, resumed_steps=steps, nodes=nodes)
        job.attempts.append(attempt)
        self.figures(job.run).attempts += 1
        job.state, job.stop, job.steps, job.at = JobState.RUNNING, "", steps, now + self._pace.startup
        hparams = job.trial.hparams
        job.weights = saved.weights if saved is not None else self._workload.begin(hparams, job.trial.seed)
        job.turn += 1
        self._go_on(job)

    def stop(self, job: Job, reason: str) -> None:
        """Ask the training to stop at its next step."""
        if job.stop or job.state is not JobState.RUNNING:
            return
        step = self._step(job)
        trained = max(0, math.ceil((self._clock.now - job.at) / step - 1e-9))
        if job.steps + trained >= job.length:
            return  # it ends by itself as soon
        job.stop = reason
        if self._faults.deaf and self._rng.random() < self._faults.deaf:
            return
        job.turn += 1
        at = max(self._clock.now, job.at + trained * step) + self._pace.stop
        self._of(job, at, lambda job: self._leave(job, trained))

    def end(
        self,
        job: Job,
        state: JobState,
        report: EndReport | None,
        *,
        requeue: bool = False,
        evidence: bool = True,
    ) -> None:
        """The attempt is over. ``requeue``: the scheduler may start the job again; without ``evidence`` it knows nothing."""
        job.turn += 1
        again = requeue and self._rng.random() < self._faults.requeue
        if job.state is JobState.RUNNING:
            attempt = job.attempts[-1]
            if report is None:  # what it trained since its last validation is lost
                since = max(0, int((self._clock.now - job.at) / self._step(job)))
                self.figures(job.run).steps += min(since, job.length - job.steps)
            attempt.over, attempt.end, attempt.requeued = True, report, again
            attempt.record = job.record(state) if evidence else None
        job.state = JobState.PENDING if again else state
        self._over(job, again)

    def duration(self, job: Job) -> float:
        """Seconds that the attempt, which has just begun, takes when nothing befalls it."""
        return self._pace.startup + (job.length - job.steps) * self._step(job)

    def _of(self, job: Job, at: float, then: Callable[[Job], None]) -> None:
        """Do something for the job's present turn, unless its turn is over by then."""
        turn = job.turn

        def maybe() -> None:
            if job.turn == turn:
                then(job)

        self._clock.at(at, maybe)

    def _go_on(self, job: Job) -> None:
        """Train until the next validation."""
        until = self._next_validation(job, job.steps)
        self._of(job, job.at + (until - job.steps) * self._step(job), lambda job: self._validate(job, until))

    def _next_validation(self, job: Job, steps: int) -> int:
        period = self.figures(job.run).period
        until = min(job.length, (steps // period + 1) * period)
        if self._pace.validation_period is None:
            until = min((target for target in job.targets if steps < target < until), default=until)
        return until

    def _step(self, job: Job) -> float:
        if not self._pace.spread:
            return self._pace.step
        speed = random.Random(f"speed:{self._seed}:{job.trial.index}").gauss(0, self._pace.spread)
        return self._pace.step * math.exp(speed)

    def _train(self, job: Job, until: int) -> None:
        job.weights = self._workload.train(job.weights, job.trial.hparams, job.steps, until)
        self.figures(job.run).steps += until - job.steps
        job.steps, job.at = until, self._clock.now

    def _validate(self, job: Job, until: int) -> None:
        self._train(job, until)
        self._report(job)
        if until >= job.length:
            self._save(job)
            self.end(job, JobState.COMPLETED, FINISHED)
            return
        job.validations += 1
        if self._pace.checkpoint_each and job.validations % self._pace.checkpoint_each == 0:
            self._save(job)
        turn = job.turn
        self._ring(job.run.id)
        if job.turn == turn:
            self._go_on(job)

    def _report(self, job: Job) -> None:
        now, index, steps = self._clock.now, job.trial.index, job.steps
        value = self._workload.validate(job.weights, job.trial.hparams, index, steps)
        if self._faults.nan and random.Random(f"nan:{self._seed}:{index}:{steps}").random() < self._faults.nan:
            value = math.nan
        data = {"group": "validation", "steps_completed": steps, "metrics": {job.metric: value, job.unit: steps}}
        job.attempts[-1].write(now, ReportKind.METRICS, data)
        self.figures(job.run).validated(now, value, index, steps)

    def _save(self, job: Job) -> None:
        attempt = job.attempts[-1]
        name = f"{job.run.id}.{attempt.k}.{len(attempt.journal) + 1}"
        job.checkpoint = self._saved[name] = Saved(name, job.trial.id, job.steps, job.weights)
        attempt.write(self._clock.now, ReportKind.CHECKPOINT, {"uuid": name, "steps_completed": job.steps})

    def _leave(self, job: Job, trained: int) -> None:
        """The training was asked to stop and does."""
        self._train(job, job.steps + trained)
        if trained and job.steps == self._next_validation(job, job.steps - 1):
            self._report(job)
        self._save(job)
        preempted = job.stop == StopReason.PREEMPTED
        self.end(job, JobState.PREEMPTED if preempted else JobState.COMPLETED, stopped(job.stop), requeue=preempted)
