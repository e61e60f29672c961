"""What the proxy costs: bytes of a large body and small requests to a server in a trial, beside the same server asked directly.

The server is a process of the trial with threads, which sends zeros from one buffer, so that a peer on loopback is as fast as it
can be. Client, master, relay and server share the processors of one machine: where there are two, four processes take turns on
the way through the proxy and two on the direct one. Memory is the most that master and relay held beyond what they held before,
over one body of 1 GiB.
"""

from __future__ import annotations

import argparse
import functools
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from benchmarks.frame import Figure, Row, alternate, median, ratio, run
from benchmarks.setting import Local, local

SERVER = """
import socket, sys, threading

ZEROS = memoryview(bytes(1 << 20))


def serve(sock):
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head = b""
    while piece := sock.recv(1 << 16):
        head += piece
        if not head.endswith(b"\\r\\n\\r\\n"):
            continue
        size = int(head.split()[1].rpartition(b"/")[2])
        sock.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % size)
        while size:
            size -= sock.send(ZEROS[:size])
        head = b""


with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
MEBI = 1 << 20
_BUFFER = memoryview(bytearray(MEBI))


class Way(NamedTuple):
    """One of the two ways to the server: where to connect, and what each request begins with."""

    sock: socket.socket
    path: str
    fields: str

    def get(self, size: int) -> None:
        """A body of so many bytes."""
        self.sock.sendall(f"GET {self.path}/{size} HTTP/1.1\r\nHost: x\r\n{self.fields}\r\n".encode())
        head = bytearray()
        while b"\r\n\r\n" not in head:
            piece = self.sock.recv(1 << 12)
            if not piece:
                raise ConnectionError(bytes(head))
            head += piece
        if not head.startswith(b"HTTP/1.1 200"):
            raise ConnectionError(bytes(head[:500]))
        rest = size - len(head.partition(b"\r\n\r\n")[2])
        while rest:
            count = self.sock.recv_into(_BUFFER, min(rest, MEBI))
            if not count:
                raise ConnectionError("the body breaks off")
            rest -= count


def connected(host: str, port: int) -> socket.socket:
    sock = socket.create_connection((host, port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


@contextmanager
def ways(at: Local) -> Iterator[tuple[dict[str, Way], int]]:
    """The proxy and the direct way to the server in a trial, and the process of the relay."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    context = at.home / "context"
    context.mkdir()
    (context / "serve.py").write_text(SERVER)
    config = {
        "name": "proxy",
        "entrypoint": f"{sys.executable} serve.py {port}",
        "searcher": {"name": "single", "metric": "loss"},
        "environment": {"proxy_ports": [{"proxy_port": port}]},
    }
    (at.home / "proxy.yaml").write_text(yaml.safe_dump(config))
    experiment = at.det("experiment", "create", "proxy.yaml", "context").split()[-1]
    session = at.session()
    trials = wait_for(lambda: session.get(f"/api/v1/experiments/{experiment}/trials")["trials"])
    direct = Way(wait_for(lambda: connected("127.0.0.1", port)), "", "")
    where = urlsplit(session.url)
    token = (at.home / "token").read_text().strip()
    path, fields = f"/proxy/{trials[0]['taskId']}:{port}", f"Authorization: Bearer {token}\r\n"
    proxy = Way(connected(str(where.hostname), where.port or 80), path, fields)
    relay = int(subprocess.run(["pgrep", "-nf", "dethpc.exec.relay"], capture_output=True, check=True).stdout)
    try:
        yield {"proxy": proxy, "direct": direct}, relay
    finally:
        at.det("experiment", "kill", experiment)


def wait_for(what: Callable[[], object]) -> Any:
    until = time.monotonic() + 120
    while True:
        try:
            if value := what():
                return value
        except OSError:
            if time.monotonic() > until:
                raise
        time.sleep(0.2)


def growth(act: Callable[[], None], *pids: int) -> float:
    """Mebibytes by which these processes were larger than before at most."""
    before, most, over = resident(pids), 0.0, threading.Event()

    def look() -> None:
        nonlocal most
        while not over.wait(0.01):
            most = max(most, resident(pids))

    watching = threading.Thread(target=look)
    watching.start()
    act()
    over.set()
    watching.join()
    return max(0.0, most - before)


def resident(pids: tuple[int, ...]) -> float:
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return sum(int(text.partition("VmRSS:")[2].split()[0]) for text in texts) / 1024


def rows(options: argparse.Namespace) -> Iterator[Row]:
    with local(master={"tls": "off"}) as at, ways(at) as (each, relay):
        for way in each.values():
            wait_for(functools.partial(milliseconds, way))
        rate = {name: lambda way=way: speed(way, 64 * MEBI) for name, way in each.items()}
        rates = alternate(rate, 5 if options.quick else 21, warm=1)
        yield Row(
            "a body of 64 MiB", "MiB/s", median(rates["proxy"]), {"direct": median(rates["direct"])}, 0.5,
            ratio(rates["proxy"], rates["direct"]), ">=", "ratio",
        )  # fmt: skip
        delay = {name: lambda way=way: milliseconds(way) for name, way in each.items()}
        delays = alternate(delay, 100 if options.quick else 500, warm=10)
        added = [one - other for one, other in zip(delays["proxy"], delays["direct"], strict=True)]
        yield Row("added to a small request", "ms", median(added), {"direct": median(delays["direct"])}, 3)
        more = growth(lambda: each["proxy"].get(1024 * MEBI), at.pid, relay)
        yield Row("memory beyond before, over 1 GiB", "MiB", Figure(more), {}, 16)


def speed(way: Way, size: int) -> float:
    """Mebibytes per second."""
    begin = time.perf_counter()
    way.get(size)
    return size / MEBI / (time.perf_counter() - begin)


def milliseconds(way: Way) -> float:
    begin = time.perf_counter()
    way.get(64)
    return (time.perf_counter() - begin) * 1e3


if __name__ == "__main__":
    run(__doc__, rows)
