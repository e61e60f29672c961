"""Whoever has no token costs the master little memory, and keeps nobody else from it."""

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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from fastapi import FastAPI

from dethpc.client import Session, users
from dethpc.client.address import OwnerToken
from dethpc.errors import Refused
from dethpc.master.http import bodies, door
from dethpc.master.http.connection import MOST_HEADER_BYTES, MOST_HEADER_LINES
from dethpc.master.http.door import MOST_OF_ONE, MOST_STRANGERS, MOST_WAITING, Arrival, Door, Visit
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
    head = f"POST {LOGIN} HTTP/1.1\r\nHost: x\r\nContent-Length: {bodies.MOST_PUBLIC}\r\n\r\n"
    return [send(master, head.encode(), b"x" * (bodies.MOST_PUBLIC - 1)) for _ in range(200)]


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
    Path(f"/proc/{master.process.pid}/clear_refs").write_text("5")  # VmHWM begins anew
    before = memory(master, "VmHWM")
    sockets = attack(master)
    session = as_owner(master)
    assert users.me(session)["username"] == master.owner
    files = len(os.listdir(f"/proc/{master.process.pid}/fd"))
    assert memory(master, "VmHWM") - before < MOST_MEMORY
    assert files < MOST_STRANGERS + MOST_WAITING + 100
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
    head = f"POST {LOGIN} HTTP/1.1\r\nHost: x\r\nContent-Length: {bodies.MOST_PUBLIC}\r\n\r\n".encode()
    sent: list[socket.socket] = []
    for _ in range(100):
        with contextlib.suppress(OSError):  # the master may have no room for it
            sent.append(TRUSTS_ANYBODY.wrap_socket(open_to(master.url)))
            sent[-1].sendall(head + b"x" * (bodies.MOST_PUBLIC - 1))
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
            with contextlib.suppress(ConnectionError):  # where the door is full, one of them has to go
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
    for length in (bodies.MOST_PUBLIC + 1, 10**15):
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
        served.session.post("/api/v1/tokens", {"lifespan": "x" * 2 * bodies.MOST_PUBLIC})


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET /info HT", f"POST {LOGIN} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{{".encode()],
    ids=["silent", "half a header", "half a body"],
)
def test_a_request_that_does_not_end_is_closed(served: Served, monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setattr(door, "PATIENCE", 0.1)
    with open_to(served.url) as sock:
        sock.sendall(begun)
        try:
            assert sock.recv(100) == b""
        except ConnectionResetError:
            pass


def answers_to(sent: bytes) -> bytes:
    """All that a server says to what lies there as a whole when it begins to read."""
    app = FastAPI()
    app.state.preemptions = Preemptions(lambda attempt: False)
    app.state.commits = SimpleNamespace(end=lambda: None)
    app.get("/")(lambda: "ok")

    async def told() -> bytes:
        loop, server = asyncio.get_running_loop(), Server(app)
        serving = loop.create_task(server.serve([]))
        while not (server.started or serving.done()):
            await asyncio.sleep(0)
        here, there = socket.socketpair()
        there.settimeout(LONG_ENOUGH)
        there.sendall(sent)
        here.setblocking(False)
        server.door.arrive(Arrival("user 1001", here))
        with there:
            said = await loop.run_in_executor(None, lambda: b"".join(iter(lambda: there.recv(1 << 16), b"")))
        server.should_exit = True
        await serving
        return said

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(door, "PATIENCE", LONG_ENOUGH)  # the limits alone close it
        return asyncio.run(told())


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


# --- who is let in


class Inside:
    """A guest that does nothing, for as long as the test says."""

    def __init__(self, arrival: Arrival) -> None:
        self.visit, self.sock, self.silent, self.is_cut = Visit(arrival.peer), arrival.sock, 0.0, False

    def late(self, now: float) -> bool:
        return self.silent > door.PATIENCE

    def waited_for(self, now: float) -> float:
        return self.silent

    def cut(self) -> None:
        self.is_cut = True
        self.sock.close()


class House:
    """A door, and who came through it."""

    def __init__(self, most: int = 10_000) -> None:
        self.inside: list[Inside] = []
        self.door = Door(most, self._let_in)
        self._ends: list[socket.socket] = []

    def _let_in(self, arrival: Arrival) -> Inside:
        self.inside.append(Inside(arrival))
        return self.inside[-1]

    async def come(self, peer: str, times: int = 1, says: bytes = b"GET") -> list[socket.socket]:
        """Its sockets here, in the order in which they came."""
        came = []
        for _ in range(times):
            here, there = socket.socketpair()
            self._ends += [here, there]
            there.send(says)
            self.door.arrive(Arrival(peer, here))
            came.append(here)
        for _ in range(3):
            await asyncio.sleep(0)
        return came

    def of(self, peer: str) -> list[Inside]:
        return [guest for guest in self.inside if guest.visit.peer == peer and not guest.is_cut]

    def close(self) -> None:
        self.door.close()
        for end in self._ends:
            end.close()


def in_a_house(story: Callable[[House], object], **options: int) -> None:
    async def told() -> None:
        house = House(**options)
        try:
            await story(house)  # type: ignore[misc]
        finally:
            house.close()

    asyncio.run(told())


@pytest.mark.usefixtures("many_files")
def test_a_flood_from_one_peer_waits_for_itself_alone() -> None:
    async def story(house: House) -> None:
        await house.come("user 1001", 200)
        assert len(house.of("user 1001")) == MOST_OF_ONE
        await house.come("user 1000")
        assert len(house.of("user 1000")) == 1

    in_a_house(story)


@pytest.mark.usefixtures("many_files")
def test_the_newest_of_whoever_has_fewest_inside_comes_next() -> None:
    async def story(house: House) -> None:
        await house.come("10.0.0.1", MOST_OF_ONE)
        await house.come("10.0.0.2", MOST_OF_ONE)
        assert len(house.inside) == MOST_STRANGERS
        await house.come("10.0.0.1", 5)
        [older] = await house.come("user 1000")
        [newer] = await house.come("user 1000")
        assert not house.of("user 1000"), "nobody has kept the master waiting yet"
        leaves = house.inside[0]
        leaves.is_cut = True
        house.door.leave(leaves)
        assert [guest.sock for guest in house.of("user 1000")] == [newer]
        house.inside[1].silent = 2 * door.GRACE
        house.door.admit()
        assert house.inside[1].is_cut
        assert [guest.sock for guest in house.of("user 1000")] == [newer, older]

    in_a_house(story)


@pytest.mark.usefixtures("many_files")
def test_of_those_who_keep_the_master_waiting_the_first_of_the_largest_peer_makes_room() -> None:
    async def story(house: House) -> None:
        await house.come("10.0.0.1", MOST_OF_ONE - 2)
        await house.come("10.0.0.2", MOST_OF_ONE)
        await house.come("10.0.0.3", 2)
        of_fewer, quick, first, second = house.inside[MOST_OF_ONE - 3 : MOST_OF_ONE + 1]
        of_fewer.silent = second.silent = 3 * door.GRACE
        quick.silent, first.silent = door.GRACE / 2, 2 * door.GRACE
        await house.come("user 1000")
        assert [guest for guest in house.inside if guest.is_cut] == [first]
        assert len(house.of("user 1000")) == 1

    in_a_house(story)


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("says", [b"", b"GET"], ids=["silent", "ready"])
def test_at_a_full_door_the_oldest_of_the_largest_peer_is_turned_away(says: bytes) -> None:
    async def story(house: House) -> None:
        await house.come("10.0.0.1", MOST_OF_ONE)
        await house.come("10.0.0.2", MOST_OF_ONE)
        came = await house.come("user 1000", says=says)
        came += await house.come("user 1001", says=says)
        for _ in range(2):
            came += await house.come("user 1001", MOST_WAITING // 2, says=says)
        assert [at for at, sock in enumerate(came) if sock.fileno() < 0] == [1, 2]

    in_a_house(story)


@pytest.mark.usefixtures("many_files")
def test_who_says_nothing_has_no_place_inside() -> None:
    async def story(house: House) -> None:
        await house.come("user 1001", MOST_WAITING + 10, says=b"")
        assert not house.inside and len(house.door) == MOST_WAITING
        await house.come("user 1001")
        assert len(house.inside) == 1

    in_a_house(story)


@pytest.mark.usefixtures("many_files")
def test_who_has_shown_a_token_makes_room_for_strangers_and_loses_its_place_to_nobody_but_itself() -> None:
    async def story(house: House) -> None:
        await house.come("10.0.0.1", MOST_OF_ONE - 2)
        for guest in house.inside:
            guest.visit.known = True
        await house.come("10.0.0.1", MOST_OF_ONE)
        assert len(house.of("10.0.0.1")) == MOST_OF_ONE - 2 + MOST_OF_ONE
        await house.come("user 1000", 9)
        assert len(house.door) == 54 and house.inside[0].is_cut, "the oldest of the peer that has most"

    in_a_house(story, most=54)


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
