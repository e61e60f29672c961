"""What every GET of the API answers, kept in files: a change of one is a change of the wire, which clients read.

DETHPC_DRAW_GOLDEN=1 writes them anew. What differs from run to run stands there as NAMES of what it is.
"""

from __future__ import annotations

import difflib
import getpass
import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import requests

import dethpc
from dethpc.domain.states import RunState, State, TaskKind
from dethpc.master.http.app import create_app
from dethpc.master.tasks.interactive import ShellKeys
from tests.master.conftest import Served, experiment, launched, run_of, trained, trial, uuid_of
from tests.master.http.test_roles import routes_of
from tests.waiting import LONG_ENOUGH

FOLDER = Path(__file__).with_name("answers")
DRAW = os.environ.get("DETHPC_DRAW_GOLDEN") == "1"

FILES = re.compile(r"^/(docs|openapi\.json|det)\b|/export$|/archive|^/checkpoints/")
"""Pages, files and archives: others look at those."""

QUERIES = {
    "/api/v1/allocations/{allocation_id}/signals/preemption": ["timeoutSeconds=0"],
    "/api/v1/checkpoints": [
        "",
        "limit=1",
        "sortBy=CHECKPOINT_SORT_BY_BATCH_NUMBER&orderBy=ORDER_BY_DESC",
        "trialIds=1",
    ],
    "/api/v1/experiments": [
        "",
        "limit=1",
        "orderBy=ORDER_BY_DESC",
        "archived=true",
        "states=STATE_PAUSED",
        "name=digits%202",
    ],
    "/api/v1/experiments/{experiment_id}/trials": [
        "",
        "sortBy=TRIAL_SORT_BY_BEST_VALIDATION_METRIC",
        "limit=1&offset=1",
    ],
    "/api/v1/experiments/{experiment_id}/metrics-stream/batches": ["metricName=loss&metricType=METRIC_TYPE_VALIDATION"],
    "/api/v1/experiments/metrics-stream/metric-names": ["ids=1"],
    "/api/v1/experiments/{experiment_id}/metrics-stream/trials-sample": [
        "metricName=loss&group=validation&maxTrials=1"
    ],
    "/api/v1/experiments/{experiment_id}/metrics-stream/trials-snapshot": [
        "metricName=loss&group=validation&batchesProcessed=3&batchesMargin=1"
    ],
    "/api/v1/projects/{project_id}/columns": ["", "tableType=TABLE_TYPE_RUN"],
    "/api/v1/resources/allocation/aggregated": ["startDate=2025-11-01&endDate=2025-11-30"],
    "/api/v1/resources/allocation/raw": ["timestampAfter=2025-11-01T00:00:00Z&timestampBefore=2025-12-01T00:00:00Z"],
    "/resources/allocation/aggregated": ["startDate=2025-11-01&endDate=2025-11-30"],
    "/resources/allocation/allocations-csv": [
        "timestampAfter=2025-11-01T00:00:00Z&timestampBefore=2025-12-01T00:00:00Z"
    ],
    "/resources/allocation/raw": ["timestampAfter=2025-11-01T00:00:00Z&timestampBefore=2025-12-01T00:00:00Z"],
    "/api/v1/trials/metrics/trial_metrics": ["trialIds=1&group=validation"],
    "/api/v1/trials/metrics/training_metrics": ["trialIds=1"],
    "/api/v1/trials/metrics/validation_metrics": ["trialIds=1"],
    "/api/v1/trials/time-series": ["trialIds=1&metricNames=loss&group=validation"],
    "/api/v1/trials/{trial_id}/workloads": ["", "metricType=METRIC_TYPE_VALIDATION", "includeBatchMetrics=true"],
}
"""By route: what is asked. Else the route alone."""

IDS: Mapping[str, object] = {
    "command_id": "0c5e1f5e-0000-4000-8000-000000000001",
    "notebook_id": "0c5e1f5e-0000-4000-8000-000000000002",
    "shell_id": "0c5e1f5e-0000-4000-8000-000000000003",
    "tensorboard_id": "0c5e1f5e-0000-4000-8000-000000000004",
    "launched_task_id": "0c5e1f5e-0000-4000-8000-000000000001",
    "allocation_id": "1.1.1.0",
    "digest": "0" * 64,
    "experiment_id": 1,
    "group_id": 1,
    "external_id": "nothing",
    "ids": "nothing",
    "job_id": "1",
    "key": "uncategorized",
    "model_name": "digits",
    "name": "NODE",
    "number": 1,
    "project_id": 1,
    "run": "1.1.1",
    "run_id": 1,
    "slot": "000",
    "task_id": "1.1",
    "token_id": 1,
    "trial_id": 1,
    "user_id": 1,
    "username": "OWNER",
    "webhook_id": 1,
    "workload_type": "EXPERIMENT",
    "uuid": uuid_of(1, 2),
    "workspace_id": 1,
}
KEYS = ShellKeys("the private key", "ssh-ed25519 AAAA", "the host's private key", "ssh-ed25519 BBBB")
SHOWN = {"sources": [], "experiment_ids": [1], "trial_ids": [3]}
MISSING: Mapping[str, object] = {**dict.fromkeys(IDS, 999), "uuid": uuid_of(999, 2), "digest": "1" * 64}


def content(served: Served) -> None:
    """An experiment that completed, one whose trial runs, one that is paused, one that failed and is archived."""
    running = trial(3, 2, state=State.ACTIVE, ended_at=None)
    served.put(
        [
            launched(str(IDS["command_id"])),
            launched(str(IDS["notebook_id"]), TaskKind.NOTEBOOK),
            launched(str(IDS["shell_id"]), TaskKind.SHELL, details=KEYS._asdict()),
            launched(str(IDS["tensorboard_id"]), TaskKind.TENSORBOARD, details=SHOWN),
        ]
    )
    served.put(
        [
            experiment(1, labels=["a", "b"], description="the first", notes="as text"),
            *trained(trial(1, 1)),
            *trained(trial(2, 1, hparams={"lr": 0.5, "net": {"width": 3}})),
            experiment(2, state=State.ACTIVE, ended_at=None, progress=0.5),
            running,
            run_of(running, state=RunState.RUNNING, nodes=["node1"], scheduler_job_id="41"),
            experiment(3, state=State.PAUSED, ended_at=None, started_at=None, progress=0.0),
            experiment(4, state=State.ERROR, archived=True, reason="exit code 1: ValueError: bad lr"),
            trial(4, 4, state=State.ERROR, reason="exit code 1: ValueError: bad lr", best_validation=None),
        ]
    )


@pytest.fixture
def routes(served: Served) -> list[str]:
    app = create_app(served.daemon.services)
    app.openapi()
    paths = {route.partition(" ")[2] for route in routes_of(app) if route.startswith("GET ")}
    return sorted(path for path in paths if not FILES.search(path))


def asked(route: str) -> Iterator[str]:
    plain = route.replace(":path}", "}")
    for query in QUERIES.get(route, [""]):
        yield plain.format_map(IDS) + (f"?{query}" if query else "")
    if "{" in plain:
        yield plain.format_map(MISSING)


class Masks:
    """What differs from run to run, and what stands for it."""

    def __init__(self, served: Served) -> None:
        installation = served.daemon.installation
        node = served.daemon.services.cluster.nodes()[0].name
        self.node, self.owner = node, served.owner
        self._words = {
            str(installation.home.root): "HOME",
            installation.cluster_id: "CLUSTER_ID",
            served.url: "URL",
            f'"{dethpc.__version__}"': '"RELEASE"',
            f'"{socket.gethostname()}"': '"HOST"',
            f'"{node}"': '"NODE"',
            f'"{getpass.getuser()}"': '"OWNER"',
            f",{getpass.getuser()},": ",OWNER,",  # in CSV
            f"'{node}'": "'NODE'",
        }

    def path(self, path: str) -> str:
        return path.replace("NODE", self.node).replace("OWNER", self.owner)

    def of(self, text: str) -> str:
        for word, name in sorted(self._words.items(), key=lambda item: -len(item[0])):
            text = text.replace(word, name)
        text = re.sub(r"20(2[6-9]|[3-9]\d)-\d\d-\d\dT[\d:.]+(Z|\+00:00)", "NOW", text)  # rows are of 2025
        text = re.sub(
            r'("(?:pid|port|memory|memoryBytes|totalMemory|cpus|seconds|age|age_s|load)": )[\d.]+', r"\1 0", text
        )
        text = re.sub(r"(?<=: )\d{8,9}(\.\d+)?(?=[,}])", "0", text)  # seconds since then
        return re.sub(r"\b1[89]\d{8}\.\d+|\b[0-9a-f]{64}\b(?<!0{64})", "VARIES", text)


def answer_of(served: Served, masks: Masks, path: str) -> dict[str, Any]:
    reply = requests.get(
        served.url + masks.path(path), headers={"Authorization": f"Bearer {served.token}"}, timeout=LONG_ENOUGH
    )
    kind = reply.headers.get("content-type", "").partition(";")[0]
    body: Any = reply.text
    if kind == "application/json":
        body = [json.loads(line) for line in reply.text.splitlines() if line]
        body = body[0] if len(body) == 1 else body
    return {"status": reply.status_code, "type": kind, "body": body}


def noun_of(route: str) -> str:
    parts = [part for part in route.split("/") if part not in ("", "api", "v1")]
    return re.sub(r"[^a-z0-9-]", "-", (parts or ["root"])[0])


def test_every_answer_is_what_it_was(served: Served, routes: list[str]) -> None:
    content(served)
    masks, by_noun = Masks(served), dict[str, dict[str, Any]]()
    for route in routes:
        for path in asked(route):
            answer = answer_of(served, masks, path)
            by_noun.setdefault(noun_of(route), {})[f"GET {path}"] = json.loads(masks.of(json.dumps(answer)))
    assert sum(map(len, by_noun.values())) > 120
    texts = {noun: json.dumps(answers, indent=1, sort_keys=True) + "\n" for noun, answers in by_noun.items()}
    if DRAW:
        for noun, text in texts.items():
            (FOLDER / f"{noun}.json").write_text(text)
    assert sorted(path.stem for path in FOLDER.glob("*.json")) == sorted(texts)
    changed = [
        line
        for noun, text in texts.items()
        for line in difflib.unified_diff(
            (FOLDER / f"{noun}.json").read_text().splitlines(),
            text.splitlines(),
            f"{noun}.json",
            "now",
            lineterm="",
            n=2,
        )
    ]
    assert not changed, "\n".join(changed[:200])
