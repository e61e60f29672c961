"""One seed, from the first experiment to the last end: what happens, when, and to whom."""

from __future__ import annotations

import hashlib
import logging
import random
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.ids import AttemptId
from dethpc.domain.states import State
from dethpc.engine import events
from dethpc.errors import DethpcError, LeaseHeld, Refused, StoreError
from dethpc.rundir.files import write_json
from dethpc.rundir.home import Home
from tests import doorbells
from tests.simulator.world import master as masters
from tests.simulator.world.clock import Clock
from tests.simulator.world.disk import Disk, Killed, watched
from tests.simulator.world.faults import Trouble
from tests.simulator.world.judge import Judge, Violation
from tests.simulator.world.master import Database, Host, InlineWriter, Master
from tests.simulator.world.node import Process
from tests.simulator.world.slurm import POOL, Slurm
from tests.simulator.world.takeover import must_stop

__all__ = ["Faults", "Story", "Violation", "story"]

CHECK_EVERY = 20
"""How many commits between two looks at the whole of memory, rows and files."""

PATIENCE = 12 * 3600.0
"""Virtual seconds within which everything ends once nothing fails any more."""


@dataclass(frozen=True)
class Faults:
    """``every``: mean seconds between two faults; 0: never. ``kinds``: of those only; empty: all."""

    every: float = 0.0
    wishes: float = 0.0  # mean seconds between two wishes of users
    kinds: tuple[str, ...] = ()
    deaf: float = 0.0  # chance that a training does not look whether it should stop
    user_error: float = 0.0  # chance that a step fails
    doorbell: float = 0.5  # chance that a report reaches the master by HTTP as well


def faults_of(seed: int) -> Faults:
    """Other faults for each seed."""
    rng = random.Random(f"faults:{seed}")
    return Faults(
        every=rng.choice([8.0, 15.0, 30.0]),
        wishes=rng.choice([0.0, 60.0, 120.0]),
        deaf=rng.choice([0.0, 0.1]),
        user_error=rng.choice([0.0, 0.005]),
        doorbell=rng.choice([0.0, 0.5, 1.0]),
    )


def config(rng: random.Random, checkpoints: Path) -> ExperimentConfig:
    searcher: dict[str, Any] = rng.choice(
        [
            {"name": "single"},
            {"name": "random", "max_trials": rng.randint(2, 5), "max_concurrent_trials": 3 * rng.randint(1, 3) - 2},
        ]
    )
    return ExperimentConfig.from_json(
        {
            "name": "chain",
            "entrypoint": "train",
            "searcher": {"metric": "loss", "smaller_is_better": True, **searcher},
            "hyperparameters": {"lr": {"type": "log", "minval": -4, "maxval": -1, "base": 10}},
            "resources": {"slots_per_trial": rng.choice([1, 1, 2]), "resource_pool": POOL},
            "max_restarts": 30,
            "preemption_timeout": 60,
            "checkpoint_storage": {"type": "shared_fs", "host_path": str(checkpoints)},
        }
    )


class Story:
    def __init__(self, seed: int, faults: Faults | None = None, *, events: int = 500, tell: bool = False) -> None:
        self.seed, self.faults = seed, faults_of(seed) if faults is None else faults
        self.rng = random.Random(f"story:{seed}")
        self.length, self.saves_every = self.rng.randint(6, 16), self.rng.randint(2, 5)
        self.clock = Clock()
        self.folder = _new_folder()
        self.home = Home(self.folder)
        self.disk = Disk(str(self.folder), self.rng)
        self.disk.on_write = self.written
        self.disk.on_change, self.disk.on_thread = self._note, self._forbidden
        self.host = Host()
        self.slurm = Slurm(
            self.clock,
            self.rng,
            lambda job: Process(self, job),
            self.disk.point,
            self._forbidden,
            self._may_reject,
            self.acted,
        )
        self.sees: Any = self.slurm  # what the next master has for its scheduler
        self.judge = Judge(self)
        self.master: Master | None = None
        self.processes: list[Process] = []
        self.counts: Counter[str] = Counter()
        self.events, self._budget = 0, events
        self.calm = False  # nothing fails any more
        self.spoiled: set[Path] = set()  # change logs that were damaged since a master last wrote them again
        self.spoiled_checkpoints: set[str] = set()
        self.trouble = Trouble(self)
        self._traced = hashlib.sha256()
        self._tell, self._commits, self._created, self._turns = tell, 0, 0, 0
        self.database_fails = ""
        self.refusal = ""  # why no master could start
        self.started = 0  # how many masters did
        self.frozen: Master | None = None  # it is stopped while another may take over
        self.stale: Master | None = None  # another has taken over, and it does not know yet
        self.stale_effects = 0
        self.frozen_in_write = False  # it had looked at the lease, and not yet written
        self.overwritten: dict[Path, int] = {}  # change logs that a thawed master wrote to, and their size after it
        self.ringing = False  # a training waits for the master's answer
        self.synced: dict[str, int] = {}  # how much of a file would outlive its machine

    # --- telling

    def _note(self, what: str) -> None:
        self._traced.update(f"{self.clock.now} {what}\n".replace(str(self.folder), "").encode())

    @property
    def trace(self) -> str:
        """What one seed tells the same every time: a digest of all that was said, and of every change to a file in its order."""
        return self._traced.hexdigest()[:16]

    def say(self, what: str) -> None:
        self._note(what)
        if self._tell:
            with self.disk.acting(""):
                print(f"{self.clock.now - 100_000:9.1f}  {what}", flush=True)

    def count(self, what: str) -> None:
        self.counts[what] += 1
        self.events += 1
        self.say(f"* {what}")

    def happened(self) -> None:
        self.events += 1

    def where(self) -> str:
        """Which production code acts."""
        stack = [frame for frame in traceback.extract_stack() if "/dethpc/" in frame.filename]
        return " < ".join(f"{Path(frame.filename).stem}.{frame.name}:{frame.lineno}" for frame in reversed(stack[-6:]))

    # --- the whole of it

    def run(self) -> Story:
        before = logging.root.manager.disable
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            stack.callback(self.trouble.damage.forget_backups)
            if not self._tell:
                logging.disable(logging.CRITICAL)
                stack.callback(logging.disable, before)
            self.home.make()
            write_json(self.home.cluster_file, {"cluster_id": masters.CLUSTER})
            InlineWriter.disk, InlineWriter.failing = self.disk, staticmethod(lambda: self.database_fails)  # type: ignore[assignment]
            InlineWriter.committed = staticmethod(self._committed)  # type: ignore[assignment]
            stack.enter_context(masters.no_threads(lambda url: self.database, self.disk, self.synced))
            self.open_database(fresh=True)
            stack.callback(lambda: self.database.close())
            stack.enter_context(self._dice())
            stack.enter_context(self.clock.installed())
            stack.enter_context(self.host.installed())
            stack.enter_context(watched(self.disk))
            self._tell_it()
        return self

    @contextmanager
    def _dice(self) -> Iterator[None]:
        """Tokens and names of staged files are of the seed, too: whatever is damaged has the same bytes every time."""
        drawn = random.Random(f"system:{self.seed}").randbytes
        with mock.patch("os.urandom", drawn), mock.patch("random._urandom", drawn):
            yield

    def _tell_it(self) -> None:
        self.start_master()
        for _ in range(2):
            self.create()
        self.clock.after(1.0, self._cycle)
        self._activate()
        if self.faults.every:
            self._next_fault()
        if self.faults.wishes:
            self._next_wish()
        if self.faults.every:
            while self.events < self._budget:
                self._turn()
                if self.all_ended():
                    self.create()
        self._end_well()

    def _end_well(self) -> None:
        self.say("from here on nothing fails")
        self.calm = True
        self.trouble.heal()
        began = self.clock.now
        while not self.all_ended():
            if self.clock.now - began > PATIENCE:
                self.judge.fail(
                    f"{PATIENCE / 3600:.0f} hours after the last fault not everything has ended: {self._open()}"
                )
            self._turn()
        began = self.clock.now
        while self.clock.now - began < 1200.0:  # leftover jobs end
            self._turn()
        self.judge.after_step()
        self.judge.finally_()

    def _turn(self) -> None:
        self.clock.turn(self.clock.now + 3600.0)
        self._turns += 1
        if self.judge.found is not None:
            raise self.judge.found
        if self._turns > 400 * self._budget:
            self.judge.fail(f"the world goes round and round: {self._open()}")

    def _open(self) -> str:
        if self.master is None:
            return f"no master: {self.refusal}"
        state = self.master.ledger.state
        runs = [f"{run.id} {run.state.value} {run.intent.value}" for run in state.runs.values()]
        rest = {trial: round(until - self.clock.wall()) for trial, until in state.resting.items()}
        return f"{[(e.row.id, e.row.state.value) for e in state.experiments.values()]}, {runs}, resting for {rest}"

    def all_ended(self) -> bool:
        return self.master is not None and self._created > 0 and not self.master.ledger.state.experiments

    # --- the master

    def open_database(self, *, fresh: bool = False) -> None:
        if fresh:
            masters.fresh_database(self.home.database)
        self.database = Database(self.home.database_url)

    def start_master(self, name: str = "login1") -> None:
        if self.master is not None:
            return
        self.database.next_ids = 1, 1
        self.host.new_process(name)
        try:
            with self.disk.acting("master"):
                self.master = Master(self.home, self.sees, self.host)
            self.master.after_polls(self.judge.polled)
            self.refusal, self.started = "", self.started + 1
            self.say(f"master {self.host.pid} starts on {name}")
            for path in list(self.spoiled):  # it has written again what its files lacked
                self.spoiled.discard(path)
            self.judge.read_anew()
        except Killed:
            self.count("master killed while it started")
            self._master_gone()
        except (DethpcError, OSError) as error:
            self.refusal = f"{type(error).__name__}: {error}"
            self.say(f"no master starts: {self.refusal}")
            self._master_gone()
            if isinstance(error, Refused):
                self.trouble.refused(str(error))

    def pass_time(self, seconds: float) -> None:
        until = self.clock.now + seconds
        while self.clock.turn(until):
            pass

    def lose_master(self, away: float) -> None:
        """kill -9 while it does nothing."""
        self._master_gone(away)

    def _master_gone(self, away: float | None = None) -> None:
        """Its process has ended. The next ``det`` starts another."""
        if self.master is not None:
            self.host.alive.discard(self.master.pid)
        self.host.alive.discard(self.host.pid)
        self.master = None
        self.disk.spare()
        self.clock.after(self.rng.uniform(0.5, 20.0) if away is None else away, self.start_master)

    def as_master(self, do: Any) -> Any:
        """Something that the living master does; None when it does not survive it, or there is none."""
        master = self.master
        if master is None:
            return None
        self.host.pid, self.host.name = master.pid, master.host
        done = None
        try:
            with self.disk.acting("master"):
                try:
                    done = do(master)
                finally:
                    for path in [path for path, size in self.overwritten.items() if not size]:
                        self.overwritten[path] = path.stat().st_size
                if self.stale is master:
                    must_stop(self)
        except Killed:
            self.count("master killed")
            self.host.alive.discard(master.pid)
            if self.master is master:
                self._master_gone()
            self.stale = None
        except LeaseHeld as error:
            self.say(f"master {master.pid} ends: {error}")
            self.host.alive.discard(master.pid)
            self.stale = None
            if self.master is master:
                self._master_gone()
        if self.master is master and master.over:
            self.say(f"master {master.pid} ends itself: {master.daemon._broken_by}")
            self.counts["master ended itself"] += 1
            self._master_gone()
        return done

    def _cycle(self) -> None:
        pause = self.as_master(lambda master: master.cycle())
        if self.master is not None and self.master.over:
            self._master_gone()
        self.clock.after(min(30.0, pause or 1.0), self._cycle)

    def _committed(self) -> None:
        if self.stale is not None and self.host.pid == self.stale.pid:
            self.judge.fail(f"master {self.stale.pid} commits although another has taken over")
        self.happened()
        self._commits += 1
        if self._commits % CHECK_EVERY == 0:
            self.clock.after(0.0, self.judge.after_step)

    def ring(self, process: Process, lines: Sequence[str] = ()) -> None:
        """The doorbell: the same lines by HTTP, or just that there is something."""
        self.happened()
        if self.rng.random() < self.faults.doorbell and not (process.zombie and self.rng.random() < 0.5):
            id = AttemptId(process.run_id, process.k)

            def heard(master: Master) -> None:
                try:
                    doorbells.post(master.daemon.services.doorbell, id, lines)
                except (DethpcError, StoreError):
                    pass

            self.ringing = True
            self.as_master(heard)
            self.ringing = False

    # --- users

    def create(self) -> None:
        if self.master is None:
            return
        self._created += 1
        section = config(self.rng, self.home.checkpoints)
        uuid = str(UUID(int=self.seed << 32 | self._created))
        event = events.CreateExperiment("ada", section, "", "", self.rng.randrange(1000), uuid, True, self.clock.wall())
        self.say(f"an experiment with {section.searcher.name}")
        self.wish(event)

    def wish(self, event: Any) -> None:
        self._asks(lambda master: master.daemon.services.control.do(event))

    def go_on(self, experiment_id: int) -> None:
        """Somebody continues an experiment; that it has not ended, they are told."""

        def ask(master: Master) -> None:
            master.daemon.services.creator.go_on("ada", experiment_id, "")
            self.count("continued")

        self._asks(ask)

    def _asks(self, what: Callable[[Master], object]) -> None:
        def ask(master: Master) -> None:
            try:
                what(master)
            except DethpcError as error:
                if isinstance(error, LeaseHeld):
                    raise

        self.as_master(ask)

    def _next_wish(self) -> None:
        def wish() -> None:
            if not self.calm:
                self.trouble.wish()
                self._next_wish()

        self.clock.after(self.rng.expovariate(1 / self.faults.wishes), wish)

    def _next_fault(self) -> None:
        def fault() -> None:
            if not self.calm:
                self.trouble.strike()
                self._next_fault()

        self.clock.after(self.rng.expovariate(1 / self.faults.every), fault)

    def _activate(self) -> None:
        """Somebody looks after what is paused, by a user or because its job was cancelled."""
        if self.master is not None:
            for experiment in list(self.master.ledger.state.experiments.values()):
                trials = [experiment.trials[index] for index in experiment.open]
                if experiment.row.state is State.PAUSED or any(trial.state is State.PAUSED for trial in trials):
                    self.wish(events.Activate(experiment.row.id, self.clock.wall()))
        self.clock.after(60.0, self._activate)

    # --- what the judge asks

    def says_old_rows(self, path: Path) -> bool:
        """Whether nobody has written to a change log since a thawed master did."""
        return path in self.overwritten and path.stat().st_size == self.overwritten[path]

    def explained(self, reason: str) -> bool:
        """Whether a trial may have ended in ERROR with this reason, after what befell it."""
        return self.trouble.explains(reason)

    def acted(self, what: str) -> None:
        """A word that changes something in Slurm. A master may be frozen between its look at the lease and one such word."""
        if self.stale is not None and self.host.pid == self.stale.pid:
            self.stale_effects += 1
            if self.stale_effects > 1:
                self.judge.fail(f"master {self.stale.pid} does {what} although another has taken over")

    def written(self, path: str) -> None:
        """As ``acted``, of the file that is opened next, or that another takes the place of. Here, too, a master may be frozen
        after its look at the lease: the one that took over mends that when it writes there again."""
        if path.endswith("changes.jsonl") and self.stale is not None and self.host.pid == self.stale.pid:
            if self.frozen_in_write:
                self.frozen_in_write = False
                self.overwritten[Path(path)] = 0
                return
            self.judge.fail(f"master {self.stale.pid} writes {path} although another has taken over")

    def _forbidden(self, what: str) -> None:
        self.judge.fail(what)

    def _may_reject(self, name: str) -> bool:
        return self.trouble.was_taken(name)


def _new_folder() -> Path:
    """Its name is in files in which bits flip: all are as long, and of letters that no bit makes a quote or a backslash."""
    place = Path("/dev/shm" if Path("/dev/shm").is_dir() else tempfile.gettempdir())
    while True:
        folder = place / f"dethpc-world-{''.join(random.SystemRandom().choices('13456789', k=8))}"
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            return folder


def story(seed: int, faults: Faults | None = None, **options: Any) -> Story:
    """The whole story of a seed. Raises Violation."""
    return Story(seed, faults, **options).run()
