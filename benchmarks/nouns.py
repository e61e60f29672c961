"""What lists cost in an installation of many people: 10,000 experiments in 200 projects of 20 workspaces, and 5,000 versions of 50
models.

A real master serves them over HTTP in a process of its own. p95 of each list by the clock over one kept connection, as the owner,
and again as a user who has a role in one of the workspaces alone, whose requests are narrowed to it. --quick: a tenth of it all.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator
from itertools import islice

from benchmarks import big_home
from benchmarks.frame import Figure, Row, run
from benchmarks.size import Master, timed
from dethpc.client.nouns import roles, users
from dethpc.client.session import Session
from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.facts import Checkpoint, Experiment, Trial
from dethpc.domain.facts import Row as Fact
from dethpc.domain.records import Model, ModelVersion, Project, Record, Template, Workspace
from dethpc.domain.states import CheckpointState, State
from dethpc.rundir.home import Home
from dethpc.state.store import SqlStore
from dethpc.state.tables import REVISION

LIMIT = 50  # ms at p95, of a list
ROUNDS = 30
WORKSPACES, PROJECTS, MODELS = 20, 200, 50
CONFIG = {
    "name": "many",
    "entrypoint": "python3 train.py",
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 10}},
    "hyperparameters": {"lr": {"type": "log", "minval": -5, "maxval": 0, "base": 10}},
}
PASSWORD = "Correct-horse-1"  # noqa: S105  of a user who is gone with the home


def records(parts: int) -> Iterator[Record]:
    for id in range(2, WORKSPACES + 2):
        yield Workspace(id, f"workspace {id}", 1, big_home.BEGAN)
    for id in range(2, PROJECTS + 2):
        yield Project(id, 2 + id % WORKSPACES, f"project {id}", f"K{id}", 1, big_home.BEGAN)
    for id in range(1, PROJECTS + 1):
        yield Template(f"template {id}", {"max_restarts": id}, 2 + id % WORKSPACES)
    versions = 5_000 // MODELS // parts
    for id in range(1, MODELS + 1):
        name, at = f"model {id}", big_home.BEGAN + id
        yield Model(id, name, 1, at, at, labels=["size"], workspace_id=2 + id % WORKSPACES, versions=versions)
        for number in range(1, versions + 1):
            yield ModelVersion(name, number, uuid_of(id + MODELS * number), at + number)


def facts(parts: int) -> Iterator[Fact]:
    draw = random.Random(0)
    config = ExperimentConfig.from_json(CONFIG).to_json()
    for id in range(1, 10_000 // parts + 1):
        at, loss = big_home.BEGAN + id, draw.random()
        yield Experiment(
            id=id,
            owner="me",
            config=config,
            original_config="",
            state=State.COMPLETED,
            created_at=at,
            seed=id,
            queue_id=f"00000000-0000-4000-8000-{id:012d}",
            name=f"experiment {id % 100}",
            pool="default",
            started_at=at,
            ended_at=at + 100,
            progress=1.0,
            metric="loss",
            project_id=2 + id % PROJECTS,
            labels=[f"label {id % 10}"],
        )
        yield Trial(
            id=id,
            experiment_id=id,
            index=0,
            hparams={"lr": draw.random()},
            seed=id,
            state=State.COMPLETED,
            created_at=at,
            ended_at=at + 100,
            steps_completed=10,
            best_validation=loss,
            latest_validation=loss,
            best_validation_steps=10,
        )
        yield Checkpoint(
            uuid=uuid_of(id),
            experiment_id=id,
            trial_id=id,
            run_id=f"{id}.{id}.1",
            attempt=0,
            seq=1,
            state=CheckpointState.COMPLETED,
            steps_completed=10,
            reported_at=at + 90,
            resources={"weights.pt": 1000},
        )


def uuid_of(id: int) -> str:
    return f"{id % 10_000:08d}-0000-4000-8000-000000000000"


def home(parts: int) -> Home:
    def put(store: SqlStore) -> None:
        rows = facts(parts)
        while some := list(islice(rows, 3_000)):
            store.commit(some)
        for record in records(parts):
            store.put(record)

    return big_home.prepared(f"{REVISION}-nouns-{parts}", put)


def lists() -> list[str]:
    """Every list of a noun that a person or a page asks for; what they name is in workspace 2, but for the first."""
    page = "limit=100"
    return [
        f"/api/v1/experiments?{page}",
        f"/api/v1/experiments?{page}&sortBy=SORT_BY_NAME&orderBy=ORDER_BY_DESC",
        f"/api/v1/experiments?{page}&projectId=20",
        f"/api/v1/experiments?{page}&name=experiment%2042",
        f"/api/v1/experiments?{page}&labels=label%203",
        f"/api/v1/workspaces?{page}",
        f"/api/v1/workspaces/0/projects?{page}",
        f"/api/v1/workspaces/2/projects?{page}",
        "/api/v1/projects/20",
        "/api/v1/projects/20/columns",
        f"/api/v1/models?{page}",
        "/api/v1/model/labels",
        f"/api/v1/models/model%2020/versions?{page}",
        f"/api/v1/templates?{page}",
        f"/api/v1/checkpoints?{page}",
        "/api/v1/job-queues?limit=100",
        "/api/v1/tasks",
        "/api/v1/users",
    ]


def confined(master: Master) -> Session:
    """Of a user who is an editor in workspace 2, and has no role elsewhere."""
    name = f"grace-{time.time_ns()}"
    user = users.create(master.session, name, PASSWORD)["id"]
    for role in ("Viewer", "Editor"):
        roles.unassign(master.session, role, user_id=user) if _has(master, user, role) else None
    roles.assign(master.session, "Editor", user_id=user, workspace_id=2)
    body = {"username": name, "password": PASSWORD, "isHashed": False}
    return Session(master.session.url, str(master.session.post("/api/v1/auth/login", body)["token"]))


def _has(master: Master, user: int, role: str) -> bool:
    return any(row["role"]["name"] == role for row in roles.of_user(master.session, user))


def rows(options: argparse.Namespace) -> Iterator[Row]:
    master = Master(home(10 if options.quick else 1))
    try:
        for who, session in (("owner", master.session), ("editor of a workspace", confined(master))):
            worst = []
            for path in lists():
                cost = timed(master, path, ROUNDS, session)
                worst.append(cost["p95_ms"])
                note = f"p50 {cost['p50_ms']:.1f} ms, processor time {cost['cpu_ms']:.1f} ms, {cost['bytes']:,} bytes"
                yield Row(f"{who}: {path}", "ms", Figure(cost["p95_ms"]), limit=LIMIT, note=note)
            yield Row(f"{who}: median of the lists", "ms", Figure(statistics.median(worst)))
    finally:
        master.end()


if __name__ == "__main__":
    run(__doc__, rows)
