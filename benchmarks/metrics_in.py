"""Reports of metrics, from HTTP into SQLite, durable: as many as go in, what a pace of training costs, and what one report costs.

A real master in a process of its own; only its scheduler is not real, and nothing trains. Flat out, 50 trials write their journals
and ring, each again as soon as it hears that all it wrote is committed; raw sqlite3 writes the same rows alone, one transaction for
as many lines as one ring has. At a pace, 500 trials have the reporter of the Core API each, ten reports of four values a second,
in two processes. Posted one by one over REST, 50 clients at a time, beside a bare ASGI application on the same server that takes
the same bodies and throws them away, and where they are installed (here, or with ``--peers PYTHON`` in that one) beside MLflow's
server (one worker, SQLite) and the storages of Optuna, which take one value at a time in the process itself. Processor time is the
master's own: a busy machine moves the clock several times as much.
"""

from __future__ import annotations

import argparse
import json
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.frame import Figure, Row, alternate, cpu_of, median, ratio, run
from benchmarks.reporting_clients import values
from benchmarks.reporting_trials import Clients, Master, master
from benchmarks.setting import ROOT

FLOODED, BATCH, VALUES = 50, 100, 4
PACED, RATE = 500, 10.0
POSTING = 50

ECHO = """
import sys, uvicorn
async def echo(scope, receive, send):
    more = True
    while more:
        message = await receive()
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"{}"})
uvicorn.run(echo, host="127.0.0.1", port=int(sys.argv[1]), http="h11", log_level="error", lifespan="off", access_log=False)
"""

OPTUNA = """
import sys, time, optuna
from optuna.storages import JournalStorage, RDBStorage
optuna.logging.set_verbosity(optuna.logging.ERROR)
folder, seconds = sys.argv[1], float(sys.argv[2])
def storage(kind):
    if kind == "rdb":
        return RDBStorage(f"sqlite:///{folder}/optuna.db")
    from optuna.storages.journal import JournalFileBackend
    return JournalStorage(JournalFileBackend(f"{folder}/optuna.log"))
for kind in ("rdb", "journal"):
    kept = storage(kind)
    study = optuna.create_study(storage=kept)
    trial = study.ask()
    busy, until, step = time.process_time(), time.monotonic() + seconds, 0
    while time.monotonic() < until:
        step += 1
        kept.set_trial_intermediate_value(trial._trial_id, step, 0.731)
    print(kind, (time.process_time() - busy) / step * 1e3)
"""

MLFLOW = """
import sys, time, json, threading, http.client, resource
port, clients, seconds, count = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
def ask(connection, path, body):
    connection.request("POST", "/api/2.0/mlflow/" + path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise RuntimeError(content[:200])
    return json.loads(content)
done = []
def client():
    connection = http.client.HTTPConnection("127.0.0.1", port)
    run = ask(connection, "runs/create", {"experiment_id": "0", "start_time": 0})["run"]["info"]["run_id"]
    ready.wait()
    step = 0
    while time.monotonic() < until[0]:
        step += 1
        metrics = [{"key": f"metric{n}", "value": 0.7 + n, "timestamp": 0, "step": step} for n in range(count)]
        ask(connection, "runs/log-batch", {"run_id": run, "metrics": metrics})
        done.append(1)
ready, until = threading.Barrier(clients + 1), [float("inf")]
threads = [threading.Thread(target=client) for _ in range(clients)]
for thread in threads: thread.start()
ready.wait()
print("ready", flush=True)
until[0] = time.monotonic() + seconds
for thread in threads: thread.join()
print(len(done), flush=True)
"""


def rows(options: argparse.Namespace) -> Iterator[Row]:
    seconds, rounds = (1.5, 1) if options.quick else (8.0, 5)
    with master(FLOODED) as ours:
        yield from flat_out(ours, seconds, rounds)
    with master(PACED) as ours:
        yield at_a_pace(ours, 6.0 if options.quick else 60.0)
    yield from one_by_one(options, seconds, rounds)


# --- flat out


def flat_out(ours: Master, seconds: float, rounds: int) -> Iterator[Row]:
    clients = Clients(ours)

    def flood() -> tuple[float, float]:
        busy = ours.cpu()
        found = clients.run("flood", url=ours.url, runs=ours.runs, seconds=seconds, batch=BATCH, count=VALUES)
        return found["values"] / found["seconds"], (ours.cpu() - busy) / found["values"] * 1e6

    with tempfile.TemporaryDirectory() as folder:
        ways = {
            "ours": flood,
            "raw sqlite3": lambda: raw(Path(folder, f"{time.monotonic_ns()}.db"), seconds),
        }
        found = alternate(ways, rounds)
    rates = {name: [rate for rate, _ in each] for name, each in found.items()}
    costs = {name: [cost for _, cost in each] for name, each in found.items()}
    peers = {"raw sqlite3": median(rates["raw sqlite3"])}
    of = ratio(rates["ours"], rates["raw sqlite3"])
    yield Row(f"{FLOODED} trials flat out", "values a second", median(rates["ours"]), peers, 50_000, of, ">=")
    peers = {"raw sqlite3": median(costs["raw sqlite3"])}
    of = ratio(costs["ours"], costs["raw sqlite3"])
    yield Row("a value flat out", "µs of the master's processor time", median(costs["ours"]), peers, 20, of)


def raw(path: Path, seconds: float) -> tuple[float, float]:
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    columns = "id INTEGER PRIMARY KEY, run_id, k, seq, experiment_id, trial_id, grp, steps, at, metrics"
    database.execute(f"CREATE TABLE metrics ({columns}, UNIQUE (run_id, k, seq))")
    database.execute("CREATE INDEX by_trial ON metrics (trial_id, grp, steps)")
    busy, began, step = time.process_time(), time.monotonic(), 0
    while time.monotonic() < began + seconds:
        group = [
            ("1.1.1", 0, n, 1, 1, "training", n, 1.7e9, json.dumps(values(n, VALUES)))
            for n in range(step + 1, step + BATCH + 1)
        ]
        with database:
            database.executemany("INSERT INTO metrics VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)", group)
        step += BATCH
    database.close()
    return step * VALUES / (time.monotonic() - began), (time.process_time() - busy) / step / VALUES * 1e6


# --- at a pace


def at_a_pace(ours: Master, seconds: float) -> Row:
    clients = Clients(ours)
    halves = [ours.runs[0::2], ours.runs[1::2]]
    job = {"url": ours.url, "rate": RATE, "count": VALUES}
    begun = [clients.start("paced", runs=half, seconds=seconds + 6, **job) for half in halves]
    time.sleep(5)
    busy, began, samples = ours.cpu(), time.monotonic(), []
    while time.monotonic() < began + seconds:
        before, at = ours.cpu(), time.monotonic()
        time.sleep(2)
        samples.append((ours.cpu() - before) / (time.monotonic() - at))
    cores = (ours.cpu() - busy) / (time.monotonic() - began)
    found = [clients.result(each) for each in begun]
    reports = sum(each["reports"] / each["seconds"] for each in found)
    applied = sum(ours.counted())
    lost = sum(each["reports"] for each in found) - applied
    told = f"{reports:,.0f} reports a second, {lost} of {applied:,} lost, {cores / reports * 1e6:.0f} µs each"
    return Row(
        f"{PACED} trials, {RATE:.0f} reports a second each",
        "cores of the master",
        median(samples),
        limit=0.5,
        note=told,
    )


# --- one by one


def one_by_one(options: argparse.Namespace, seconds: float, rounds: int) -> Iterator[Row]:
    spent: list[dict[str, Any]] = []
    with echo() as (url, pid), master(0) as ours:
        clients = Clients(ours)

        def post(url: str, cpu: Callable[[], float], echo: bool) -> float:
            process = clients.start("post", url=url, clients=POSTING, seconds=seconds, count=VALUES, echo=echo)
            clients.ready(process)
            busy = cpu()
            found = clients.result(process)
            if not echo:
                spent.append(found)
            return (cpu() - busy) / int(found["reports"]) * 1e3

        ways = {
            "ours": lambda: post(ours.url, ours.cpu, False),
            "a bare ASGI application": lambda: post(url, lambda: cpu_of(pid), True),
        }
        found = alternate(ways, rounds)
    peers = {name: median(each) for name, each in found.items() if name != "ours"}
    peers.update(installed_peers(options.peers, seconds))
    rate = median([each["reports"] / each["seconds"] for each in spent])
    of = ratio(found["ours"], found["a bare ASGI application"])
    name, note = f"a report of {VALUES} values over REST", f"{rate} a second from {POSTING} clients"
    yield Row(name, "ms of processor time", median(found["ours"]), peers, 5, of, note=note)


def installed_peers(python: str, seconds: float) -> dict[str, Figure]:
    """Milliseconds of processor time of one report."""
    found: dict[str, Figure] = {}
    with tempfile.TemporaryDirectory() as folder:
        if has(python, "optuna"):
            out = subprocess.run(
                [python, "-c", OPTUNA, folder, str(seconds)], capture_output=True, text=True, check=True
            )
            for kind, cost in (line.split() for line in out.stdout.splitlines()):
                found[f"Optuna's {kind} storage, one value"] = Figure(float(cost))
        if has(python, "mlflow"):
            found["MLflow's server"] = Figure(mlflow(python, folder, seconds))
    return found


@contextmanager
def mlflow_server(python: str, folder: str) -> Iterator[tuple[int, int]]:
    """Its process and its port."""
    port = free_port()
    words = ["-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--host", "127.0.0.1"]
    words += ["--port", str(port), "--workers", "1", "--default-artifact-root", folder]
    server = subprocess.Popen(
        [python, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        wait_for(port, 120)
        yield server.pid, port
    finally:
        for pid in reversed(tree(server.pid)):
            subprocess.run(["kill", str(pid)], check=False)
        server.wait()


def mlflow(python: str, folder: str, seconds: float) -> float:
    with mlflow_server(python, folder) as (pid, port):
        asking = [python, "-c", MLFLOW, str(port), "10", str(seconds), str(VALUES)]
        client = subprocess.Popen(asking, stdout=subprocess.PIPE, text=True)
        assert client.stdout is not None
        client.stdout.readline()
        busy = cpu_of_tree(pid)
        reports = int(client.communicate()[0])
        return (cpu_of_tree(pid) - busy) / reports * 1e3


def tree(pid: int) -> list[int]:
    """A process and all that it has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in tree(int(child)))]


def cpu_of_tree(pid: int) -> float:
    return sum(map(cpu_of, tree(pid)))


def has(python: str, name: str) -> bool:
    return subprocess.run([python, "-c", f"import {name}"], capture_output=True, check=False).returncode == 0


@contextmanager
def echo() -> Iterator[tuple[str, int]]:
    """The address of a bare ASGI application, and its process."""
    port = free_port()
    server = subprocess.Popen([sys.executable, "-c", ECHO, str(port)], cwd=ROOT)
    try:
        wait_for(port, 30)
        yield f"http://127.0.0.1:{port}", server.pid
    finally:
        server.terminate()
        server.wait()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_for(port: int, seconds: float) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--peers", metavar="PYTHON", default=sys.executable, help="a Python with mlflow and optuna")


if __name__ == "__main__":
    run(__doc__, rows, arguments)
