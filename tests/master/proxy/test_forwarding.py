"""Requests that are passed on to a service, over the master's own server: what each side sees of the other's odd behaviour."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from dethpc.exec.relay import pump
from dethpc.master.http.limits import CLIENT
from dethpc.master.http.server import Server
from dethpc.master.proxy.channels import Channel
from dethpc.master.proxy.fields import Front
from dethpc.master.proxy.forwarding import Request, forward
from dethpc.master.proxy.relays import Relays, Service, ServiceUnavailable

Behaviour = Callable[[socket.socket, bytes], None]
"""What a service does with a connection on which it has read a head."""

LARGE = bytes(range(256)) * (20 << 10)


class Straight(Relays):
    """Leads to a service through the pumps of a relay, without proofs."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._idle = {}
        self._behaviour = behaviour
        self.connections = 0

    async def connect(self, service: Service) -> Channel:
        self.connections += 1
        (own, relay), (target, served) = socket_pair(), socket_pair()
        for work in ((pump, relay, target), (pump, target, relay), (self._serve, served)):
            threading.Thread(target=work[0], args=work[1:], daemon=True).start()
        return Channel(own)

    def _serve(self, sock: socket.socket) -> None:
        head = b""
        with sock, contextlib.suppress(OSError):
            while b"\r\n\r\n" not in head:
                piece = sock.recv(1)  # the rest is the body, which not everybody reads
                if not piece:
                    return
                head += piece
            self._behaviour(sock, head)


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """By TCP, which breaks as connections do."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        return one, listener.accept()[0]


class Proxy:
    """A server that passes all requests on to a service."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.relays, self.failures = Straight(behaviour), list[str]()
        self._ready, self._loop = threading.Event(), asyncio.new_event_loop()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._ready.wait()

    def _run(self) -> None:
        app = FastAPI()
        app.state.preemptions = app.state.commits = _Nothing()
        app.mount("/", self._pass_on)
        self._server = Server(app)

        async def serve() -> None:
            self._loop.call_later(0, self._ready.set)
            await self._server.serve(sockets=[self._listener])

        self._loop.run_until_complete(serve())

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"][CLIENT].recognise(True)
        request = Request(scope, scope["raw_path"], Front("http", "here", "127.0.0.1", cookies="/"), frozenset())
        try:
            await forward(request, self.relays, Service("task", 1), receive, send)
        except ServiceUnavailable as error:
            self.failures.append(str(error))
            await send({"type": "http.response.start", "status": 502, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._loop.close()
        self._listener.close()

    def connection(self) -> socket.socket:
        sock = socket.create_connection(self.address)
        sock.settimeout(60)
        return sock

    def ask(self, request: bytes) -> bytes:
        """All that comes back until the connection ends."""
        with self.connection() as sock:
            with contextlib.suppress(OSError):
                sock.sendall(request)
            return everything(sock)


class _Nothing:
    def end(self) -> None:
        pass


def everything(sock: socket.socket) -> bytes:
    received = bytearray()
    with contextlib.suppress(ConnectionError):
        while piece := sock.recv(1 << 20):
            received += piece
    return bytes(received)


@pytest.fixture
def proxy_of() -> Iterator[Callable[[Behaviour], Proxy]]:
    proxies: list[Proxy] = []

    def start(behaviour: Behaviour) -> Proxy:
        proxies.append(Proxy(behaviour))
        return proxies[-1]

    yield start
    for proxy in proxies:
        proxy.close()


ProxyOf = Callable[[Behaviour], Proxy]
GET = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def says(*parts: bytes) -> Behaviour:
    def behave(sock: socket.socket, head: bytes) -> None:
        for part in parts:
            sock.sendall(part)

    return behave


def body(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


def test_a_large_body_arrives_as_it_was(proxy_of: ProxyOf) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LARGE)
    assert body(proxy_of(says(head + LARGE)).ask(GET)) == LARGE


def test_a_body_in_chunks_arrives_as_it_was_and_its_trailers_do_no_harm(proxy_of: ProxyOf) -> None:
    chunks = b"".join(
        b"%x\r\n%s\r\n" % (len(LARGE[i : i + 999_999]), LARGE[i : i + 999_999]) for i in range(0, len(LARGE), 999_999)
    )
    answer = proxy_of(
        says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\nX-Sum: 1\r\n\r\n")
    ).ask(
        GET.replace(b"1.1", b"1.0")  # which gets it without chunks
    )
    assert body(answer) == LARGE


def test_a_length_beside_chunks_counts_for_nothing(proxy_of: ProxyOf) -> None:
    both = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntrue\r\n0\r\n\r\n"
    answer = proxy_of(says(both)).ask(GET.replace(b"1.1", b"1.0"))
    assert body(answer) == b"true" and b"content-length" not in answer.lower()


def test_a_body_without_a_length_ends_with_the_connection(proxy_of: ProxyOf) -> None:
    answer = proxy_of(says(b"HTTP/1.0 200 OK\r\n\r\n", LARGE)).ask(GET.replace(b"1.1", b"1.0"))
    assert body(answer) == LARGE


def test_a_body_that_breaks_off_is_no_whole_answer(proxy_of: ProxyOf) -> None:
    answer = proxy_of(says(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", b"half")).ask(GET)
    assert answer.startswith(b"HTTP/1.1 200") and body(answer) == b"half"
    answer = proxy_of(says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")).ask(GET)
    assert b"half" in answer and not answer.endswith(b"0\r\n\r\n")


def test_what_follows_the_answer_is_not_taken_for_that_to_the_next_request(proxy_of: ProxyOf) -> None:
    extra = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfalse"
    proxy = proxy_of(says(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue" + extra))
    assert body(proxy.ask(GET)) == b"true"
    assert body(proxy.ask(GET)) == b"true"
    assert proxy.relays.connections == 2


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nConnection: close", b"HTTP/1.0 200 OK"])
def test_nothing_more_is_sent_to_a_service_that_says_it_closes(proxy_of: ProxyOf, head: bytes) -> None:
    """Werkzeug, which serves TensorBoard, first waits for what its client may still send, and would wait for its end."""

    def behave(sock: socket.socket, _: bytes) -> None:
        sock.sendall(head + b"\r\nContent-Length: 4\r\n\r\ntrue")
        everything(sock)

    proxy = proxy_of(behave)
    for connections in (1, 2):
        assert body(proxy.ask(GET)) == b"true"
        assert proxy.relays.connections == connections


def test_an_answer_to_head_has_no_body_and_the_connection_serves_on(proxy_of: ProxyOf) -> None:
    def behave(sock: socket.socket, head: bytes) -> None:
        while b"\r\n\r\n" in head:
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            head = sock.recv(1 << 16)

    proxy = proxy_of(behave)
    for _ in range(2):
        answer = proxy.ask(GET.replace(b"GET", b"HEAD"))
        assert answer.startswith(b"HTTP/1.1 200") and b"content-length: 1000" in answer.lower() and not body(answer)
    assert proxy.relays.connections == 1


def test_interim_answers_do_not_stand_for_the_last_one(proxy_of: ProxyOf) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"
    answer = proxy_of(says(early, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlast")).ask(GET)
    assert answer.startswith(b"HTTP/1.1 200") and body(answer) == b"last"


def test_an_answer_has_the_date_of_the_service_alone(proxy_of: ProxyOf) -> None:
    dated = b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\nServer: own\r\n"
    answer = proxy_of(says(b"HTTP/1.1 200 OK\r\n%sContent-Length: 0\r\n\r\n" % dated)).ask(GET).lower()
    assert (answer.count(b"date: "), answer.count(b"server: ")) == (1, 1)
    assert dated.lower().splitlines()[0] in answer


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_is_sent_as_it_was(proxy_of: ProxyOf, chunked: bool) -> None:
    received = bytearray()

    def behave(sock: socket.socket, head: bytes) -> None:
        while len(received) < len(LARGE) and not received.endswith(b"\r\n0\r\n\r\n"):
            received.extend(sock.recv(1 << 20))
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    post = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    if chunked:
        sent = post + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(LARGE), LARGE)
    else:
        sent = post + b"Content-Length: %d\r\n\r\n%s" % (len(LARGE), LARGE)
    assert body(proxy_of(behave).ask(sent)) == b"ok"
    assert bytes(received) == LARGE or chunked


def test_an_answer_before_the_body_was_read_arrives(proxy_of: ProxyOf) -> None:
    def behave(sock: socket.socket, head: bytes) -> None:
        sock.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nlarge")

    sent = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(LARGE)
    answer = proxy_of(behave).ask(sent + LARGE)
    assert answer.startswith(b"HTTP/1.1 413") and body(answer) == b"large"


def test_a_service_that_speaks_no_http_or_dies_is_named(proxy_of: ProxyOf) -> None:
    for greeting in (b"SSH-2.0-x\r\n\r\n", b"", b"HTTP/1.1 2"):
        proxy = proxy_of(says(greeting))
        assert proxy.ask(GET).startswith(b"HTTP/1.1 502"), greeting
        assert proxy.failures[0].startswith("the service gave no answer in HTTP"), greeting


def test_the_service_learns_that_the_client_has_gone(proxy_of: ProxyOf) -> None:
    gone = threading.Event()

    def behave(sock: socket.socket, head: bytes) -> None:
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nbegin")
        with contextlib.suppress(OSError):
            sock.recv(1)
        gone.set()

    with proxy_of(behave).connection() as sock:
        sock.sendall(GET)
        while not sock.recv(1 << 16).endswith(b"begin"):
            pass
    assert gone.wait(60)


def test_a_reader_that_waits_slows_the_service_and_keeps_nobody_else_waiting(proxy_of: ProxyOf) -> None:
    sent = [0]

    def behave(sock: socket.socket, head: bytes) -> None:
        if b"/small" in head:
            says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")(sock, head)
            return
        size = 1 << 30
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        piece = bytes(1 << 20)
        while sent[0] < size:
            sent[0] += sock.send(piece)

    proxy = proxy_of(behave)
    with proxy.connection() as slow:
        slow.sendall(GET)
        slow.recv(1)
        for _ in range(20):
            assert body(proxy.ask(GET.replace(b"/ ", b"/small "))) == b"ok"
        assert sent[0] < 200 << 20


def upgraded(sock: socket.socket) -> None:
    sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += sock.recv(1)
    assert head.startswith(b"HTTP/1.1 101"), head


def test_after_an_upgrade_bytes_go_both_ways_and_each_direction_ends_by_itself(proxy_of: ProxyOf) -> None:
    def behave(sock: socket.socket, head: bytes) -> None:
        sock.sendall(b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        total = len(everything(sock))
        sock.sendall(b"%d " % total + LARGE)

    with proxy_of(behave).connection() as sock:
        upgraded(sock)
        for _ in range(20):
            sock.sendall(LARGE)
        sock.shutdown(socket.SHUT_WR)
        assert everything(sock) == b"%d " % (20 * len(LARGE)) + LARGE


def test_an_upgraded_connection_ends_where_either_side_breaks(proxy_of: ProxyOf) -> None:
    ends: list[Any] = []

    def behave(sock: socket.socket, head: bytes) -> None:
        sock.sendall(b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        ends.append(sock.recv(1))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset

    with proxy_of(behave).connection() as sock:
        upgraded(sock)
        sock.sendall(b"x")
        assert everything(sock) == b""
    assert ends == [b"x"]
