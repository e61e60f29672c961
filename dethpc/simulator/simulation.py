"""The simulated world: experiments on one cluster, and the master that runs them."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.sections.searcher import Custom
from dethpc.domain.facts import Run, Trial
from dethpc.domain.ports import JobState, Store
from dethpc.engine import events
from dethpc.engine.queueing.pools import Rules
from dethpc.engine.state import BuildSearcher
from dethpc.errors import NotSupportedYet, Refused
from dethpc.searcher.methods import build
from dethpc.simulator.clock import Clock
from dethpc.simulator.faults import Faults
from dethpc.simulator.figures import Figures
from dethpc.simulator.jobs import Job
from dethpc.simulator.memory import MemoryStore
from dethpc.simulator.polls import Polls
from dethpc.simulator.result import Result
from dethpc.simulator.shell import Died, Shell
from dethpc.simulator.site import Pace, Site
from dethpc.simulator.slots import Slots
from dethpc.simulator.traffic import Manners, Traffic
from dethpc.simulator.training import Chance, Listener, Training
from dethpc.simulator.trouble import Trouble
from dethpc.simulator.workloads import PowerLaw, Workload

FOR_EVER = 10 * 365 * 86400.0
"""Seconds of virtual time after which a simulation is given up."""

DEFAULT_LENGTH = 100
"""Steps of a trial whose length only its training code knows."""


@dataclass(frozen=True)
class Master:
    """How the simulated master is set up.

    ``store`` keeps the rows (needed where the master may crash, in order to come back; one in memory is made then). With
    ``manners`` the master looks at the scheduler's queue as the real one does, and submits no faster; without, at once.
    """

    store: Store | None = None
    build_searcher: BuildSearcher = build
    rules: Mapping[str, Rules] | None = None
    manners: Manners | None = None


class Simulation:
    """Experiments on one cluster. Same arguments, same wishes, same seed: the same simulation."""

    def __init__(
        self,
        site: Site,
        pace: Pace,
        workload: Workload,
        *,
        seed: int = 0,
        faults: Faults | None = None,
        master: Master | None = None,
    ) -> None:
        faults, master = faults or Faults(), master or Master()
        store = master.store
        if store is None and faults.crash:
            store = MemoryStore()
        rng = random.Random(f"faults:{seed}")
        self.traffic = Traffic()
        self._pace, self._seed, self._outage = pace, seed, faults.outage
        self._clock = clock = Clock()
        self._figures: dict[int, Figures] = {}
        self.shell = Shell(
            self, master.build_searcher, store, faults.crash, random.Random(f"crashes:{seed}"), master.rules
        )
        self._slots = Slots(site, clock, rng, self._begin, self._release)
        chance, listener = Chance(faults, seed, rng), Listener(self._over, self.shell.ring)
        self._training = Training(clock, pace, workload, self._figures, chance, listener)
        self._trouble = Trouble(faults, clock, rng, self._training, self._slots)
        self._trouble.set_off()
        self._slots.fill()
        self._polls = (
            None if master.manners is None else Polls(master.manners, self.traffic, clock, self._slots, self.shell)
        )

    @property
    def now(self) -> float:
        return self._clock.now

    @property
    def jobs(self) -> Mapping[str, Job]:
        """By run."""
        return self._training.jobs

    def create(self, config: ExperimentConfig, *, seed: int | None = None) -> int:
        """Create an experiment and return its id. Raises Refused when its trials can never start."""
        self._slots.cluster.shape(config.resources.slots_per_trial)
        wish = events.CreateExperiment(
            owner="simulation",
            config=config,
            original_config="",
            context_sha256="",
            seed=self._seed if seed is None else seed,
            queue_id=str(uuid.UUID(int=self._seed % 2**64 * 2**32 + len(self._figures))),
            activate=True,
            at=self.now,
        )
        number = self.shell.state.next_experiment_id
        length = self._pace.length or config.searcher.full_length() or DEFAULT_LENGTH
        period = self._pace.validation_period or max(1, length // 10)
        self._figures[number] = Figures(config.searcher, self.now, length, period)
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
                self._clock.turn()
            return False

    def run(self, until: float = FOR_EVER) -> None:
        """Go on until every experiment has ended, or ``until``. Raises Refused when nothing more can happen."""
        while self.shell.away or any(True for _ in self.shell.state.active()):
            if self._clock.next > FOR_EVER:
                raise Refused(f"the simulation stands still after {self.now:.0f} s: no trial can go on")
            if self._clock.next > until:
                self._clock.now = until
                return
            self._clock.turn()

    def result(self, experiment_id: int) -> Result:
        experiment, figures = self.shell.state.experiments[experiment_id], self._figures[experiment_id]
        row, start = experiment.row, figures.started_at
        return Result(
            experiment=row,
            config=experiment.config,
            trials=list(experiment.trials),
            jobs=figures.jobs,
            attempts=figures.attempts,
            makespan=(self.now if row.ended_at is None else row.ended_at) - start,
            slot_seconds=figures.slot_seconds,
            steps=figures.steps,
            best=figures.best,
            slots_over_time=[(at - start, slots) for at, slots in figures.usage],
            waited=figures.waited,
            length=figures.length,
            validation_period=figures.period,
        )

    # --- what the master does to the world

    def submit(self, run: Run, trial: Trial) -> None:
        self._training.add(run, trial)
        if self._polls is not None:
            self._polls.submit(partial(self._arrive, run))
        else:
            self.traffic.add_request(self.now)
            self._slots.queue(run.id, run.slots, run.nice)

    def _arrive(self, run: Run) -> None:
        job = self.jobs.get(run.id)
        if job is not None and job.state is JobState.PENDING:
            self._slots.queue(run.id, run.slots, run.nice)

    def stop(self, job: Job, reason: str) -> None:
        self._training.stop(job, reason)

    def cancel(self, job: Job) -> None:
        if job.state.live:
            self.traffic.add_request(self.now)
            self._training.end(job, JobState.CANCELLED, None)

    def forget(self, job: Job) -> None:
        """The run has ended for the master: nothing of it may go on."""
        self.cancel(job)
        self._training.jobs.pop(job.run.id, None)

    def tick_at(self, at: float) -> None:
        self._clock.at(at, self._tick)

    def _tick(self) -> None:
        if not self.shell.away:
            try:
                self.shell.do(events.Tick(self.now))
            except Died:
                pass  # the next master looks at its deadlines

    def master_died(self) -> None:
        self._clock.at(self.now + self._outage, self.shell.come_back)

    # --- what slots and training tell each other

    def _begin(self, job_id: str, waited: float) -> None:
        job = self.jobs[job_id]
        figures = self._training.figures(job.run)
        figures.waited += waited
        figures.hold(self.now, job.run.slots)
        if self._polls is not None:
            self._polls.started(job.run.pool)
        self._training.begin(job, [f"node{n}" for n in self._slots.cluster.held[job_id][0]])
        self._trouble.threaten(job)
        self.shell.ring(job_id)

    def _release(self, job_id: str, held: float) -> None:
        run = self.jobs[job_id].run
        figures = self._training.figures(run)
        figures.slot_seconds += run.slots * held
        figures.hold(self.now, -run.slots)

    def _over(self, job: Job, again: bool) -> None:
        self._slots.free(job.run.id)
        if again:
            self._slots.queue(job.run.id, job.run.slots)
        self.shell.ring(job.run.id)


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
