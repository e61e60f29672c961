"""``python -m tests.master.durable.make_release_fixture``: what this release leaves on a disk, for later releases.

Run it once for each release, when nothing of its schema will change any more. ``tests/fixtures/releases/VERSION`` then holds the
database as SQL and the home: change logs, records and journals. Never make those of an older release anew.
"""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import dethpc
from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.facts import Experiment, NodeHealth, Row, Run, Trial
from dethpc.domain.records import (
    Accelerators,
    ArchivedTrial,
    ClusterMessage,
    ConfigPolicy,
    Group,
    LogDays,
    Model,
    ModelVersion,
    Project,
    ProjectVisit,
    RoleAssignment,
    Template,
    Token,
    TokenKind,
    TrialSource,
    User,
    UserSetting,
    Webhook,
    WebhookDelivery,
    WebhookMode,
    WebhookType,
    Workspace,
    WorkspacePin,
    WorkspaceRole,
)
from dethpc.domain.states import TaskKind
from dethpc.engine import ClusterState, events, step
from dethpc.master.durable.change_log import ChangeLog
from dethpc.master.durable.records import Records
from dethpc.rundir.home import Home
from dethpc.rundir.journal import JournalWriter
from dethpc.searcher.methods import build
from dethpc.state import SqlStore, open_store

RELEASES = Path(__file__).parents[2] / "fixtures" / "releases"

CONFIG = {
    "name": "digits",
    "entrypoint": "python3 train.py",
    "searcher": {"name": "random", "metric": "loss", "max_trials": 3, "max_concurrent_trials": 2},
    "hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": 1}},
    "resources": {"slots_per_trial": 1, "resource_pool": "main"},
}
OUTSIDE = {**CONFIG, "name": "outside", "searcher": {"name": "custom", "metric": "loss", "unit": "batches"}}


class Master:
    """Decides, commits and appends, as the ledger does."""

    def __init__(self, home: Home, store: SqlStore) -> None:
        self.home, self.store, self.log = home, store, ChangeLog(home)
        self.state, self.clock = ClusterState(build), 1_763_000_000.0

    def now(self) -> float:
        self.clock += 10
        return self.clock

    def do(self, event: events.Event) -> list[Row]:
        rows = step(self.state, event)
        self.store.commit(rows)
        self.log.append(rows)
        return rows

    def create(self, config: dict[str, Any], **more: Any) -> int:
        number = f"00000000-0000-4000-8000-{self.state.next_experiment_id:012d}"
        rows = self.do(
            events.CreateExperiment(
                owner="ada",
                config=ExperimentConfig.from_json(config),
                original_config=f"name: {config['name']}\n",
                context_sha256="",
                seed=7,
                queue_id=number,
                activate=True,
                at=self.now(),
                **more,
            )
        )
        (made,) = (row for row in rows if isinstance(row, Experiment))
        return made.id

    def start(self, run: Run) -> None:
        self.do(events.Submitted(run.id, f"9{run.number}", self.now()))
        self.do(events.AttemptStarted(run.id, 0, ["n0"], None, 0, self.now()))

    def report(self, run: Run, steps: int, value: float) -> None:
        attempt = self.home.run(run.id).attempt(0)
        attempt.make()
        with JournalWriter(attempt.journal) as journal:
            made = [
                journal.append("metrics", {"group": group, "steps_completed": steps, "metrics": {"loss": value}})
                for group in ("training", "validation")
            ]
        self.do(events.Reported(run.id, 0, made, self.now(), attempt.journal.stat().st_size))

    def live(self, experiment_id: int) -> list[Run]:
        return [run for run in self.state.runs.values() if run.experiment_id == experiment_id]


def make(folder: Path) -> None:
    """Fill ``folder`` with ``home`` and ``database.sql``."""
    home = Home(folder / "home")
    home.make()
    database = folder / "state.db"
    with open_store(database) as store:
        master = Master(home, store)
        searched = master.create(CONFIG)
        first, second = master.live(searched)  # one trial completes, one trains, one waits
        for run in (first, second):
            master.start(run)
        master.report(first, 1, 0.5)
        master.report(second, 1, 0.25)
        master.do(events.AttemptEnded(first.id, 0, EndReport(finished=True, exit_code=0), None, master.now()))
        outside = master.create(OUTSIDE, kind=TaskKind.UNMANAGED_TRIAL)
        rows = master.do(events.AddTrial(outside, {"lr": 0.5}, "00000000-0000-4000-8000-0000000000aa", master.now()))
        (trial,) = (row for row in rows if isinstance(row, Trial))
        for value in (0.75, 0.125):  # started twice: the first run is shut out
            master.do(events.BeginTrial(trial.id, resume=True, at=master.now()))
            master.report(master.live(outside)[-1], 1, value)
        imported = ExperimentConfig.from_json({**CONFIG, "name": "imported"})
        master.do(
            events.ImportRun(
                "hand-1",
                "77",
                "ada",
                imported,
                "",
                "",
                "00000000-0000-4000-8000-0000000000bb",
                {"lr": 0.5},
                {},
                7,
                master.now(),
            )
        )
        paused = master.create({**CONFIG, "name": "paused"})
        master.do(events.Pause(paused, master.now()))
        node = NodeHealth("n1", excluded_since=master.now(), reason="smells")
        store.commit([node])
        master.log.append([node])
        records = Records(store, home)
        ada = records.add(
            User, username="ada", created_at=master.now(), modified_at=master.now(), password="$argon2id$x"
        )
        for kind in TokenKind:
            records.add(Token, user_id=ada.id, kind=kind, sha256=f"digest of {kind.value}", created_at=master.now())
        records.put(Workspace(2, "Vision", ada.id, master.now(), checkpoint_storage={"type": "shared_fs"}))
        records.put(WorkspacePin(ada.id, 2, master.now()))
        records.put(Project(2, 2, "Digits", "DIG", ada.id, master.now(), notes=[{"name": "a", "contents": "b"}]))
        records.put(
            Model(1, "digits", ada.id, master.now(), master.now(), labels=["x"], metadata={"k": [1.5]}, versions=1)
        )
        records.put(ModelVersion("digits", 1, "c-1", master.now(), labels=["best"]))
        records.put(Template("usual", {"max_restarts": 1}, 2))
        records.put(ArchivedTrial(1, master.now()))
        records.put(ClusterMessage(1, "down at noon", master.now(), master.now(), master.now() + 60))
        records.put(LogDays("trial", 1, 30))
        gpu = Accelerators("1.1.1.0", "n1", "1.1", 1, "", "H200", ["GPU-1"], "main", master.now())
        lab: list[Any] = [Group(1, "lab", [ada.id]), RoleAssignment(0, 1, 2, master.now())]
        for record in (
            TrialSource(1, "c-1", 1, 1, "INFERENCE", master.now()),
            gpu,
            *lab,
            WorkspaceRole(0, 1, 2, 1, master.now()),
        ):
            records.put(record)
        records.put(ConfigPolicy(2, "EXPERIMENT", {"max_restarts": 1}, {"priority_limit": 10}))
        records.put(UserSetting(ada.id, "ui", "theme", "dark"))
        records.put(ProjectVisit(ada.id, 2, master.now()))
        trigger = {"type": "EXPERIMENT_STATE_CHANGE", "condition": {"state": "ERROR"}}
        kind, mode = WebhookType.SLACK, WebhookMode.WORKSPACE
        records.put(Webhook(1, "chat", "https://example.org/", kind, mode, [trigger], ada.id, master.now()))
        records.put(WebhookDelivery("e-1", 1, master.now(), {"event_id": "e-1"}, attempts=2, answer="503"))
    connection = sqlite3.connect(database)
    (folder / "database.sql").write_text("\n".join(connection.iterdump()) + "\n")
    connection.close()
    database.unlink()


if __name__ == "__main__":
    target = RELEASES / dethpc.__version__
    shutil.rmtree(target, ignore_errors=True)
    make(target)
    print(target)
