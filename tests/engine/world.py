"""A scheduler and a database for the engine, played by a test."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain import facts
from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.facts import (
    Experiment,
    Row,
    Run,
    SearchNote,
    Trial,
    nothing,
)
from dethpc.domain.ports import JobRecord, JobState, Snapshot
from dethpc.domain.reports import Report
from dethpc.engine import ClusterState, events, step
from dethpc.engine.fold import fold
from dethpc.searcher.methods import build


def config(name: str = "random", **searcher: Any) -> dict[str, Any]:
    defaults: dict[str, Any] = {"name": name, "metric": "loss", "smaller_is_better": True, "max_trials": 4}
    return {
        "name": "test",
        "entrypoint": "train",
        "searcher": {**defaults, "max_concurrent_trials": 2, **searcher},
        "hyperparameters": {"lr": {"type": "log", "minval": -3, "maxval": -1, "base": 10}},
        "resources": {"slots_per_trial": 1, "resource_pool": "main"},
        "max_restarts": 1,
    }


@dataclass
class World:
    """Holds what a database would hold, and drives the engine as the master does."""

    state: ClusterState = field(default_factory=lambda: ClusterState(build))
    tables: dict[type, dict[Any, Row]] = field(default_factory=dict)
    clock: float = 1000.0

    def do(self, event: events.Event) -> list[Row]:
        rows = step(self.state, event)
        for row in rows:
            if isinstance(row, (Trial, SearchNote)):
                json.dumps(row.search if isinstance(row, Trial) else row.data, allow_nan=False)
            self.tables.setdefault(type(row), {})[facts.key(row)] = copy.deepcopy(row)
        return rows

    def now(self) -> float:
        self.clock += 1
        return self.clock

    def rows(self, kind: type) -> list[Any]:
        return list(self.tables.get(kind, {}).values())

    def create(self, activate: bool = True, original_config: str = "", **changes: Any) -> Experiment:
        cfg = {**config(), **changes}
        rows = self.do(
            events.CreateExperiment(
                owner="me",
                config=ExperimentConfig.from_json(cfg),
                original_config=original_config,
                context_sha256="",
                seed=7,
                queue_id=f"00000000-0000-4000-8000-{self.state.next_experiment_id:012d}",
                activate=activate,
                at=self.now(),
            )
        )
        assert isinstance(rows[0], Experiment)
        return rows[0]

    def go_on(self, experiment_id: int, **changes: Any) -> list[Row]:
        """Continue it, with these sections of its configuration changed."""
        row = next(row for row in self.rows(Experiment) if row.id == experiment_id)
        cfg = {
            name: {**value, **changes.get(name, {})} if isinstance(value, dict) else value
            for name, value in row.config.items()
        }
        changed = ExperimentConfig.from_json({**cfg, **{k: v for k, v in changes.items() if not isinstance(v, dict)}})
        return self.do(events.ContinueExperiment(experiment_id, changed, self.snapshot(), self.now()))

    def start(self, run: Run, *nodes: str) -> None:
        self.do(events.Submitted(run.id, f"job-{run.id}", self.now()))
        trial = self.state.trial_of(run)
        latest = trial.latest_checkpoint if trial is not None else None
        checkpoint = self.state.checkpoints.get(trial.id, {}).get(latest or "") if trial is not None else None
        steps = checkpoint.steps_completed if checkpoint else 0
        k = self.state.runs[run.id].attempt + 1
        self.do(events.AttemptStarted(run.id, k, list(nodes) or ["n0"], latest, steps, self.now()))

    def trial(self, run: Run) -> Trial:
        trial = self.state.trial_of(run)
        assert trial is not None
        return trial

    def report(self, run: Run, kind: str, **data: Any) -> None:
        current = self.state.runs[run.id]
        attempt = self.state.attempt(run.id, current.attempt)
        assert attempt is not None
        report = Report(attempt.applied_seq + 1, self.now(), kind, data)
        self.do(events.Reported(run.id, current.attempt, [report], self.now()))

    def end(self, run: Run, report: dict[str, Any] | None, record: JobState | None = None, **more: Any) -> None:
        current = self.state.runs[run.id]
        told = None if record is None else JobRecord(current.scheduler_job_id or "", "", record)
        self.do(events.AttemptEnded(run.id, current.attempt, _report(report), told, self.now(), **more))

    def live(self) -> list[Run]:
        return list(self.state.runs.values())

    def snapshot(self) -> Snapshot:
        return Snapshot(
            {fact: self.rows(fact) for fact in facts.IN_MEMORY}, self.state.next_experiment_id, self.state.next_trial_id
        )

    def snapshot_of(self, experiment_id: int) -> Snapshot:
        """What the store has of one experiment."""
        rows = {fact: [r for r in self.rows(fact) if _experiment_of(r) == experiment_id] for fact in facts.IN_MEMORY}
        return Snapshot(rows, self.state.next_experiment_id, self.state.next_trial_id)

    def assert_memory_is_a_fold_of_the_rows(self) -> None:
        assert not nothing(), "what all rows without anything share was altered"
        folded = fold(build, copy.deepcopy(self.snapshot()), self.state.rules)
        assert folded.runs == self.state.runs
        assert folded.tasks == self.state.tasks
        assert folded.ended == self.state.ended
        assert folded.jobs.keys() == self.state.jobs.keys()
        for name in ("pending", "busy", "fresh", "waiting"):
            indexes = [{k: n for k, n in getattr(state.live, name).items() if n} for state in (folded, self.state)]
            assert indexes[0] == indexes[1], name
        assert folded.places == self.state.places
        assert folded.pools == self.state.pools
        assert folded.trials == self.state.trials
        assert folded.attempts == self.state.attempts
        assert folded.resting == self.state.resting
        assert folded.checkpoints == self.state.checkpoints
        assert folded.nodes == self.state.nodes
        assert (folded.next_experiment_id, folded.next_trial_id) == (
            self.state.next_experiment_id,
            self.state.next_trial_id,
        )
        assert folded.experiments.keys() == self.state.experiments.keys()
        for experiment_id, experiment in self.state.experiments.items():
            other = folded.experiments[experiment_id]
            for name in (
                "row",
                "trials",
                "open",
                "waiting",
                "live",
                "live_slots",
                "running_slots",
                "started",
                "place",
                "notes",
                "good_nodes",
            ):
                assert getattr(other, name) == getattr(experiment, name), name
            about = [{**each.searcher.describe(), "progress": 0} for each in (other, experiment)]
            assert about[0] == about[1]
            assert other.searcher.progress == pytest.approx(experiment.searcher.progress)


def _experiment_of(row: Row) -> int | None:
    return row.id if isinstance(row, Experiment) else getattr(row, "experiment_id", None)


def _report(content: dict[str, Any] | None) -> EndReport | None:
    return None if content is None else EndReport.from_json(content)


FINISHED = {"finished": True, "exit_code": 0}
FAILED = {"finished": False, "exit_code": 1, "phase": "train", "message": "ValueError: bad"}
STOPPED = {"finished": False, "exit_code": 0, "acked": True, "stop_reason": "pause"}
