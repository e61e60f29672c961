"""What a report costs the training loop that makes it, with 1,000 metrics in it and with few.

python benchmarks/reporting.py [METRICS ...]

As on the cluster: into an attempt's journal, with a master that takes the reports, and event files for TensorBoard. Time between
two reports is some work of 5 ms, as in a training. Both the clock and the processor time of the loop's own thread are told: the
first also has what other work on the machine takes.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

STEPS, ROUNDS = 40, 12


MASTER = """
import json, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Master(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        lines = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["lines"]
        self.answer({"appliedSeq": int(lines[-1].split()[0]) if lines else 0, "stop": None})
    def do_GET(self):
        threading.Event().wait(60)
        self.answer({"preempt": False})
    def answer(self, reply):
        content = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Master)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()
"""  # says that all has been applied


def attempt(folder: Path, url: str | None) -> None:
    """Makes this process the only worker of an attempt whose directory is in ``folder``."""
    place = folder / "runs" / "1.1.1" / "attempts" / "0"
    place.mkdir(parents=True)
    (folder / "master.json").write_text(json.dumps({"url": url}))
    searcher = {"name": "single", "metric": "loss"}
    info = {
        "master_url": url,
        "master_file": str(folder / "master.json"),
        "cluster_id": "c1",
        "agent_id": "node1",
        "slot_ids": [0],
        "task_id": "1.1",
        "allocation_id": "1.1.1.0",
        "session_token": "token",
        "task_type": "TRIAL",
        "latest_checkpoint": None,
        "trial": {
            "trial_id": 1,
            "experiment_id": 1,
            "trial_seed": 1,
            "hparams": {},
            "config": {"searcher": searcher},
            "steps_completed": 0,
            "trial_run_id": 1,
        },
        "rendezvous": {"container_addrs": ["127.0.0.1"], "container_rank": 0, "container_slot_counts": [1]},
        "resources": {"gpu_uuids": []},
        "ports": {"core": []},
        "checkpoint_storage": {"type": "shared_fs", "host_path": str(folder / "checkpoints")},
    }
    (place / "info-0.json").write_text(json.dumps(info))
    os.environ["DETHPC_INFO"] = str(place / "info-0.json")
    os.environ["TMPDIR"] = str(folder)


def main() -> None:
    counts = [int(word) for word in sys.argv[1:]] or [1000, 10]
    master = subprocess.Popen([sys.executable, "-c", MASTER], stdout=subprocess.PIPE, text=True)
    assert master.stdout is not None
    try:
        with tempfile.TemporaryDirectory() as folder:
            attempt(Path(folder), f"http://127.0.0.1:{int(master.stdout.readline())}")
            from dethpc import core

            with core.init() as context:
                for count in counts:
                    measure(context, count)
    finally:
        master.kill()
        master.wait()


def measure(context: Any, count: int) -> None:
    generator, step = random.Random(1), 0
    times: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        for _ in range(STEPS):
            work()
            step += 1
            metrics = {f"layer.{n}.gradient_norm": generator.random() for n in range(count)}
            begin = time.perf_counter(), time.thread_time()
            context.train.report_training_metrics(step, metrics)
            times.append((time.perf_counter() - begin[0], time.thread_time() - begin[1]))
    wall, cpu = zip(*times)
    print(
        f"{count:5} metrics: {statistics.median(wall) * 1e3:.3f} ms a report (mean {statistics.mean(wall) * 1e3:.3f},"
        f" 99 % below {statistics.quantiles(wall, n=100)[-1] * 1e3:.3f}); processor time of the loop"
        f" {statistics.median(cpu) * 1e3:.3f} ms (mean {statistics.mean(cpu) * 1e3:.3f})",
        flush=True,
    )


def work() -> None:
    """5 ms of processor time without the interpreter's lock for the most part, as of a framework."""
    import zlib

    until = time.thread_time() + 0.005
    while time.thread_time() < until:
        zlib.crc32(_DATA)


_DATA = bytes(200_000)

if __name__ == "__main__":
    main()
