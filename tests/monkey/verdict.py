"""Whether anything was lost, doubled, or left over, by every trace that a search leaves."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dethpc.domain.reports import ReportKind
from dethpc.errors import RunDirError
from dethpc.rundir.home import Home
from tests.monkey.chain import EVERY, loss, states
from tests.monkey.world import Damaged, World, Zombie

Reports = Sequence[tuple[int, float]]
"""(steps completed, loss) in the order in which they are listed."""

_PARTS = {"training": "avg_metrics", "validation": "validation_metrics"}


@dataclass
class Verdict:
    trials: int = 0
    reports: int = 0
    checkpoints: int = 0
    runs: int = 0
    attempts: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)
    overlaps: int = 0  # two executions at once that Slurm had begun, of a node that it had given up
    imports: int = 0  # that were deleted in another home with the same storage
    damaged: int = 0  # reports that the monkey had damaged itself, and that are said to be missing

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.wrong or self.left_over)

    def __str__(self) -> str:
        found = {name: getattr(self, name) for name in ("lost", "doubled", "wrong", "left_over")}
        return "\n".join(f"{name}: {what}" for name, whats in found.items() for what in whats) or "clean"


def judge_reports(
    name: str,
    hparams: Mapping[str, Any],
    reports: Mapping[str, Reports],
    damaged: Mapping[str, set[int]],
    verdict: Verdict,
) -> int:
    """What is wrong with a trial's reports of training and validation. Returns how many steps it trained.

    ``damaged``: steps of the reports of each group that were damaged, so that they may be missing.
    """
    truth = {step: loss(state) for step, state in states(hparams["lr"], hparams["most"])}
    last = max((step for step, _ in reports["training"]), default=0)
    due = {"training": range(1, last + 1), "validation": range(EVERY, last + 1, EVERY)}
    for group, found in reports.items():
        steps = Counter(step for step, _ in found)
        for step in sorted(set(due[group]) - set(steps)):
            if step in damaged[group]:
                verdict.damaged += 1
            else:
                verdict.lost.append(f"{name}: {group} of step {step}")
        for step, count in steps.items():
            if count > 1:
                verdict.doubled.append(f"{name}: {group} of step {step} counts {count} times")
            if step not in due[group]:
                verdict.wrong.append(f"{name}: {group} of step {step}, where none is due")
        for step, value in found:
            if truth.get(step) != value:
                verdict.wrong.append(f"{name}: {group} of step {step} is {value}, not {truth.get(step)}")
        verdict.reports += len(found)
    return last


STARTS = 5.0
"""Seconds in which a job that Slurm has started begins to train: it may lose its node in between."""


def judge_overlap(overlap: Mapping[str, Any], zombies: Sequence[Zombie], verdict: Verdict) -> None:
    """Two executions at once are Slurm's doing where it had given up the older one, which ran on."""
    holder = overlap["holder"]
    for zombie in zombies:
        if holder["at"] - STARTS <= zombie.at <= overlap["at"] and zombie.node in ("", holder["node"]):
            verdict.overlaps += 1
            return
    verdict.doubled.append(f"{overlap['attempt']} began while {holder['attempt']} trained")


class Judge:
    """Of an experiment that has ended. Takes the master down."""

    def __init__(self, world: World, experiment: int) -> None:
        self._world, self._user, self._experiment = world, world.user, experiment
        self.verdict = Verdict()

    def judge(self) -> Verdict:
        verdict, path = self.verdict, f"/api/v1/experiments/{self._experiment}"
        found = self._user.experiment(self._experiment)
        if found["state"] != "STATE_COMPLETED":
            verdict.wrong.append(f"experiment {self._experiment} is {found['state']}")
        trials = self._user.trials(self._experiment)
        if len(trials) != found["config"]["searcher"]["max_trials"]:
            verdict.wrong.append(f"the search made {len(trials)} trials")
        for trial, place in zip(trials, self._user.api("GET", f"{path}/search")["trials"], strict=True):
            self._trial(int(trial["id"]), trial, place)
        for overlap in self._overlaps({int(trial["id"]) for trial in trials}):
            judge_overlap(overlap, self._world.zombies, verdict)
        self._jobs()
        verdict.wrong += self._world.wrong
        verdict.imports = self._world.imports
        self._user.det("master", "down")
        if self._world.bundles:
            self._user.det("master", "up")  # it mends them
            self._user.det("master", "down")
        self._check()
        self._count_runs()
        self._processes()
        return verdict

    def _trial(self, id: int, trial: dict[str, Any], place: dict[str, Any]) -> None:
        verdict, name, killed = self.verdict, f"trial {id}", id in self._world.killed
        verdict.trials += 1
        if trial["state"] not in ("STATE_COMPLETED", "STATE_CANCELED" if killed else ""):
            log = self._user.det("trial", "logs", str(id), code=None)
            verdict.wrong.append(f"{name} is {trial['state']}; the end of its log: {log[-1500:]}")
        reports = {group: self._reports(id, group) for group in _PARTS}
        damaged, before = self._damaged(id), verdict.damaged
        last = judge_reports(name, trial["hparams"], reports, damaged, verdict)
        if verdict.damaged > before and not self._says_what_is_missing(id):
            verdict.lost.append(f"{name}: damaged reports are missing, and nobody says so")
        length = place.get("length")
        if length is None and not killed and not any(damaged.values()):
            verdict.wrong.append(f"{name} trained {last} steps, and was never judged")
        value = dict(reports["validation"]).get(length or 0)
        if length is not None and place.get("value") != value and not any(damaged.values()):
            verdict.wrong.append(f"{name} was judged at {length} by {place.get('value')}, and reported {value}")
        self._checkpoints(id, name, trial["hparams"])

    def _reports(self, trial: int, group: str) -> list[tuple[int, float]]:
        return [(m["totalBatches"], m["metrics"][_PARTS[group]]["loss"]) for m in self._user.metrics(trial, group)]

    def _damaged(self, trial: int) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {group: set() for group in _PARTS}
        for damaged in self._of(trial):
            if damaged.report.kind == ReportKind.METRICS:
                found[damaged.report.data["group"]].add(int(damaged.report.data["steps_completed"]))
        return found

    def _of(self, trial: int) -> list[Damaged]:
        return [damaged for damaged in self._world.reports if damaged.run.split(".")[1] == str(trial)]

    def _says_what_is_missing(self, trial: int) -> bool:
        """In the trial's log, or, where the database was made from a damaged file later, in the words of the rebuild."""
        rebuilt = "".join(self._world.losses)
        places = [f"{damaged.run}/attempts/{damaged.attempt}" for damaged in self._of(trial)]
        return "damaged" in self._user.det("trial", "logs", str(trial), code=None) or any(p in rebuilt for p in places)

    def _checkpoints(self, trial: int, name: str, hparams: Mapping[str, Any]) -> None:
        truth = dict(states(hparams["lr"], hparams["most"]))
        for row in self._user.api("GET", f"/api/v1/trials/{trial}/checkpoints")["checkpoints"]:
            steps = int(row["metadata"]["steps_completed"])
            words = f"{name}: checkpoint {row['uuid']} of step {steps}"
            self.verdict.checkpoints += 1
            path = self._user.home / "checkpoints" / row["uuid"] / "state.json"
            if path in self._world.damaged:
                continue
            try:
                kept = json.loads(path.read_text())
            except (OSError, ValueError) as error:
                self.verdict.lost.append(f"{words}: {error}")
                continue
            if kept != {"state": truth.get(steps), "step": steps}:
                self.verdict.wrong.append(f"{words} holds {kept}")

    def _overlaps(self, ours: set[int]) -> list[dict[str, Any]]:
        path = self._world.notes / "overlaps.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [overlap for overlap in map(json.loads, lines) if int(overlap["trial"]) in ours]

    # --- what must not be left ----------------------------------------------------------------------------------------------

    def _jobs(self) -> None:
        """No job of dethpc's is left; every job of somebody else is."""
        left = ("PENDING", "RUNNING", "SUSPENDED")
        wait(lambda: not self._world.jobs(*left))
        self.verdict.left_over += [f"job {job}" for job in self._world.jobs(*left)]
        for job in self._world.strangers:
            if not self._world.waits(job):
                self.verdict.wrong.append(f"job {job} of somebody else is gone")

    def _check(self) -> None:
        """``det master check`` finds what the monkey damaged, and nothing else."""
        found = json.loads(self._user.det("master", "check", "--json", code=None))["differences"]
        for difference in found:
            if not any(str(path) in difference["what"] for path in self._world.damaged):
                self.verdict.wrong.append(f"det master check: {difference}")

    def _count_runs(self) -> None:
        with sqlite3.connect(self._user.home / "dethpc.db") as database:
            for noun in ("runs", "attempts"):
                asked = f"SELECT count(*) FROM {noun} WHERE experiment_id = ?"
                (count,) = database.execute(asked, (self._experiment,)).fetchone()
                setattr(self.verdict, noun, count)

    def _processes(self) -> None:
        wait(lambda: not [*self._world.processes()])
        self.verdict.left_over += [f"process {pid}: {' '.join(words)}" for pid, words in self._world.processes()]
        for path in self._world.scratch():
            # Whatever is killed with SIGKILL leaves its directory; Slurm does that after its grace.
            found = re.match(r"dethpc-\w+-(\d+\.\d+\.\d+)\.(\d+)-", path.name)
            if found and self._ended_by_itself(found[1], int(found[2])):
                self.verdict.left_over.append(
                    f"in a node's temporary folder: {path.name}, whose attempt ended by itself"
                )

    def _ended_by_itself(self, run: str, attempt: int) -> bool:
        try:
            return Home(self._user.home).run(run).attempt(attempt).end_report() is not None
        except RunDirError:  # the monkey's own words
            return False


def wait(condition: Callable[[], object], timeout: float = 90) -> None:
    """Wait for it, for so long at most."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline and not condition():
        time.sleep(0.2)


def total(verdicts: Iterable[Verdict]) -> Counter[str]:
    """Numbers of all verdicts together."""
    found: Counter[str] = Counter()
    for verdict in verdicts:
        for name, value in vars(verdict).items():
            found[name] += value if isinstance(value, int) else len(value)
    return found
