"""What runs on a compute node: the part of the batch script and of ``dethpc.exec``, with the production claim, start, journal,
checkpoints and end report, and training that is a chain of hashes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from dethpc import storage
from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.attempts.stopping import StopRequest
from dethpc.domain.reports import ReportKind
from dethpc.errors import CheckpointDamaged, DethpcError
from dethpc.exec import garbage
from dethpc.exec import node as production
from dethpc.exec import resume as resuming
from dethpc.exec.place import Place
from dethpc.rundir.claim import claim
from dethpc.rundir.files import create_once, read_json, write_json
from dethpc.rundir.journal import JournalWriter, NotWritten
from dethpc.rundir.layout import RunDir
from dethpc.rundir.spec import Spec
from dethpc.storage import Owner
from tests.simulator.world import training
from tests.simulator.world.disk import Killed
from tests.simulator.world.slurm import Job

if TYPE_CHECKING:
    from tests.simulator.world.story import Story

VALIDATES_EVERY = 3


class Said(NamedTuple):
    """A report that an attempt wrote to its journal."""

    seq: int
    kind: str
    steps: int
    chain: str


class Process:
    """One start of a job: ``_live`` yields the seconds until it does something again."""

    def __init__(self, story: Story, job: Job) -> None:
        self._story, self._job = story, job
        self.run_dir = RunDir(job.run_dir)
        self.run_id = job.run_dir.name
        self.k = job.record.restarts
        self.alive, self.trains = True, False
        self.zombie = False  # the scheduler does not know of it any more
        self.deaf = story.rng.random() < story.faults.deaf
        self.steps = 0
        self._told: StopRequest | None = None
        self._life = self._live()
        story.processes.append(self)
        story.clock.after(story.rng.uniform(0.5, 6.0), self._go_on)

    def _go_on(self) -> None:
        if not self.alive:
            return
        try:
            with self._story.disk.acting("node"):
                delay = next(self._life)
        except StopIteration as done:
            self.end(done.value)
        except Killed:
            self.end(137)
        except (DethpcError, OSError, ValueError):
            self.end(1)
        else:
            self._story.clock.after(delay, self._go_on)

    # --- what befalls it

    def told(self, word: str, deadline: float) -> None:
        """The batch script's trap: a file tells the attempt to stop, unless the master has said what it wants."""
        try:
            if not self.run_dir.closed.exists():
                create_once(
                    self.run_dir.attempt(self.k).stop,
                    StopRequest(word, self._story.clock.wall(), deadline).to_json(),
                )
        except OSError:
            pass

    def end(self, exit_code: int | None) -> None:
        """Its processes are gone. None: they were killed with KILL."""
        if not self.alive:
            return
        self.alive = self.trains = False
        self._life.close()
        if not self.zombie:
            self._story.slurm.processes_ended(self._job, exit_code)

    def lose(self, *, zombie: bool) -> None:
        """The scheduler gave its node up. As a zombie it goes on for a while."""
        self.disown()
        if zombie:
            self._story.count("zombie")
            self._story.clock.after(self._story.rng.uniform(5.0, 120.0), self.vanish)
        else:
            self.vanish()

    def disown(self) -> None:
        self.zombie = True

    def vanish(self) -> None:
        self.alive = self.trains = False
        self._life.close()

    # --- its life

    def _live(self) -> Iterator[float]:
        """Returns the exit code."""
        run_dir, job_id = self.run_dir, self._job.id
        if self._job.link is not None and not self._job.link.samefile(run_dir.path):
            return 1
        if run_dir.closed.exists() or not claim(run_dir, job_id):
            return 0
        yield 0.2
        attempt = run_dir.attempt(self.k)
        attempt.make()
        spec = production.read_spec(run_dir)
        resume = resuming.find(run_dir, self.k, spec)
        nodes = list(self._job.record.nodes)
        if not production._begin(run_dir, Place(self.k, 0, job_id, nodes, nodes), resume):
            return 0
        self._story.ring(self)
        yield self._story.rng.uniform(0.5, 5.0)
        if attempt.stop.exists():
            yield from self._report_end(0, early=True)
            return 0
        if "dethpc.exec.garbage" in spec.entrypoint:
            code = garbage.main(spec.entrypoint[-1])
            self._story.count("files deleted")
            yield from self._report_end(code, message="garbage" if code else "")
        else:
            code = yield from self._train(spec, resume)
        return code

    def _train(self, spec: Spec, resume: resuming.Resume) -> Iterator[float]:
        store = storage.build(spec.checkpoint_storage)
        owner = Owner(spec.cluster_id, spec.queue_id, spec.experiment_id, spec.trial_id)
        chain = training.begin(spec.hparams)
        journal = JournalWriter(self.run_dir.attempt(self.k).journal)
        for uuid in resume.missing:
            self._damaged(journal, uuid, "it is missing")
        try:
            if resume.checkpoint is not None:
                with store.restore(resume.checkpoint) as folder:
                    held = json.loads((folder / "chain.json").read_text())
                self.steps, chain = held["steps"], held["chain"]
        except (DethpcError, OSError, ValueError) as error:
            if isinstance(error, CheckpointDamaged):
                self._damaged(journal, str(resume.checkpoint), str(error))
            yield from self._report_end(1, message=f"the checkpoint cannot be restored: {error}")
            return 1
        self.trains = True
        pace, length, every = self._story.rng.uniform(1.0, 6.0), self._story.length, self._story.saves_every
        stopped = False
        while self.steps < length and not stopped:
            yield pace
            if self._story.rng.random() < self._story.faults.user_error:
                self._story.count("user error")
                yield from self._report_end(1, message="simulated error")
                return 1
            self.steps += 1
            self._story.judge.trains(self)
            chain = training.step(chain, self.steps)
            self._say(journal, ReportKind.METRICS, self._metrics("training", chain))
            stopped = not self.deaf and self.run_dir.attempt(self.k).stop.exists()
            if (closed := self._closed()) is not None and closed.get("intent") == "kill":
                yield from self._report_end(137, message="killed")
                return 137
            if self.steps % VALIDATES_EVERY == 0 or self.steps == length:
                self._say(journal, ReportKind.METRICS, self._metrics("validation", chain))
            if stopped:
                write_json(self.run_dir.attempt(self.k).ack, {"at": self._story.clock.wall()})
                self._say(journal, ReportKind.ACK, {})
            if stopped or self.steps % every == 0 or self.steps == length:
                yield self._story.rng.uniform(0.1, 2.0)
                if (saved := self._save(store, chain, owner)) is not None:
                    self._say(journal, ReportKind.CHECKPOINT, {"uuid": saved, "steps_completed": self.steps})
        while True:  # what a full disk refused is written before the attempt says that it has ended
            try:
                journal.sync()
                break
            except OSError:
                yield 10.0
        journal.close()
        self.trains = False
        yield self._story.rng.uniform(0.0, 1.0)
        yield from self._report_end(0)
        return 0

    def _damaged(self, journal: JournalWriter, uuid: str, why: str) -> None:
        self._say(journal, ReportKind.CHECKPOINT_DAMAGED, {"uuid": uuid, "why": why})
        self._story.judge.found_damaged(self, uuid)

    def _closed(self) -> dict[str, Any] | None:
        try:
            return read_json(self.run_dir.closed)
        except (OSError, DethpcError):
            return None

    def _metrics(self, group: str, chain: str) -> dict[str, Any]:
        values = {"loss": training.loss(chain, self.steps), "chain": chain}
        return {"group": group, "steps_completed": self.steps, "metrics": values}

    def _say(self, journal: JournalWriter, kind: ReportKind, data: dict[str, Any]) -> None:
        """Told to the judge first: it may be killed when the line is written, and nobody has heard that it is."""
        steps, chain = int(data.get("steps_completed") or 0), str(data.get("metrics", {}).get("chain", ""))
        self._story.judge.said(self, Said(journal.seq + 1, kind.value, steps, chain))
        try:
            _, line, _ = journal.append_line(kind, data)
        except NotWritten as error:
            line = error.line
            self._story.judge.cut.add((self.run_id, self.k))  # it may reach the master by HTTP alone
        self._story.ring(self, [line])

    def _save(self, store: storage.CheckpointStore, chain: str, owner: Owner) -> str | None:
        """A checkpoint that cannot be written is not there, and training goes on."""
        uuid = f"{self.run_id}.{self.k}.{self.steps}"
        try:
            folder = store.stage(uuid)
            (folder / "chain.json").write_text(json.dumps({"steps": self.steps, "chain": chain}))
            store.publish(uuid, owner=owner)
        except (OSError, DethpcError):
            return None
        return uuid

    def _report_end(self, code: int, *, early: bool = False, message: str = "") -> Iterator[float]:
        attempt = self.run_dir.attempt(self.k)
        for _ in range(30):
            try:
                acked = early or attempt.ack.exists()
                request = attempt.stop_request()
                report = EndReport(
                    finished=code == 0 and not acked,
                    exit_code=code,
                    signal=code - 128 if code > 128 else None,
                    acked=acked,
                    stop_reason=request.reason if request else None,
                    phase="train",
                    message=message,
                    at=self._story.clock.wall(),
                )
                write_json(attempt.end, report.to_json())
                self._story.ring(self)
                return
            except (OSError, DethpcError):
                yield 5.0


Begin = Callable[[Job], Process]
