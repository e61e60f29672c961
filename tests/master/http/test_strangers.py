"""Clients without a token cost the master little memory, and do not keep others from it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import resource
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from dethpc.client import Session
from dethpc.client.address import OwnerToken
from dethpc.client.nouns import users
from dethpc.errors import Refused
from dethpc.master.http import limits, middleware
from dethpc.master.http.limits import (
    MOST_HEADER_BYTES,
    MOST_HEADER_LINES,
    MOST_UNAUTHENTICATED,
    Client,
    Connections,
)
from dethpc.master.http.peer import Peers, own
from dethpc.master.http.preemptions import Preemptions
from dethpc.master.http.server import Server
from tests.master.conftest import Running, Served
from tests.waiting import LONG_ENOUGH, wait_until

MOST_MEMORY = 20 << 10
"""kB by which a stranger may move a master's memory."""

LOGIN = "/api/v1/auth/login"


# --- a master in a process of its own, whose memory can be measured


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    made = Running(tmp_path_factory.mktemp("strangers") / "home")
    session = as_owner(made)
    users.change(session, 1, password="Correct-horse-1")
    session.close()
    log_in(made.url, made.owner, "Correct-horse-1")
    yield made
    made.stop()


def as_owner(master: Running) -> Session:
    return Session(master.url, OwnerToken(master.token), timeout=LONG_ENOUGH)


def log_in(url: str, user: str, password: str) -> int:
    connection = http.client.HTTPConnection(url.partition("//")[2], timeout=LONG_ENOUGH)
    try:
        body = json.dumps({"username": user, "password": password, "isHashed": False})
        connection.request("POST", LOGIN, body)
        return connection.getresponse().status
    finally:
        connection.close()


def memory(master: Running, key: str) -> int:
    found = re.search(rf"{key}:\s+(\d+) kB", Path(f"/proc/{master.process.pid}/status").read_text())
    assert found is not None
    return int(found[1])


def heartbeat(master: Running) -> float:
    return float(json.loads((master.home / "master.json").read_text())["heartbeat"])


def open_to(url: str) -> socket.socket:
    host, port = url.partition("//")[2].split(":")
    return socket.create_connection((host, int(port)), timeout=LONG_ENOUGH)


def send(master: Running, head: bytes, body: bytes = b"", times: int = 1) -> socket.socket:
    """All of it, or as much as the master takes."""
    sock = open_to(master.url)
    try:
        sock.sendall(head)
        for _ in range(times):
            sock.sendall(body)
    except OSError:
        pass
    return sock


def large_bodies(master: Running) -> list[socket.socket]:
    megabyte = b"x" * (1 << 20)
    head = f"POST {LOGIN} HTTP/1.1\r\nHost: x\r\n"
    said = f"{head}Content-Length: {200 << 20}\r\n\r\n".encode()
    unsaid = f"{head}Transfer-Encoding: chunked\r\n\r\n".encode()
    with ThreadPoolExecutor(4) as threads:
        sent = [threads.submit(send, master, said, megabyte, 200) for _ in range(2)]
        sent += [threads.submit(send, master, unsaid, b"100000\r\n" + megabyte + b"\r\n", 200) for _ in range(2)]
        return [one.result() for one in sent]


def bodies_that_do_not_end(master: Running) -> list[socket.socket]:
    head = f"POST {LOGIN} HTTP/1.1\r\nHost: x\r\nContent-Length: {middleware.MOST_PUBLIC}\r\n\r\n"
    return [send(master, head.encode(), b"x" * (middleware.MOST_PUBLIC - 1)) for _ in range(200)]


def headers_of_many_lines(master: Running) -> list[socket.socket]:
    """In a header no longer than it may be, which would be kept while the body does not end."""
    head = f"POST {LOGIN} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n".encode()
    lines = b"a:\r\n" * ((MOST_HEADER_BYTES - len(head)) // 4 - 1)
    return [send(master, head + lines + b"\r\n") for _ in range(100)]


def half_headers(master: Running) -> list[socket.socket]:
    return [send(master, b"GET / HTTP/1.1\r\nHos") for _ in range(1100)]


def answers_that_nobody_reads(master: Running) -> list[socket.socket]:
    return [send(master, b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 10) for _ in range(200)]


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize(
    "attack",
    [large_bodies, bodies_that_do_not_end, headers_of_many_lines, half_headers, answers_that_nobody_reads],
    ids=lambda attack: attack.__name__,
)
def test_strangers_move_the_masters_memory_little_and_do_not_keep_its_owner_waiting(
    master: Running, attack: Callable[[Running], list[socket.socket]]
) -> None:
    with closing(as_owner(master)) as first:
        first.raw("/openapi.json")  # which is made once, whoever asks first
    Path(f"/proc/{master.process.pid}/clear_refs").write_text("5")  # VmHWM begins anew
    before = memory(master, "VmHWM")
    sockets = attack(master)
    session = as_owner(master)
    assert users.me(session)["username"] == master.owner
    files = len(os.listdir(f"/proc/{master.process.pid}/fd"))
    assert memory(master, "VmHWM") - before < MOST_MEMORY
    assert files < MOST_UNAUTHENTICATED + 100
    for sock in sockets:
        sock.close()
    session.close()


# --- and one that speaks TLS


@pytest.fixture(scope="module")
def tls_master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("tls") / "home"
    home.mkdir()
    (home / "site.yaml").write_text("master: {tls: on}\n")
    made = Running(home)
    yield made
    made.stop()


def handshakes_that_do_not_end(master: Running) -> list[socket.socket]:
    def begin() -> socket.socket:
        wire = ssl.MemoryBIO()
        with contextlib.suppress(ssl.SSLWantReadError):
            TRUSTS_ANYBODY.wrap_bio(ssl.MemoryBIO(), wire).do_handshake()
        return send(master, wire.read())

    return [begin() for _ in range(1100)]


def bodies_over_tls_that_do_not_end(master: Running) -> list[socket.socket]:
    head = f"POST {LOGIN} HTTP/1.1\r\nHost: x\r\nContent-Length: {middleware.MOST_PUBLIC}\r\n\r\n".encode()
    sent: list[socket.socket] = []
    for _ in range(100):
        with contextlib.suppress(OSError):  # the master may have no room for it
            sent.append(TRUSTS_ANYBODY.wrap_socket(open_to(master.url)))
            sent[-1].sendall(head + b"x" * (middleware.MOST_PUBLIC - 1))
    return sent


TRUSTS_ANYBODY = ssl.create_default_context()
TRUSTS_ANYBODY.check_hostname, TRUSTS_ANYBODY.verify_mode = False, ssl.CERT_NONE


@pytest.mark.usefixtures("many_files")
def test_strangers_move_the_memory_of_a_master_that_speaks_tls_as_little(
    tls_master: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_MASTER_CERT_FILE", "noverify")
    session = as_owner(tls_master)
    users.me(session)
    Path(f"/proc/{tls_master.process.pid}/clear_refs").write_text("5")
    before = memory(tls_master, "VmHWM")
    sockets = handshakes_that_do_not_end(tls_master) + bodies_over_tls_that_do_not_end(tls_master)
    assert len(sockets) > 1100, "some came in"
    session.close()
    assert users.me(session)["username"] == tls_master.owner
    assert memory(tls_master, "VmHWM") - before < MOST_MEMORY
    for sock in sockets:
        sock.close()
    session.close()


def test_a_flood_of_logins_moves_the_masters_memory_little_and_keeps_its_owner_from_nothing(master: Running) -> None:
    Path(f"/proc/{master.process.pid}/clear_refs").write_text("5")
    before, over, answers = memory(master, "VmHWM"), threading.Event(), []

    def guess(number: int) -> None:
        guesses = 0
        while not over.is_set():
            guesses += 1
            with contextlib.suppress(ConnectionError):  # when all places are taken, the slowest is closed
                answers.append(log_in(master.url, f"{number}.{guesses}", "x"))

    with ThreadPoolExecutor(50) as threads:
        flood = [threads.submit(guess, number) for number in range(50)]
        try:
            session = as_owner(master)
            for _ in range(5):
                users.me(session)
            assert log_in(master.url, master.owner, master.token) == 200, "by the token file, one logs in at once"
            wait_until(lambda: log_in(master.url, master.owner, "Correct-horse-1") == 200)
            wait_until(lambda: {401, 429} <= set(answers))
            beats = heartbeat(master)
            wait_until(lambda: heartbeat(master) != beats)  # no other host takes this master for dead
        finally:
            over.set()
        for one in flood:
            one.result()
    assert set(answers) == {401, 429}
    assert memory(master, "VmHWM") - before < MOST_MEMORY


# --- what one connection may do


def test_a_body_without_a_token_is_refused_by_its_length_before_it_is_sent(served: Served) -> None:
    for length in (middleware.MOST_PUBLIC + 1, 10**15):
        with open_to(served.url) as sock:
            sock.sendall(f"POST {LOGIN} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode())
            assert b" 413 " in sock.recv(100)


def test_a_body_without_a_token_whose_length_is_unsaid_is_refused_once_it_is_too_long(served: Served) -> None:
    with open_to(served.url) as sock:
        sock.sendall(f"POST {LOGIN} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        sock.sendall(b"8000\r\n" + b" " * 0x8000 + b"\r\n")
        sock.sendall(b"8001\r\n" + b" " * 0x8001 + b"\r\n")
        assert b" 413 " in sock.recv(100)


def test_a_larger_body_is_read_with_a_token(served: Served) -> None:
    with pytest.raises(Refused, match="lifespan"):
        served.session.post("/api/v1/tokens", {"lifespan": "x" * 2 * middleware.MOST_PUBLIC})


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET /info HT", f"POST {LOGIN} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{{".encode()],
    ids=["silent", "half a header", "half a body"],
)
def test_a_request_that_does_not_end_is_closed(served: Served, monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setattr(limits, "PATIENCE", 0.1)
    with open_to(served.url) as sock:
        sock.sendall(begun)
        try:
            assert sock.recv(100) == b""
        except ConnectionResetError:
            pass


def in_server(app: FastAPI, story: Callable[[Server, socket.socket], Awaitable[bytes]]) -> bytes:
    """What ``story`` returns, which has the client's end of a connection to a server of ``app``."""
    app.state.preemptions = Preemptions(lambda attempt: None)
    app.state.commits = SimpleNamespace(end=lambda: None)

    async def serve() -> bytes:
        server = Server(app)
        serving = asyncio.create_task(server.serve([]))
        while not (server.started or serving.done()):
            await asyncio.sleep(0)
        here, there = socket.socketpair()
        there.settimeout(LONG_ENOUGH)
        here.setblocking(False)
        with there:
            connecting = asyncio.create_task(server.serve_socket(here, server.connections))
            answer = await story(server, there)
            await connecting
        server.should_exit = True
        await serving
        return answer

    return asyncio.run(serve())


def answers_to(sent: bytes) -> bytes:
    """All that a server says to what lies there as a whole when it begins to read."""
    app = FastAPI()
    app.get("/")(lambda: "ok")

    async def story(server: Server, there: socket.socket) -> bytes:
        there.sendall(sent)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda: b"".join(iter(lambda: there.recv(1 << 16), b"")))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "PATIENCE", LONG_ENOUGH)  # the limits alone close it
        return in_server(app, story)


def get(size: int, lines: int = 5, of_connection: bytes = b"close") -> bytes:
    """A request of so many bytes in so many lines, the last one empty."""
    head = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: " + of_connection + b"\r\n" + b"a:\r\n" * (lines - 5)
    return head + b"b: ".ljust(size - len(head) - 4, b"x") + b"\r\n\r\n"


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (get(4096, MOST_HEADER_LINES), b"200"),
        (get(4096, MOST_HEADER_LINES + 1), b"400"),
        (get(MOST_HEADER_BYTES), b"200"),
        (get(MOST_HEADER_BYTES + 1), b"400"),
        (b"GET /" + b"x" * MOST_HEADER_BYTES, b"400"),
    ],
    ids=["as many lines as may be", "a line more", "as long as may be", "a byte more", "no end"],
)
def test_a_long_header_is_refused_though_it_is_there_as_a_whole(header: bytes, status: bytes) -> None:
    assert answers_to(header).split()[1] == status


def test_requests_that_do_not_wait_for_answers_are_kept_up_to_a_limit() -> None:
    request = get(1024, of_connection=b"keep-alive")
    kept = request * (MOST_HEADER_BYTES // 1024 - 1) + get(1024)
    assert len(kept) == MOST_HEADER_BYTES
    assert answers_to(request + kept).count(b" 200 OK") == MOST_HEADER_BYTES // 1024 + 1
    assert answers_to(request + kept + b"G") == b"", "closed at once"


# --- which connections have a place


class Fake:
    """A connection whose client has kept the master waiting as long as the test says."""

    ended = False

    def __init__(self, connections: Connections, waited: float = 0.0) -> None:
        self.http_client, self.waited, self.is_cut = Client("user 1001", connections.notify), waited, False
        self._among = connections

    def waited_for(self, now: float) -> float:
        return self.waited

    def late(self, now: float) -> bool:
        return self.waited > limits.PATIENCE

    def cut(self) -> None:
        self.is_cut = True
        self._among.remove(self)  # type: ignore[arg-type]


def connect(connections: Connections, count: int = 1, waited: float = 0.0) -> list[Fake]:
    fakes = [Fake(connections, waited) for _ in range(count)]
    for fake in fakes:
        connections.add(fake)  # type: ignore[arg-type]
    return fakes


def test_the_slowest_unauthenticated_client_loses_its_place_to_the_next() -> None:
    async def story() -> None:
        connections = Connections(10_000)
        fakes = connect(connections, MOST_UNAUTHENTICATED, waited=2 * limits.GRACE)
        fakes[7].waited = 3 * limits.GRACE
        await connections.place()
        assert [fake for fake in fakes if fake.is_cut] == [fakes[7]]

    asyncio.run(story())


@pytest.mark.parametrize(
    "event",
    [lambda fake: fake.http_client.recognise(True), lambda fake: fake.cut(), lambda fake: setattr(fake, "waited", 9.0)],
    ids=["one shows a token", "one ends", "one becomes slow"],
)
def test_while_the_master_owes_a_response_to_all_of_them_the_next_waits(event: Callable[[Fake], object]) -> None:
    async def story() -> None:
        connections = Connections(10_000)
        fakes = connect(connections, MOST_UNAUTHENTICATED)
        place = asyncio.create_task(connections.place())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not place.done() and not any(fake.is_cut for fake in fakes)
        event(fakes[0])
        await place

    asyncio.run(story())


def test_authenticated_connections_take_no_places_and_lose_theirs_only_when_idle_and_all_are_taken() -> None:
    async def story() -> None:
        connections = Connections(MOST_UNAUTHENTICATED + 2)
        streaming, idle = connect(connections, 2)
        for fake in (streaming, idle):
            fake.http_client.recognise(True)
        idle.waited = 2 * limits.GRACE
        connect(connections, MOST_UNAUTHENTICATED - 1)
        await connections.place()
        assert not idle.is_cut
        connect(connections)
        await connections.place()
        assert idle.is_cut and not streaming.is_cut

    asyncio.run(story())


@pytest.mark.parametrize("authenticated", [True, False])
def test_a_stream_goes_on_for_as_long_as_it_likes_to_an_authenticated_client_alone(
    authenticated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PATIENCE", 0.0)
    app, go_on = FastAPI(), asyncio.Event()

    @app.get("/")
    async def stream(request: Request) -> StreamingResponse:
        request.state.client.recognise(authenticated)

        async def pieces() -> AsyncIterator[bytes]:
            yield b"begin"
            await go_on.wait()
            yield b"end"

        return StreamingResponse(pieces())

    async def story(server: Server, there: socket.socket) -> bytes:
        loop = asyncio.get_running_loop()
        there.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received = b""
        while b"begin" not in received:
            received += await loop.run_in_executor(None, there.recv, 1 << 16)
        server.connections.close_late()
        go_on.set()
        with contextlib.suppress(ConnectionResetError):
            while piece := await loop.run_in_executor(None, there.recv, 1 << 16):
                received += piece
        return received

    assert (b"end" in in_server(app, story)) is authenticated


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Switches to another protocol for an authenticated client, and says what it is told."""
    scope["state"][limits.CLIENT].recognise(True)
    reader, writer = await scope["state"][limits.SWITCH]([(b"upgrade", b"websocket")], 1 << 16)
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()
    await writer.wait_closed()


def test_a_websocket_is_counted_and_goes_on_for_as_long_as_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PATIENCE", 0.0)
    monkeypatch.setattr(limits, "SILENCE", 0.0)
    app = FastAPI()
    app.mount("/echo", echo)

    async def story(server: Server, there: socket.socket) -> bytes:
        loop = asyncio.get_running_loop()
        there.sendall(b"GET /echo/ HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
        received = await loop.run_in_executor(None, there.recv, 1000)
        server.connections.close_late()
        there.sendall(b"echo")
        received += await loop.run_in_executor(None, there.recv, 4)
        assert len(server.connections) == 1
        there.close()
        while len(server.connections):
            await asyncio.sleep(0)
        return received

    received = in_server(app, story)
    assert received.startswith(b"HTTP/1.1 101 ")
    assert received.endswith(b"\r\n\r\necho")


def test_a_peer_of_this_machine_is_its_user() -> None:
    peers = Peers()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        if peers.name(server) == "loopback":
            pytest.skip("this kernel does not say whose a socket is")
        assert peers.name(server) == own()
        client.close()
        assert peers.name(server) in ("gone", "loopback")
        server.close()
    peers.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to be another user")
def test_another_user_of_this_machine_is_another_peer() -> None:
    peers = Peers()
    code = (
        "import os, socket, sys; 'x'.encode('idna'); os.setuid(12345); "
        "s = socket.socket(); s.connect(('127.0.0.1', int(sys.argv[1]))); s.recv(1)"
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LONG_ENOUGH)
        port = listener.getsockname()[1]
        other = subprocess.Popen([sys.executable, "-c", code, str(port)])
        server, _ = listener.accept()
        assert peers.name(server) in ("user 12345", "loopback")
        server.close()
        other.wait(LONG_ENOUGH)
    peers.close()
