"""A real HTTP server that answers as a master would, and the real ``det`` as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from dethpc.config import load
from dethpc.errors import ConfigError
from tests.waiting import LONG_ENOUGH

Json = dict[str, Any]
REPOSITORY = Path(__file__).resolve().parents[2]


def trial(number: int, state: str = "COMPLETED", metric: float | None = None, **more: Any) -> Json:
    return {
        "id": number,
        "experimentId": 1,
        "state": f"STATE_{state}",
        "totalBatchesProcessed": 100,
        "searcherMetricValue": metric,
        "restarts": 0,
        "hparams": {"lr": 0.1 * number},
        "startTime": "2026-11-20T10:00:00Z",
        "reason": "",
        **more,
    }


def run_of_job(trial_and_number: str, **more: Any) -> Json:
    run = {
        "id": f"16.{trial_and_number}",
        "jobId": "28",
        "state": "RUNNING",
        "nodes": ["n0", "n1"],
        "slots": 8,
        "startTime": "2026-11-20T10:00:00Z",
        "endTime": "2026-11-20T10:01:00Z",
        "reason": "",
        "directory": f"/home/ada/.dethpc/runs/16.{trial_and_number}",
        **more,
    }
    whose = {"trialId": int(trial_and_number.split(".")[0]), "trialState": "STATE_RUNNING"}
    task = {"taskKind": "TRIAL", "taskName": ""}
    return {"run": run, **task, **whose, "experimentId": 16, "experimentName": "digits"}


USAGE: Json = {
    "seconds": 3725.0, "cpuSeconds": 900.0, "cpus": 8, "cpu": 0.0302, "memoryBytes": 2 << 30, "memoryGivenBytes": 64 << 30,
    "memory": 1 / 32, "gpus": 2, "gpu": 0.74, "gpuMemory": 0.51, "advice": ["3% of the memory was used: ask for less"],
}  # fmt: skip

JOB: Json = {
    "jobId": "0d714127-3c1f-4b5e-9d2a-000000000001",
    "entityId": "1",
    "type": "TYPE_EXPERIMENT",
    "name": "digits",
    "username": "ada",
    "submissionTime": "2026-11-20T10:00:00.123456Z",
    "priority": 42,
    "weight": 2.5,
    "requestedSlots": 4,
    "allocatedSlots": 1,
    "summary": {"state": "STATE_SCHEDULED", "jobsAhead": 0},
}


def searched(search: Json, limit: int) -> Json:
    """The answer with at most so many trials in each rung and of all; 0: every one."""
    most = limit or None
    brackets = [
        {**bracket, "rungs": [{**rung, "trials": rung["trials"][:most]} for rung in bracket["rungs"]]}
        for bracket in search["brackets"]
    ]
    return {**search, "brackets": brackets, "trials": search["trials"][:most]}


class Answers:
    """What the server answers, changed by each test. ``asked`` lists (method, path, query, body) in order."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[tuple[str, str, Json, Any]] = []
        self.headers: list[Json] = []
        self.experiment: Json = {
            "id": 1,
            "name": "digits",
            "username": "ada",
            "state": "STATE_ACTIVE",
            "numTrials": 2,
            "progress": 0.5,
            "startTime": "2026-11-20T10:00:00Z",
            "resourcePool": "gpu",
            "labels": ["old"],
            "archived": False,
            "reason": "",
        }
        self.states: list[str] = []  # the experiment goes through these, one at each look
        self.config: Json = {
            "name": "digits",
            "searcher": {"name": "random", "metric": "loss", "smaller_is_better": True},
        }
        self.other_config: Json = {}  # of experiment 2
        self.code_changes: list[Json] = []  # of experiment 2 against another
        self.trials = [trial(1, metric=0.25), trial(2, "ERROR", reason="exit code 3: ZeroDivisionError", restarts=5)]
        self.search: Json = {"progress": 0.5, "estimatedEndTime": None, "metric": "loss", "brackets": [], "trials": []}
        self.checkpoints: list[Json] = []
        self.files: dict[str, dict[str, str] | None] = {"a": {}}  # of checkpoints by their uuid; None: deleted
        self.series: list[Json] = []  # {"trial", "metrics"} of trials 1, 2, ...
        self.runs: list[Json] = []  # of every trial
        self.attempts: list[Json] = []  # of every trial
        self.of_job: list[Json] = [run_of_job("31.1"), run_of_job("31.2", jobId="28", endTime=None, usage=USAGE)]
        self.waiting: list[Json] = []  # groups of trials that wait
        self.logs: list[list[Json]] = [[]]  # one list per request; a None in it breaks the stream off
        self.refuse: tuple[int, Json] | None = None

    def did(self, method: str) -> list[tuple[str, Any]]:
        return [(path, body) for m, path, _, body in self.asked if m == method]

    def answer(self, method: str, path: str, query: Json, body: Any) -> Any:  # noqa: C901 - a table of canned answers
        if path == "/api/v1/master":
            return {"clusterId": "c-1", "clusterName": "here", "version": "0.38.1", "dethpcVersion": "0.1.0"}
        if path == "/api/v1/me":
            return {"user": {"username": "ada", "id": 1, "admin": False, "active": True}}
        if self.refuse is not None:
            return self.refuse
        if path == "/api/v1/experiments" and method == "POST":
            return self._created(body["config"])
        if path == "/api/v1/experiments":
            return {"experiments": [{**self.experiment, "id": 2}, self.experiment], "pagination": {"total": 2}}
        if path == "/api/v1/experiments/1" and method == "GET":
            if self.states:
                self.experiment["state"] = "STATE_" + (self.states.pop(0) if len(self.states) > 1 else self.states[0])
            return {"experiment": self.experiment, "config": self.config, "jobSummary": None}
        if path == "/api/v1/experiments/2" and method == "GET":
            return {"experiment": {**self.experiment, "id": 2}, "config": self.other_config, "jobSummary": None}
        if path == "/api/v1/experiments/2/code_changes":
            return {"against": int(query["against"][0]), "changes": self.code_changes, "more": 0}
        if path == "/api/v1/experiments/1" and method == "PATCH":
            return {"experiment": {**self.experiment, **body}}
        if path == "/api/v1/experiments/1/trials":
            first, count = int(query.get("offset", ["0"])[0]), int(query.get("limit", ["0"])[0])
            return {"trials": self.trials[first : first + count if count else None], "pagination": {}}
        if path == "/api/v1/experiments/1/checkpoints":
            return {"checkpoints": self.checkpoints}
        if method == "GET" and path.startswith("/api/v1/checkpoints/") and (uuid := path.split("/")[-1]) in self.files:
            files = self.files[uuid]
            state = "STATE_DELETED" if files is None else "STATE_COMPLETED"
            return {"checkpoint": {"uuid": uuid, "state": state, "resources": files or {}}}
        if path == "/api/v1/experiments/1/search":
            return searched(self.search, int(query.get("limit", ["0"])[0]))
        if path == "/api/v1/experiments/1/waiting":
            return {"experimentId": 1, "text": "", "count": len(self.waiting), "groups": self.waiting}
        if path == "/api/v1/trials/time-series":
            wanted = [int(number) for number in query["trialIds"]]
            return {"trials": [self.series[number - 1] for number in wanted if number <= len(self.series)]}
        if path in ("/api/v1/trials/1/waiting", "/api/v1/trials/2/waiting"):
            return {"trialId": int(path.split("/")[4]), "waiting": self.waiting[0] if self.waiting else None}
        if path.startswith("/api/v1/trials/") and path.endswith("/timeline"):
            return {"attempts": self.attempts, "more": 0}
        if path in ("/api/v1/trials/1/workloads", "/api/v1/trials/2/workloads"):
            validation = {
                "totalBatches": 100,
                "endTime": "2026-11-20T10:05:00Z",
                "metrics": {"avgMetrics": {"loss": 0.25}},
            }
            return {"workloads": [{"validation": validation}], "pagination": {}}
        if path in ("/api/v1/trials/1", "/api/v1/trials/2"):
            return {"trial": self.trials[int(path[-1]) - 1], "runs": self.runs}
        if path == "/api/v1/scheduler-jobs/28":
            return {
                "jobId": "28",
                "runs": self.of_job,
            }
        if path == "/api/v1/resource-pools":
            pool = {"name": "gpu", "slotType": "TYPE_CUDA", "numAgents": 2, "slotsAvailable": 8, "slotsUsed": 3}
            pool |= {"schedulerType": "SCHEDULER_TYPE_SLURM", "queueOrder": "fair_share"}
            return {"resourcePools": [{**pool, "defaultComputePool": True, "description": "all of it"}]}
        if path == "/api/v1/resource-pools/goodput":
            return {"since": "2026-10-22T00:00:00Z", "pools": []}
        if path == "/api/v1/launched-tasks":
            return {"tasks": [], "pagination": {"total": 0}}
        if path == "/api/v1/waiting":
            groups = {
                "text": "It waits for 4 GPUs",
                "count": 3,
                "groups": [{"text": "It waits for 4 GPUs", "count": 2}],
            }
            return {"experiments": [{"experimentId": 1, "jobId": JOB["jobId"], **groups}]}
        if path == "/api/v1/job-queues-v2":
            known = query.get("resourcePool", ["gpu"]) == ["gpu"]
            return {"jobs": [{"full": JOB}] if known else [], "queueOrder": "fair_share"}
        if path == "/api/v1/agents":
            device = {"type": "TYPE_CUDA", "brand": "cuda"}
            slots = {
                "000": {"id": "000", "device": device, "container": {"id": "x"}},
                "001": {"id": "001", "device": device},
            }
            return {
                "agents": [{"id": "node1", "slots": slots, "resourcePools": ["gpu"], "state": "mixed", "reason": ""}]
            }
        if path == "/api/v1/experiments/1/kill":
            return {"changed": self.states[:1] not in (["ERROR"], ["COMPLETED"])}
        if method in ("POST", "DELETE"):
            return {}
        return 404, {"error": {"code": 5, "reason": "NotFound", "error": f"no such thing: {path}"}}

    def _created(self, text: str) -> Any:
        try:
            loaded = load(text)
        except ConfigError as wrong:
            problems = [problem.to_json() for problem in wrong.problems]
            return 400, {"error": {"code": 3, "error": str(wrong), "problems": problems}}
        told = [*loaded.translated, *loaded.warnings]
        return {"experiment": {**self.experiment, "id": 7}, "config": {}, "warnings": [], "configWarnings": told}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _handle(self) -> None:
        answers: Answers = self.server.answers
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        query = parse_qs(parts.query)
        answers.headers.append(dict(self.headers))
        answers.asked.append((self.command, parts.path, query, body))
        if parts.path.endswith("/logs"):
            self._logs(answers)
            return
        found = answers.answer(self.command, parts.path, query, body)
        status, content = found if isinstance(found, tuple) else (200, found)
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_DELETE = _handle

    def _logs(self, answers: Answers) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        lines = answers.logs.pop(0) if len(answers.logs) > 1 else answers.logs[0]
        for line in lines:
            if line is None:
                self.wfile.flush()
                self.close_connection = True
                return  # no last chunk: the stream is broken
            data = json.dumps({"result": line}).encode() + b"\n"
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


@pytest.fixture
def master() -> Iterator[Answers]:
    answers = Answers()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.answers = answers  # type: ignore[attr-defined]
    answers.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield answers
    server.shutdown()
    server.server_close()
    thread.join()


Det = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A user with a home of their own and no master."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("DET_", "DETHPC_", "SLURM_"))}
    env.update(
        DETHPC_HOME=str(tmp_path / "home"),
        DETHPC_SCHEDULER="local",
        HOME=str(tmp_path),
        PYTHONPATH=str(REPOSITORY),
        TZ="UTC",
        COLUMNS="120",
    )
    return env


@pytest.fixture
def det(environment: dict[str, str], tmp_path: Path) -> Det:
    """Run ``det`` as a process of its own, in a pipe."""

    def run(*words: Any, master: Any = None, input: str | None = None, timeout: float = LONG_ENOUGH) -> Any:
        env = {**environment, "DET_MASTER": master.url} if master is not None else environment
        command = [sys.executable, "-m", "dethpc.cli", *map(str, words)]
        return subprocess.run(
            command, env=env, cwd=tmp_path, capture_output=True, text=True, input=input, timeout=timeout
        )

    return run
