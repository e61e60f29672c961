"""Processes that report to a master, or to a peer: what ``metrics_in`` and ``load`` start beside it. Each prints a line of JSON.

``flood``: each run writes its journal and rings with as many lines as it has, again as soon as it is answered.
``paced``: each run has the reporter of the Core API and reports so many times a second, as training code does.
``look``: some clients list and describe, some follow logs, some wait to be told to stop.
``post``: each client posts one report after the other, as a script outside the cluster does; ``echo`` sends the same to any server.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from dethpc.client.session import Session
from dethpc.core._reporter import Reporter
from dethpc.domain.ids import AttemptId
from dethpc.domain.reports import Report, ReportKind
from dethpc.rundir import logline
from dethpc.rundir.home import Home
from dethpc.rundir.journal import to_line

LONGEST = 60.0
"""Seconds that a client waits for an answer: what takes longer is lost."""


class Connection:
    """HTTP/1.1 on one kept connection, for little processor time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
        self._reader, self._writer, self._token = reader, writer, token

    @classmethod
    async def to(cls, url: str, token: str) -> Connection:
        return cls(*await asyncio.open_connection(*_address(url), limit=1 << 24), token)

    async def ask(self, method: str, path: str, body: bytes = b"", kind: str = "application/json") -> Any:
        """Raises RuntimeError when the answer is no success."""
        head = f"{method} {path} HTTP/1.1\r\nHost: master\r\nAuthorization: Bearer {self._token}\r\n"
        self._writer.write(f"{head}Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(answer.partition(b"content-length: ")[2].split(b"\r", 1)[0])
        content = await self._reader.readexactly(length)
        if b" 200 " not in answer[:15]:
            raise RuntimeError(f"{method} {path}: {content[:200]!r}")
        return json.loads(content) if content else None

    def close(self) -> None:
        self._writer.close()


def values(step: int, count: int) -> dict[str, float]:
    return {f"metric{n}": 0.731 + step * 1e-4 + n for n in range(count)}


async def flood(
    url: str, token: str, home: Home, runs: list[str], seconds: float, batch: int, count: int
) -> dict[str, Any]:
    """Goes on after a run's last report: one may be flooded several times."""
    done = 0
    spent: list[float] = []
    until = time.monotonic() + seconds

    async def one(run: str) -> None:
        nonlocal done
        connection = await Connection.to(url, token)
        path = home.run(run).attempt(0).journal
        seq = path.read_bytes().count(b"\n") if path.exists() else 0
        journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        while time.monotonic() < until:
            lines = _lines(seq, batch, count)
            begun = time.monotonic()
            os.write(journal, lines)
            answer = await connection.ask("POST", f"/api/v1/runs/{run}/attempts/0/events", lines, "text/plain")
            seq += batch
            assert answer["appliedSeq"] == seq, (run, answer, seq)
            done += batch
            spent.append(time.monotonic() - begun)
        os.close(journal)
        connection.close()

    began = time.monotonic()
    await asyncio.gather(*map(one, runs))
    return {"reports": done, "values": done * count, "seconds": time.monotonic() - began, "spent": spent}


_made: dict[tuple[int, int, int], bytes] = {}


def _lines(seq: int, batch: int, count: int) -> bytes:
    """The same for all runs: what making them costs is not what is measured."""
    key = seq, batch, count
    if key not in _made:
        reports = (
            Report(n, time.time(), "metrics", {"group": "training", "steps_completed": n, "metrics": values(n, count)})
            for n in range(seq + 1, seq + batch + 1)
        )
        _made[key] = "".join(f"{to_line(report)}\n" for report in reports).encode()
    return _made[key]


def paced(url: str, token: str, home: Home, runs: list[str], seconds: float, rate: float, count: int) -> dict[str, Any]:
    threading.stack_size(1 << 18)
    session = Session(url, token)
    reporters = []
    for run in runs:
        journal = home.run(run).attempt(0).journal
        reporter = Reporter(journal, session, AttemptId(run, 0), lambda reason: None, lambda: None)
        reporter.start()
        reporters.append(reporter)
    step, late, pause = 0, 0.0, 1 / rate / len(runs)
    next_at = began = time.monotonic()
    while next_at < began + seconds:
        step += 1
        metrics = {"group": "training", "steps_completed": step, "metrics": values(step, count)}
        for reporter in reporters:
            reporter.report(ReportKind.METRICS, metrics)
            next_at += pause
            if (left := next_at - time.monotonic()) > 0.005:
                time.sleep(left)
            late = max(late, -left)
    took = time.monotonic() - began
    leaving = [
        threading.Thread(target=reporter.close) for reporter in reporters
    ]  # each waits some seconds for the master
    for thread in leaving:
        thread.start()
    for thread in leaving:
        thread.join()
    return {"reports": step * len(runs), "seconds": took, "late": late}


async def post(url: str, token: str, clients: int, seconds: float, count: int, echo: bool) -> dict[str, Any]:
    spent: list[float] = []
    trials = [(1, 1)] * clients if echo else await _begun(await Connection.to(url, token), clients)

    async def one(trial: int, run: int) -> None:
        step, connection = 0, await Connection.to(url, token)
        while time.monotonic() < until:
            step += 1
            report = {"metrics": {"avgMetrics": values(step, count)}, "stepsCompleted": step, "trialRunId": run}
            body = json.dumps({"group": "training", "metrics": {**report, "trialId": trial}}).encode()
            begun = time.monotonic()
            await connection.ask("POST", f"/api/v1/trials/{trial}/metrics", body)
            spent.append(time.monotonic() - begun)

    print("ready", flush=True)
    began = time.monotonic()
    until = began + seconds
    await asyncio.gather(*(one(*trial) for trial in trials))
    return {"reports": len(spent), "seconds": time.monotonic() - began, "spent": spent}


async def look(url: str, token: str, home: Home, runs: list[str], seconds: float, clients: int) -> dict[str, Any]:
    """Two clients in five list, one looks at trials, one follows logs and one waits for a signal. A second between two lists."""
    looking = _Looking(url, token, home, runs, time.monotonic() + seconds)
    kinds = [looking.list, looking.list, looking.describe, looking.follow, looking.wait]
    await asyncio.gather(*(kinds[n % 5](n) for n in range(clients)))
    return {"asked": looking.asked, "failed": looking.failed}


class _Looking:
    """``asked``: what was asked for, and how many seconds each answer took; ``failed``: why there was none."""

    def __init__(self, url: str, token: str, home: Home, runs: list[str], until: float) -> None:
        self._url, self._token, self._home, self._runs, self._until = url, token, home, runs, until
        self.asked: dict[str, list[float]] = {}
        self.failed: list[str] = []

    async def list(self, n: int) -> None:
        pages = {"experiments": "/api/v1/experiments?limit=100", "trials": "/api/v1/experiments/1/trials?limit=100"}
        await self._again(n, pages)

    async def describe(self, n: int) -> None:
        await self._again(n, {"a trial": f"/api/v1/trials/{self._trial(n)}"})

    async def _again(self, n: int, pages: dict[str, str]) -> None:
        connection = await Connection.to(self._url, self._token)
        await asyncio.sleep(n / 50)
        while time.monotonic() < self._until:
            for name, path in pages.items():
                connection = await self._ask(connection, name, path)
            await asyncio.sleep(1)

    async def wait(self, n: int) -> None:
        connection = await Connection.to(self._url, self._token)
        path = f"/api/v1/allocations/{self._runs[n % len(self._runs)]}.0/signals/preemption?timeoutSeconds=10"
        while time.monotonic() < self._until - 10:
            connection = await self._ask(connection, "a long poll beyond its 10 s", path, expected=10)

    async def _ask(self, connection: Connection, name: str, path: str, expected: float = 0.0) -> Connection:
        """The connection for the next request. A server may close one on which nothing came for a while: as every client, it asks
        once more on a new one when a kept one ends before any of the answer."""
        begun = time.monotonic()
        for last in (False, True):
            try:
                await asyncio.wait_for(connection.ask("GET", path), LONGEST + expected)
            except asyncio.IncompleteReadError as cut:
                connection = await self._again_to(connection)
                if last or cut.partial:
                    self.failed.append(f"{path}: the answer was cut off")
                    break
            except ConnectionError as error:
                connection = await self._again_to(connection)
                if last:
                    self.failed.append(f"{path}: {error}")
            except (RuntimeError, OSError, asyncio.TimeoutError) as error:
                self.failed.append(f"{path}: {error or 'no answer'}")
                connection = await self._again_to(connection)
                break
            else:
                self.asked.setdefault(name, []).append(time.monotonic() - begun - expected)
                break
        return connection

    async def _again_to(self, connection: Connection) -> Connection:
        connection.close()
        return await Connection.to(self._url, self._token)

    async def follow(self, n: int) -> None:
        """The log of one run, to which this writes a line a second itself: how long until it comes back."""
        log = self._home.run(self._runs[n % len(self._runs)]).attempt(0).log(0)
        reader, writer = await asyncio.open_connection(*_address(self._url), limit=1 << 24)
        path, count = f"/api/v1/trials/{self._trial(n)}/logs?follow=true", 0
        writer.write(f"GET {path} HTTP/1.1\r\nHost: master\r\nAuthorization: Bearer {self._token}\r\n\r\n".encode())
        status = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in status[:15]:
            self.failed.append(f"{path}: {status[:100]!r}")
        while time.monotonic() < self._until - 5:
            count += 1
            mark, begun = f"mark {count} of client {n}", time.monotonic()
            with open(log, "a") as file:
                file.write(logline.format(logline.LogLine(time.time(), "INFO", 0, "stdout", mark)))
            try:
                await asyncio.wait_for(_until(reader, mark.encode()), LONGEST)
            except (asyncio.TimeoutError, asyncio.IncompleteReadError, OSError) as error:
                self.failed.append(f"{path}: {mark} did not come ({type(error).__name__})")
                break
            self.asked.setdefault("a line that is followed", []).append(time.monotonic() - begun)
            await asyncio.sleep(1)
        writer.close()

    def _trial(self, n: int) -> str:
        return self._runs[n % len(self._runs)].split(".")[1]


async def _until(reader: asyncio.StreamReader, mark: bytes) -> None:
    seen = b""
    while mark not in seen:
        more = await reader.read(1 << 16)
        if not more:
            raise asyncio.IncompleteReadError(seen[-100:], None)
        seen = seen[-200:] + more


def _address(url: str) -> tuple[str, int]:
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    return host, int(port)


async def _begun(connection: Connection, clients: int) -> list[tuple[int, int]]:
    """Trials that run elsewhere, and the numbers of their runs: one for each client. Made on one connection: on a slow disk that
    takes longer than a master waits for those that have said nothing yet."""
    config = {"config": "name: outside\nsearcher: {name: custom, metric: loss}\n", "unmanaged": True}
    made = await connection.ask("PUT", "/api/v1/experiments/by-external-id/1", json.dumps(config).encode())
    new = {"experimentId": made["experiment"]["id"], "hparams": {}, "unmanaged": True}
    found = []
    for n in range(clients):
        body = {"createTrialRequest": new, "externalTrialId": str(n)}
        trial = (await connection.ask("PUT", "/api/v1/trials", json.dumps(body).encode()))["trial"]["id"]
        start = json.dumps({"trialId": trial, "resume": False}).encode()
        begun = await connection.ask("POST", f"/api/v1/trials/{trial}/start", start)
        found.append((trial, begun["trialRunId"]))
    return found


def main() -> None:
    job = json.loads(sys.stdin.readline())
    kind, cpu = job.pop("kind"), time.process_time()
    if "home" in job:
        job["home"] = Home(Path(job["home"]))
    acts: dict[str, Callable[..., Any]] = {"flood": flood, "paced": paced, "look": look, "post": post}
    found = acts[kind](**job)
    result = asyncio.run(found) if isinstance(found, Coroutine) else found
    print(json.dumps({**result, "cpu": time.process_time() - cpu}), flush=True)


if __name__ == "__main__":
    main()
