"""The simulated world: a clock, an event heap, a cluster, and trials that train on it."""

from __future__ import annotations

import heapq
import math
import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.searcher import Custom
from dethpc.domain.end_report import EndReport
from dethpc.domain.facts import Run, Trial
from dethpc.domain.ports import JobState, Store
from dethpc.domain.reports import ReportKind
from dethpc.domain.stopping import StopReason
from dethpc.engine import events
from dethpc.engine.nice import PendingJob
from dethpc.engine.pools import Free, Rules
from dethpc.engine.state import BuildSearcher
from dethpc.errors import NotSupportedYet, Refused
from dethpc.searcher.methods import build
from dethpc.simulator.cluster import PATIENCE, Cluster
from dethpc.simulator.faults import Faults
from dethpc.simulator.jobs import FAILED, FINISHED, Attempt, Job, Saved, stopped
from dethpc.simulator.memory import MemoryStore
from dethpc.simulator.result import Best, Result
from dethpc.simulator.shell import Died, Shell
from dethpc.simulator.traffic import Manners, Traffic
from dethpc.simulator.workloads import PowerLaw, Workload

FOR_EVER = 10 * 365 * 86400.0
"""Seconds of virtual time after which a simulation is given up."""

DEFAULT_LENGTH = 100
"""Steps of a trial whose length only its training code knows."""

GRACE = 300.0
"""Seconds between the scheduler's word that it takes the slots and its taking them."""

OTHERS = "other-"
"""What ids of other users' jobs begin with."""


@dataclass(frozen=True)
class Site:
    """The cluster. ``load`` is the share of its slots, 0 to below 1, that jobs of other users hold on average."""

    nodes: int = 4
    slots_per_node: int = 8
    load: float = 0.0
    load_duration: float = 3600.0  # mean seconds of such a job


@dataclass(frozen=True)
class Pace:
    """How fast a trial trains. A step is one unit of the searcher's length (batch, epoch, ...)."""

    startup: float = 30.0  # seconds from getting slots to the first step
    step: float = 1.0  # seconds
    stop: float = 0.0  # seconds to write a checkpoint and leave when asked to
    spread: float = 0.0  # standard deviation of the logarithm of a trial's speed: some are slower than others
    length: int | None = None  # steps of a whole trial; None: what the searcher says, else 100
    validation_period: int | None = (
        None  # steps; None: a tenth of the length, and where the searcher wants to compare trials
    )
    checkpoint_each: int = 0  # validations between two checkpoints; 0: only at the end


@dataclass(slots=True)
class _Search:
    """One experiment's figures."""

    experiment_id: int
    started_at: float
    length: int
    period: int
    jobs: int = 0
    attempts: int = 0
    steps: int = 0
    waited: float = 0.0
    used: int = 0
    slot_seconds: float = 0.0
    usage: list[tuple[float, int]] = field(default_factory=list)
    best: list[Best] = field(default_factory=list)

    def hold(self, at: float, slots: int) -> None:
        self.used += slots
        if self.usage and self.usage[-1][0] == at:
            self.usage.pop()
        self.usage.append((at, self.used))


class Simulation:
    """Experiments on one cluster. Same arguments, same wishes, same seed: the same simulation.

    ``store`` keeps the rows (needed where the master may crash, in order to come back; one in memory is made then). With
    ``manners`` the master looks at the scheduler's queue as the real one does, and submits no faster; without, at once.
    """

    def __init__(
        self,
        site: Site,
        pace: Pace,
        workload: Workload,
        *,
        seed: int = 0,
        faults: Faults | None = None,
        store: Store | None = None,
        build_searcher: BuildSearcher = build,
        rules: Mapping[str, Rules] | None = None,
        manners: Manners | None = None,
    ) -> None:
        self.now = 0.0
        self.traffic = Traffic()
        self._manners, self._next_submission = manners, 0.0
        self._started: dict[str, int] = {}
        self.jobs: dict[str, Job] = {}
        self.cluster = Cluster(site.nodes, site.slots_per_node)
        self._site, self._pace, self._workload, self._seed = site, pace, workload, seed
        self._faults = faults or Faults()
        self._rng = random.Random(f"faults:{seed}")
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._pushed = 0
        self._searches: dict[int, _Search] = {}
        self._saved: dict[str, Saved] = {}
        self._held_since: dict[str, float] = {}
        self._queued_since: dict[str, float] = {}
        if store is None and self._faults.crash:
            store = MemoryStore()
        self.shell = Shell(self, build_searcher, store, self._faults.crash, random.Random(f"crashes:{seed}"), rules)
        self._set_off()
        if manners is not None:
            self._at(manners.look_every, self._look)

    # --- for those who watch

    def create(self, config: ExperimentConfig, *, seed: int | None = None) -> int:
        """Create an experiment and return its id. Raises Refused when its trials can never start."""
        self.cluster.shape(config.resources.slots_per_trial)
        wish = events.CreateExperiment(
            owner="simulation",
            config=config,
            original_config="",
            context_sha256="",
            seed=self._seed if seed is None else seed,
            queue_id=str(uuid.UUID(int=self._seed % 2**64 * 2**32 + len(self._searches))),
            activate=True,
            at=self.now,
        )
        number = self.shell.state.next_experiment_id
        length = self._pace.length or config.searcher.full_length() or DEFAULT_LENGTH
        period = self._pace.validation_period or max(1, length // 10)
        self._searches[number] = _Search(number, self.now, length, period)
        while number not in self.shell.state.experiments:  # a master that died over it may have committed it
            self._ask(wish)
        return number

    def wish(self, event: events.Event) -> None:
        """Ask the master until it lives to answer. Raises Refused, NotFound."""
        while not self._ask(event):
            pass

    def _ask(self, event: events.Event) -> bool:
        """False: the master died over it, and another one is there."""
        try:
            self.shell.do(event)
            return True
        except Died:
            while self.shell.away:
                self._turn()
            return False

    def run(self, until: float = FOR_EVER) -> None:
        """Go on until every experiment has ended, or ``until``. Raises Refused when nothing more can happen."""
        while self.shell.away or any(True for _ in self.shell.state.active()):
            if not self._heap or self._heap[0][0] > FOR_EVER:
                raise Refused(f"the simulation stands still after {self.now:.0f} s: no trial can go on")
            if self._heap[0][0] > until:
                self.now = until
                return
            self._turn()

    def result(self, experiment_id: int) -> Result:
        found, search = self.shell.state.experiments[experiment_id], self._searches[experiment_id]
        row, start = found.row, search.started_at
        return Result(
            experiment=row,
            config=found.config,
            trials=list(found.trials),
            jobs=search.jobs,
            attempts=search.attempts,
            makespan=(self.now if row.ended_at is None else row.ended_at) - start,
            slot_seconds=search.slot_seconds,
            steps=search.steps,
            best=search.best,
            slots_over_time=[(at - start, slots) for at, slots in search.usage],
            waited=search.waited,
            length=search.length,
            validation_period=search.period,
        )

    # --- the clock

    def _at(self, at: float, then: Callable[[], None]) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (at, self._pushed, then))

    def _turn(self) -> None:
        self.now, _, then = heapq.heappop(self._heap)
        then()

    def _of(self, job: Job, at: float, then: Callable[[Job], None]) -> None:
        """Do something for the job's present turn, unless its turn is over by then."""
        turn = job.turn

        def maybe() -> None:
            if job.turn == turn:
                then(job)

        self._at(at, maybe)

    # --- what the master does to the world

    def submit(self, run: Run, trial: Trial) -> None:
        search = self._search_of(run)
        searcher = self.shell.state.experiments[search.experiment_id].config.searcher
        targets = [math.ceil(length) for length in trial.search.get("lengths", ())]
        self.jobs[run.id] = Job(
            run=run,
            trial=trial,
            length=max(search.length, *targets) if self._pace.length is None and targets else search.length,
            targets=targets,
            checkpoint=self._saved.get(trial.latest_checkpoint or trial.source_checkpoint or ""),
            metric=searcher.metric,
            unit=searcher.unit_of_length(),
        )
        search.jobs += 1
        self.traffic.asked(self.now)
        if self._manners is None:
            self._queue(run.id, run.slots, run.nice)
            return
        # A token bucket, as the throttle of the real one: this is when its next token is there.
        rate, burst = self._manners.submit_per_second, self._manners.submit_burst
        self._next_submission = max(self._next_submission + 1 / rate, self.now - burst / rate)
        when = max(self.now, self._next_submission)
        self.traffic.requests[-1] = (when, 1)
        self._at(when, partial(self._arrive, run))

    def _arrive(self, run: Run) -> None:
        job = self.jobs.get(run.id)
        if job is not None and job.state is JobState.PENDING:
            self._queue(run.id, run.slots, run.nice)

    def stop(self, job: Job, reason: str) -> None:
        """Ask the training to stop at its next step."""
        if job.stop or job.state is not JobState.RUNNING:
            return
        step = self._step(job)
        trained = max(0, math.ceil((self.now - job.at) / step - 1e-9))
        if job.steps + trained >= job.length:
            return  # it ends by itself as soon
        job.stop = reason
        if self._faults.deaf and self._rng.random() < self._faults.deaf:
            return
        job.turn += 1
        self._of(job, max(self.now, job.at + trained * step) + self._pace.stop, lambda job: self._leave(job, trained))

    def cancel(self, job: Job) -> None:
        if job.state.live:
            self.traffic.asked(self.now)
            self._end(job, JobState.CANCELLED, None, requeue=False)

    def forget(self, job: Job) -> None:
        """The run has ended for the master: nothing of it may go on."""
        self.cancel(job)
        self.jobs.pop(job.run.id, None)

    def tick_at(self, at: float) -> None:
        self._at(at, self._tick)

    def _tick(self) -> None:
        if not self.shell.away:
            try:
                self.shell.do(events.Tick(self.now))
            except Died:
                pass  # the next master looks at its deadlines

    def master_died(self) -> None:
        self._at(self.now + self._faults.outage, self.shell.come_back)

    # --- the queue

    def _search_of(self, run: Run) -> _Search:
        assert run.experiment_id is not None  # only searches are simulated
        return self._searches[run.experiment_id]

    def _queue(self, job_id: str, slots: int, nice: int = 0) -> None:
        self.cluster.submit(job_id, slots, self.now, nice)
        self._queued_since[job_id] = self.now
        self._start_jobs()

    def _start_jobs(self) -> None:
        for job_id in self.cluster.start(self.now):
            queued = self._queued_since.pop(job_id)
            if job_id.startswith(OTHERS):
                self._at(self.now + self._rng.expovariate(1 / self._site.load_duration), partial(self._free, job_id))
                continue
            job = self.jobs[job_id]
            search = self._search_of(job.run)
            search.waited += self.now - queued
            search.hold(self.now, job.run.slots)
            self._held_since[job_id] = self.now
            self._started[job.run.pool] = self._started.get(job.run.pool, 0) + 1
            self._begin(job, search)

    def _look(self) -> None:
        """The master looks at the scheduler's queue, and brings its own jobs there into its order."""
        assert self._manners is not None
        self._at(self.now + self._manners.look_every, self._look)
        if self.shell.away or not any(True for _ in self.shell.state.active()):
            return
        state, cluster = self.shell.state, self.cluster
        free = [0 if n in cluster.down else slots for n, slots in enumerate(cluster.free)]
        idle = self._idle(Free.of(cluster.slots_per_node, [(slots, 1) for slots in free if slots]))
        pools = {*state.places.lists, *state.pending}
        shown = {id: cluster.queue[id] for id in state.runs if id in cluster.queue}
        waiting = {id: PendingJob(job.priority, job.nice) for id, job in shown.items()}
        nodes = {pool: [(slots, cluster.slots_per_node) for slots in free] for pool in pools}
        started, self._started = self._started, {}
        try:
            self.shell.do(events.QueueSeen(nodes, started, waiting, self.now))
        except Died:
            return
        wanted = {id: self.shell.state.runs[id].nice for id in waiting if id in self.shell.state.runs}
        changed = {id: nice for id, nice in wanted.items() if nice != waiting[id].nice}
        for id, nice in changed.items():
            cluster.nice(id, nice)
        self.traffic.looked(self.now, len(changed), idle and not started)
        self._start_jobs()

    def _idle(self, free: Free) -> bool:
        """Whether a trial that was not submitted would find slots that are free and that no submitted one will take."""
        if any(self.now - job.since > PATIENCE for job in self.cluster.queue.values()):
            return False  # the scheduler keeps slots for somebody
        state = self.shell.state
        for run in (run for runs in state.pending.values() for run in runs.values()):
            if not free.place(run.slots) and self.now - run.created_at > PATIENCE:
                return False
        return any(free.place(slots) for sizes in state.places.lists.values() for slots in sizes)

    def _free(self, job_id: str) -> None:
        self.cluster.release(job_id)
        self._queued_since.pop(job_id, None)
        since = self._held_since.pop(job_id, None)
        if since is not None:
            run = self.jobs[job_id].run
            search = self._search_of(run)
            search.slot_seconds += run.slots * (self.now - since)
            search.hold(self.now, -run.slots)
        self._start_jobs()

    # --- training

    def _begin(self, job: Job, search: _Search) -> None:
        saved = job.checkpoint
        own = saved is not None and saved.trial_id == job.trial.id
        steps = saved.steps if saved is not None and own else 0
        attempt = Attempt(
            k=len(job.attempts),
            started_at=self.now,
            resumed=saved,
            resumed_steps=steps,
            nodes=[f"node{n}" for n in self.cluster.held[job.run.id][0]],
        )
        job.attempts.append(attempt)
        search.attempts += 1
        job.state, job.stop, job.steps, job.at = JobState.RUNNING, "", steps, self.now + self._pace.startup
        hparams = job.trial.hparams
        job.weights = saved.weights if saved is not None else self._workload.begin(hparams, job.trial.seed)
        job.turn += 1
        self._go_on(job)
        self._threaten(job)
        self.shell.ring(job.run.id)

    def _go_on(self, job: Job) -> None:
        """Train until the next validation."""
        until = self._next_validation(job, job.steps)
        self._of(job, job.at + (until - job.steps) * self._step(job), lambda job: self._validate(job, until))

    def _next_validation(self, job: Job, steps: int) -> int:
        period = self._search_of(job.run).period
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
        self._search_of(job.run).steps += until - job.steps
        job.steps, job.at = until, self.now

    def _validate(self, job: Job, until: int) -> None:
        self._train(job, until)
        self._report(job)
        if until >= job.length:
            self._save(job)
            self._end(job, JobState.COMPLETED, FINISHED)
            return
        job.validations += 1
        if self._pace.checkpoint_each and job.validations % self._pace.checkpoint_each == 0:
            self._save(job)
        turn = job.turn
        self.shell.ring(job.run.id)
        if job.turn == turn:
            self._go_on(job)

    def _report(self, job: Job) -> None:
        index, steps = job.trial.index, job.steps
        value = self._workload.validate(job.weights, job.trial.hparams, index, steps)
        if self._faults.nan and random.Random(f"nan:{self._seed}:{index}:{steps}").random() < self._faults.nan:
            value = math.nan
        data = {"group": "validation", "steps_completed": steps, "metrics": {job.metric: value, job.unit: steps}}
        job.attempts[-1].write(self.now, ReportKind.METRICS, data)
        self._note_best(self._search_of(job.run), job, value)

    def _note_best(self, search: _Search, job: Job, value: float) -> None:
        searcher = self.shell.state.experiments[search.experiment_id].config.searcher
        smaller, best = searcher.smaller_is_better, search.best
        if not best or (value < best[-1].value if smaller else value > best[-1].value):
            if not math.isnan(value):
                best.append(Best(self.now - search.started_at, value, job.trial.index, job.steps))

    def _save(self, job: Job) -> None:
        attempt = job.attempts[-1]
        name = f"{job.run.id}.{attempt.k}.{len(attempt.journal) + 1}"
        job.checkpoint = self._saved[name] = Saved(name, job.trial.id, job.steps, job.weights)
        attempt.write(self.now, ReportKind.CHECKPOINT, {"uuid": name, "steps_completed": job.steps})

    def _leave(self, job: Job, trained: int) -> None:
        """The training was asked to stop and does."""
        self._train(job, job.steps + trained)
        if trained and job.steps == self._next_validation(job, job.steps - 1):
            self._report(job)
        self._save(job)
        preempted = job.stop == StopReason.PREEMPTED
        self._end(job, JobState.PREEMPTED if preempted else JobState.COMPLETED, stopped(job.stop), requeue=preempted)

    def _end(
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
                since = max(0, int((self.now - job.at) / self._step(job)))
                self._search_of(job.run).steps += min(since, job.length - job.steps)
            attempt.over, attempt.end, attempt.requeued = True, report, again
            attempt.record = job.record(state) if evidence else None
        job.state = JobState.PENDING if again else state
        self._free(job.run.id)
        if again:
            self._queue(job.run.id, job.run.slots)
        self.shell.ring(job.run.id)

    # --- what goes wrong, and other users

    def _set_off(self) -> None:
        if self._faults.node_failure is not None:
            for node in range(self._site.nodes):
                self._at(self._rng.expovariate(1 / self._faults.node_failure), partial(self._fail, node))
        if self._site.load > 0:
            slots = 0.0
            while slots < self._site.load * self._site.nodes * self._site.slots_per_node:
                slots += self._other_job()
            self._next_other_job()

    def _threaten(self, job: Job) -> None:
        """What will befall this attempt, if it lives that long."""
        faults = self._faults
        if faults.preemption is not None:
            self._befall(job, self._rng.expovariate(1 / faults.preemption), self._preempt)
        if faults.loss is not None:
            self._befall(job, self._rng.expovariate(1 / faults.loss), self._lose)
        if faults.user_error and self._rng.random() < faults.user_error:
            left = self._pace.startup + (job.length - job.steps) * self._step(job)
            self._befall(job, self._rng.uniform(0, left), lambda job: self._end(job, JobState.FAILED, FAILED))

    def _befall(self, job: Job, after: float, then: Callable[[Job], None]) -> None:
        attempt = job.attempts[-1]

        def maybe() -> None:
            if not attempt.over and job.state is JobState.RUNNING:
                then(job)

        self._at(self.now + after, maybe)

    def _preempt(self, job: Job) -> None:
        if not job.stop:
            self.stop(job, StopReason.PREEMPTED)
            self._befall(job, GRACE, lambda job: self._end(job, JobState.PREEMPTED, None, requeue=True))

    def _lose(self, job: Job) -> None:
        self._end(job, JobState.FAILED, None, evidence=False)

    def _fail(self, node: int) -> None:
        for job_id in self.cluster.fail(node):
            if job_id in self.jobs:
                self._end(self.jobs[job_id], JobState.NODE_FAIL, None, requeue=True)
            else:
                self._free(job_id)
        self._at(self.now + self._faults.repair, lambda: self._repair(node))

    def _repair(self, node: int) -> None:
        assert self._faults.node_failure is not None
        self.cluster.repair(node)
        self._start_jobs()
        self._at(self.now + self._rng.expovariate(1 / self._faults.node_failure), lambda: self._fail(node))

    def _other_job(self) -> int:
        """Another user submits a job; returns its slots."""
        slots: int = 2 ** self._rng.randint(0, int(math.log2(self._site.slots_per_node)))
        self._pushed += 1
        self._queue(f"{OTHERS}{self._pushed}", slots)
        return slots

    def _next_other_job(self) -> None:
        powers = int(math.log2(self._site.slots_per_node)) + 1
        mean_slots = (2**powers - 1) / powers
        rate = self._site.load * self._site.nodes * self._site.slots_per_node / (mean_slots * self._site.load_duration)

        def arrive() -> None:
            self._other_job()
            self._next_other_job()

        self._at(self.now + self._rng.expovariate(rate), arrive)


def simulate(
    config: ExperimentConfig,
    site: Site | None = None,
    pace: Pace | None = None,
    *,
    workload: Workload | None = None,
    seed: int = 0,
    faults: Faults | None = None,
) -> Result:
    """Run one experiment to its end. Without a ``workload`` trials learn as ``PowerLaw``.

    Raises Refused when the cluster is too small for a trial, NotSupportedYet for a search method that is not here.
    """
    searcher = config.searcher
    if isinstance(searcher, Custom):
        raise NotSupportedYet(f"a search by {searcher.name} cannot be simulated: its decisions are taken elsewhere")
    if workload is None:
        workload = PowerLaw(config.hyperparameters, seed, smaller_is_better=searcher.smaller_is_better)
    simulation = Simulation(site or Site(), pace or Pace(), workload, seed=seed, faults=faults)
    number = simulation.create(config)
    simulation.run()
    return simulation.result(number)
