"""An attempt's directory as the node's task process prepares it, a master that takes what it is sent, and real workers."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional
from urllib.parse import parse_qs, urlsplit

import pytest

from dethpc.client import proof
from dethpc.domain.reports import Report
from dethpc.exec import ports
from dethpc.master.http.tls import Tls
from dethpc.rundir.journal import from_line, read
from dethpc.rundir.layout import AttemptDir, RunDir
from tests.waiting import LONG_ENOUGH

TOKEN = f"run:1.3.2:secret-{os.getpid()}"  # other files' tests run beside this one


class FakeMaster:
    """A real HTTP server with the few routes that a node calls. ``answers`` overrides a path; ``events`` are as applied.

    ``tokens`` are all that it was given. Without ``proves`` it is a stranger, who believes everybody. ``tls``: it speaks that.
    ``met`` counts connections."""

    def __init__(self, tls: Optional[Tls] = None) -> None:
        self.events: List[Report] = []
        self.answers: Dict[str, Callable[[Dict[str, Any]], Any]] = {}
        self.asked: List[str] = []
        self.tokens: List[str] = []
        self.proves = True
        self.tls = tls
        self.met = 0
        self.stop: Optional[Dict[str, Any]] = None
        self.ring_after = 0.0
        self.stopped = threading.Event()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                journal = self.headers.get("Content-Type") == "text/plain"
                body = {"lines": content.decode().splitlines()} if journal else json.loads(content or b"{}")
                path = self.path.split("?")[0]
                owner.asked.append(f"{self.command} {self.path}")
                owner.tokens += self.headers.get_all("Authorization") or []
                status, reply = 401, {"error": {"code": 16, "reason": "x", "error": "no token"}}
                if path == proof.PATH and owner.proves and path not in owner.answers:
                    status, reply = 200, {"proof": self.proof()}
                elif self.headers.get("Authorization") == f"Bearer {TOKEN}" or not owner.proves:
                    status, reply = owner.reply(path, body)
                content = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = answer

            def proof(self) -> str:
                asked = parse_qs(urlsplit(self.path).query)
                token = proof.RunToken(TOKEN)
                assert asked["run"] == [token.run] == ["1.3.2"]
                shown = owner.tls.shown if owner.tls else ""
                return proof.proof(token.key, asked["nonce"][0], self.connection.getsockname()[:2], shown)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def finish_request(self, request: Any, address: Any) -> None:
                owner.met += 1
                with contextlib.suppress(OSError):  # a client that goes away
                    if owner.tls:
                        request = owner.tls.context.wrap_socket(request, server_side=True)
                    super().finish_request(request, address)

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def reply(self, path: str, body: Dict[str, Any]) -> Any:
        if path in self.answers:
            return self.answers[path](body)
        if path.endswith("/events"):
            for line in body["lines"]:
                event = from_line(line)
                if event.seq == len(self.events) + 1:
                    self.events.append(event)
            return 200, {"appliedSeq": len(self.events), "stop": self.stop, "ringAfter": self.ring_after}
        if path.endswith("/signals/preemption"):
            self.stopped.wait(LONG_ENOUGH)
            return 200, {"preempt": False}
        return 404, {"error": {"code": 5, "reason": "NotFound", "error": f"no {path}"}}

    def close(self) -> None:
        self.stopped.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class Cluster:
    """One attempt of one run, on one node, with or without a master."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.run = RunDir(root / "runs" / "1.3.2")
        self.attempt: AttemptDir = self.run.attempt(0)
        self.attempt.make()
        self.storage = root / "checkpoints"
        self.master: Optional[FakeMaster] = None
        self.info: Dict[str, Any] = {
            "master_url": None,
            "master_file": str(root / "master.json"),
            "cluster_id": "c1",
            "agent_id": "node1",
            "slot_ids": [0],
            "task_id": "1.3",
            "allocation_id": "1.3.2.0",
            "session_token": TOKEN,
            "task_type": "TRIAL",
            "latest_checkpoint": None,
            "trial": {
                "trial_id": 3,
                "experiment_id": 1,
                "trial_seed": 7,
                "hparams": {"lr": 0.1},
                "config": {"data": {"path": "/d"}, "searcher": {"name": "single", "metric": "loss"}},
                "steps_completed": 0,
                "trial_run_id": 2,
            },
            "rendezvous": {"container_addrs": ["127.0.0.1"], "container_rank": 0, "container_slot_counts": [1]},
            "resources": {"gpu_uuids": []},
            "ports": {"core": []},
            "checkpoint_storage": {"type": "shared_fs", "host_path": str(self.storage)},
        }

    @property
    def info_file(self) -> Path:
        return self.attempt.info(0)

    def enter(self) -> None:
        """Write the info file anew: the next ``get_cluster_info`` reads it."""
        self.info_file.write_text(json.dumps(self.info))
        import dethpc.core._info as module

        module._loaded = (None, None)
        os.environ["DETHPC_INFO"] = str(self.info_file)

    def start_master(self) -> FakeMaster:
        self.master = FakeMaster()
        (self.root / "master.json").write_text(json.dumps({"url": self.master.url}))
        return self.master

    def journal(self, kind: Optional[str] = None) -> List[Report]:
        return [event for event in read(self.attempt.journal)[0] if kind in (None, event.kind)]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("DETHPC_INFO", "")
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # files for TensorBoard
    monkeypatch.setattr(tempfile, "tempdir", None)
    made = Cluster(tmp_path)
    yield made
    if made.master is not None:
        made.master.close()


@pytest.fixture
def off_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a process outside the cluster."""
    monkeypatch.delenv("DETHPC_INFO", raising=False)
    monkeypatch.setenv("DETHPC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


ROOT = Path(__file__).parents[2]

PREAMBLE = """
import os, sys, json, signal, time
from dethpc.core._distributed import DistributedContext
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def say(x): print(json.dumps(x), flush=True)
def ready_together(*ranks):
    # What follows is not decided by how long a process takes to start.
    os.makedirs(os.environ["DETHPC_HOME"], exist_ok=True)
    here = lambda rank: os.path.join(os.environ["DETHPC_HOME"], f"here-{rank}")
    open(here(rank), "w").close()
    while not all(os.path.exists(here(each)) for each in ranks): time.sleep(0.01)
"""


class Workers:
    """Starts ``size`` ranks over ``nodes`` pretended machines and reads what each says."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.started: List[subprocess.Popen[str]] = []
        self._held: List[socket.socket] = []

    def free_port(self) -> int:
        """A port that nobody else gets while the test goes on."""
        self._held += ports.reserve(1)
        return ports.numbers(self._held)[-1]

    def start(
        self, body: str, size: int, *, nodes: int = 1, port: int = 0, **extra: str
    ) -> List[subprocess.Popen[str]]:
        per_node = size // nodes
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("DET", "DETHPC", "MASTER_"))}
        port = port or self.free_port()
        processes = []
        for rank in range(size):
            env = {
                **environment,
                "PYTHONPATH": str(ROOT),
                "DETHPC_HOME": str(self.home),
                "DETHPC_RENDEZVOUS_TIMEOUT": str(LONG_ENOUGH),
                "INTER_TRAIN_PROCESS_COMM_PORT_1": str(port),
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                "LOCAL_RANK": str(rank % per_node),
                "LOCAL_WORLD_SIZE": str(per_node),
                "GROUP_RANK": str(rank // per_node),
                "GROUP_WORLD_SIZE": str(nodes),
                "DET_CHIEF_IP": "127.0.0.1",
                "MASTER_PORT": str(port),
                **extra,
            }
            command = [sys.executable, "-c", PREAMBLE + textwrap.dedent(body)]
            processes.append(
                subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            )
        self.started += processes
        return processes

    def stop(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe:
                    pipe.close()
        for held in self._held:
            held.close()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    group = Workers(tmp_path / "home")
    yield group
    group.stop()


def results(processes: List[subprocess.Popen[str]]) -> List[Any]:
    found = []
    for process in processes:
        out, err = process.communicate(timeout=LONG_ENOUGH)
        assert process.returncode == 0, err
        found.append([json.loads(line) for line in out.splitlines()])
    return found
