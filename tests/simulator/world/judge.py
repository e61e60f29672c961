"""What has to be true after every step, and at the end."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dethpc import storage
from dethpc.domain import facts
from dethpc.domain.facts import Attempt, Checkpoint, Experiment, Metric, NodeHealth, PoolState, Run, Trial
from dethpc.domain.ports import JobState
from dethpc.domain.states import AttemptState, CheckpointState, State
from dethpc.engine import ClusterState
from dethpc.master.durable import ids
from dethpc.master.durable.change_log import file_of
from dethpc.master.durable.row_file import from_line, to_line
from dethpc.master.rebuild import recreate
from dethpc.simulator.memory import MemoryStore
from dethpc.state import rows
from tests.simulator.world import training

if TYPE_CHECKING:
    from tests.simulator.world.node import Process, Said
    from tests.simulator.world.story import Story

LOGGED = [fact for fact in facts.IN_MEMORY if fact not in (PoolState, NodeHealth)]


GOES_ON = 90.0
"""Seconds that the job of a run which is over may go on, while the master sees it."""


class Violation(AssertionError):
    """The judge has found something that must not be."""


class Judge:
    def __init__(self, story: Story) -> None:
        self._story = story
        self.told: dict[tuple[str, int], list[Said]] = defaultdict(list)  # what each attempt said
        self.damaged: Counter[str] = Counter()  # trial -> lines of its journals that were damaged on purpose
        self.cut: set[tuple[str, int]] = set()  # attempts whose journals lost what their node had not brought to disk
        self.began: dict[str, float] = {}  # experiment -> when one of its trials first reported
        # Of each change log: its inode, how far it was read, what it says.
        self._lines: dict[Path, tuple[int, int, dict[Any, str]]] = {}
        self._left: dict[str, tuple[float, int]] = {}  # job of a run that is over -> since when, in how many polls
        self._left_to = 0  # pid of the master that polled
        self._damaged_for: dict[tuple[str, str], set[str]] = defaultdict(
            set
        )  # trial, checkpoint -> runs that found it damaged
        self.found: Violation | None = None
        self.checks = 0
        self.reports = 0
        self.ends: Counter[str] = Counter()  # how trials ended

    def fail(self, what: str) -> NoReturn:
        """Production code may catch what is raised here: the first finding stands."""
        self.found = self.found or Violation(f"seed {self._story.seed}: {what}")
        raise self.found

    # --- while it goes on

    def said(self, process: Process, said: Said) -> None:
        self.told[process.run_id, process.k].append(said)
        self.began.setdefault(process.run_id.split(".")[0], self._story.clock.now)
        self.reports += 1

    def trains(self, process: Process) -> None:
        """No step is trained twice at once. One whose node or job the scheduler gave up may go on in vain."""
        if process.zombie:
            return
        trial = process.run_id.rpartition(".")[0]
        for other in self._story.processes:
            if other is not process and other.trains and not other.zombie and other.run_id.rpartition(".")[0] == trial:
                self.fail(
                    f"trial {trial} trains in {process.run_id}.{process.k} and in {other.run_id}.{other.k} at once"
                )

    def found_damaged(self, process: Process, uuid: str) -> None:
        """A checkpoint that a run has reported as damaged is given to no later one. Two may have been under way already."""
        trial = process.run_id.rpartition(".")[0]
        if process.zombie or (process.run_id, process.k) in self.cut or self.damaged[trial]:
            return
        runs = self._damaged_for[trial, uuid]
        runs.add(process.run_id)
        if len(runs) > 2:
            self.fail(f"trial {trial} begins at checkpoint {uuid} again and again: {sorted(runs)} found it damaged")

    def polled(self) -> None:
        """A poll that saw all jobs came to its end: one of a run that is over, and said to be, does not stay. One that runs
        has a while to end by itself."""
        story, master = self._story, self._story.master
        if master is None or story.host.pid != master.pid or story.slurm.mood.listing != "whole":
            return
        if master.scheduler is not story.slurm:
            return  # it cannot see them
        runs, before = master.ledger.state.runs, self._left if self._left_to == master.pid else {}
        wanted = {run.scheduler_job_id for run in runs.values()}
        self._left, self._left_to = {}, master.pid
        for job in story.slurm.jobs_.values():
            name = job.run_dir.name
            if job.foreign or not job.live or job.ending is JobState.CANCELLED or job.id in wanted or name in runs:
                continue
            if not (job.run_dir / "closed").exists():
                continue
            since, polls = before.get(job.id, (story.clock.now, 0))
            self._left[job.id] = since, polls + 1
            patience = 0.0 if job.record.state is JobState.PENDING else GOES_ON
            if polls + 1 > 2 and story.clock.now - since >= patience:
                self.fail(
                    f"job {job.id} of run {name}, which is over, is {job.record.state.value} after {polls + 1} polls"
                )

    def after_step(self) -> None:
        """Memory is the fold of the rows, and the rows that of the change logs."""
        master = self._story.master
        if master is None or master.over or self._story.database.unreadable:
            return
        self.checks += 1
        ledger = master.ledger
        if ledger._broken_by is None:
            for what in differences(ledger.state, ledger._fold()):
                self.fail(f"memory is not the fold of the rows: {what}")
        if not any(each.missed for each in ledger._listeners):
            self._change_logs(ledger.state)
        self._checkpoints(ledger.state)

    def _change_logs(self, state: ClusterState) -> None:
        held: list[Any] = [experiment.row for experiment in state.experiments.values()]
        held += [trial for experiment in state.experiments.values() for trial in experiment.trials]
        held += [*state.tasks.values(), *state.runs.values()]
        held += [attempt for attempts in state.attempts.values() for attempt in attempts]
        held += [checkpoint for some in state.checkpoints.values() for checkpoint in some.values()]
        for row in held:
            path = file_of(self._story.home, row)
            if path is None or path in self._story.spoiled or self._story.says_old_rows(path):
                continue
            if self._last_lines(path).get((type(row), facts.key(row))) != to_line(row).rstrip("\n"):
                self.fail(f"{type(row).__name__} {facts.key(row)} is in memory otherwise than in {path}")

    def _last_lines(self, path: Path) -> dict[Any, str]:
        inode, offset, last = self._lines.get(path, (0, 0, {}))
        try:
            with open(path, "rb") as file:
                if inode != os.fstat(file.fileno()).st_ino:  # it was compacted
                    inode, offset, last = os.fstat(file.fileno()).st_ino, 0, {}
                file.seek(offset)
                data = file.read()
        except FileNotFoundError:
            return last
        for line in data.split(b"\n"):
            if line.strip():
                try:
                    kind, key, _ = from_line(line)
                except ValueError:
                    continue  # of a writer that was killed; written again below
                last[kind, key] = line.decode()
        self._lines[path] = inode, offset + len(data), last
        return last

    def read_anew(self) -> None:
        """Files were changed by hand: what was read of them is not what they say."""
        self._lines.clear()

    def _checkpoints(self, state: ClusterState) -> None:
        for experiment in state.experiments.values():
            store = storage.build(experiment.row.config["checkpoint_storage"])
            for index in experiment.open:
                trial = experiment.trials[index]
                uuid = trial.latest_checkpoint
                if uuid is not None and uuid not in self._story.spoiled_checkpoints and not store.exists(uuid):
                    self.fail(f"trial {trial.id} relies on checkpoint {trial.latest_checkpoint}, which is not there")

    # --- at the end

    def all_rows(self) -> dict[type, list[Any]]:
        with self._story.database.read() as connection:
            return {fact: rows.read(connection, fact) for fact in (*LOGGED, Metric)}

    def finally_(self) -> None:
        story, found = self._story, self.all_rows()
        for job in story.slurm.jobs_.values():
            if job.live and not job.foreign:
                self.fail(f"job {job.id} ({job.record.name}) of a run that is over is {job.record.state.value}")
        for run in found[Run]:
            if run.ended_at is None:
                self.fail(f"run {run.id} has no end")
        for attempt in found[Attempt]:
            if attempt.state is not AttemptState.ENDED:
                self.fail(f"attempt {attempt.run_id}.{attempt.number} has no end")
        with story.database.read() as connection:
            unknown = ids.in_files(story.home) - ids.in_database(connection) - ids.given_up(story.home)
        if unknown.experiments or unknown.runs:
            self.fail(f"nobody knows of {sorted(unknown.experiments)} {sorted(unknown.runs)}")
        metrics: dict[int, list[Metric]] = defaultdict(list)
        for metric in found[Metric]:
            metrics[metric.trial_id].append(metric)
        experiments = {row.id: row for row in found[Experiment]}
        gone = {row.id for row in found[Experiment] if not row.state.keeps_files}
        if going := [row.id for row in found[Experiment] if row.state is State.DELETING]:
            self.fail(f"experiments {going} are being deleted for ever")
        for trial in found[Trial]:
            if trial.experiment_id not in gone:  # a database that was made again has no metrics of it
                self._trial(trial, metrics[trial.id])
            self.ends[trial.state.value] += 1
        self._reports(found)
        found[Metric] = [metric for metric in found[Metric] if metric.experiment_id not in gone]
        kept = [checkpoint for checkpoint in found[Checkpoint] if checkpoint.experiment_id not in gone]
        self._stored(kept, {trial.id: trial for trial in found[Trial]}, experiments)
        self._recreated(found)

    def _trial(self, trial: Trial, metrics: list[Metric]) -> None:
        if not trial.state.terminal:
            self.fail(f"trial {trial.id} is {trial.state.value} for ever")
        name = f"{trial.experiment_id}.{trial.id}"
        steps = sorted(metric.steps_completed for metric in metrics if metric.group == "training")
        doubled = [step for step, count in Counter(steps).items() if count > 1]
        if doubled:
            self.fail(f"trial {name} counts steps {doubled} twice")
        last = self._story.length if trial.state is State.COMPLETED else max(steps, default=0)
        missing = sorted(set(range(1, last + 1)) - set(steps))
        if len(missing) > self.damaged[name]:
            self.fail(
                f"trial {name} ({trial.state.value}) lacks the reports of steps {missing}; {self.damaged[name]} were damaged"
            )
        for metric in metrics:
            if metric.metrics["chain"] != training.expected(trial.hparams, metric.steps_completed):
                self.fail(f"trial {name}: step {metric.steps_completed} was trained from something else")
        if trial.state is State.ERROR and not self._story.explained(trial.reason):
            self.fail(f"trial {name} ended in ERROR: {trial.reason}")

    def _reports(self, found: dict[type, list[Any]]) -> None:
        """What is stored is what was said, by the attempt that said it."""
        said = {(run, k, one.seq): one for (run, k), all_of_it in self.told.items() for one in all_of_it}
        for metric in found[Metric]:
            one = said.get((metric.run_id, metric.attempt, metric.seq))
            if one is None or (one.steps, one.chain) != (metric.steps_completed, metric.metrics["chain"]):
                self.fail(f"nobody said report {metric.run_id}.{metric.attempt} #{metric.seq} as it is stored")

    def _stored(self, found: list[Checkpoint], trials: dict[int, Trial], experiments: dict[int, Experiment]) -> None:
        for row in found:
            if row.state is not CheckpointState.COMPLETED or row.uuid in self._story.spoiled_checkpoints:
                continue
            store = storage.build(experiments[row.experiment_id].config["checkpoint_storage"])
            with store.restore(row.uuid) as folder:
                held = json.loads((folder / "chain.json").read_text())
            if held["chain"] != training.expected(trials[row.trial_id].hparams, row.steps_completed):
                self.fail(f"checkpoint {row.uuid} is of another training")

    def _recreated(self, found: dict[type, list[Any]]) -> None:
        """The database made from the files alone is the database."""
        if (
            self._story.spoiled
            or self.damaged
            or self.cut
            or any(map(self._story.says_old_rows, self._story.overwritten))
        ):
            return
        made = MemoryStore()
        recreate(self._story.home, made)
        for fact in (*LOGGED, Metric):
            again = {facts.key(row): row for row in made.rows(fact)}
            kept = {facts.key(row): row for row in found[fact]}
            if again.keys() != kept.keys():
                self.fail(
                    f"{fact.__name__}: only in files {again.keys() - kept.keys()}, only in rows {kept.keys() - again.keys()}"
                )
            for key, row in kept.items():
                if to_line(again[key]) != to_line(row):
                    self.fail(
                        f"{fact.__name__} {key} would be recreated otherwise: {to_line(again[key])} for {to_line(row)}"
                    )


def differences(state: ClusterState, folded: ClusterState) -> Iterator[str]:
    """In what memory differs from the fold of the rows."""
    for name in ("runs", "tasks", "trials", "attempts", "checkpoints", "next_experiment_id", "next_trial_id"):
        if getattr(folded, name) != getattr(state, name):
            yield f"{name}: {getattr(state, name)} for {getattr(folded, name)}"
    if folded.experiments.keys() != state.experiments.keys():
        yield f"experiments {sorted(state.experiments)} for {sorted(folded.experiments)}"
        return
    for number, experiment in state.experiments.items():
        other = folded.experiments[number]
        for name in ("row", "trials", "open", "waiting", "live", "notes"):
            if getattr(other, name) != getattr(experiment, name):
                yield f"{name} of experiment {number}: {getattr(experiment, name)} for {getattr(other, name)}"
        if remembered(other.searcher) != remembered(experiment.searcher):
            yield f"the searcher of experiment {number}"


def remembered(searcher: Any) -> dict[str, Any]:
    """What decisions rest on; not how it is kept, nor progress, which is not recorded."""
    kept = {name: value for name, value in vars(searcher).items() if not name.startswith("_") and name != "brackets"}
    return {**kept, **searcher.describe(), "progress": None}
