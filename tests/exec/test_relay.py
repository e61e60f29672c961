"""The relay beside a task: who proves to be the master gets through, whatever strangers do."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dethpc.exec import relay
from dethpc.exec.link import Link
from dethpc.rundir.secret import Secret
from tests.waiting import wait_until

USE = relay.use("1.1.1", 0)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[socket.socket]:
    """A Unix socket on which a service listens."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "service"))
        listener.listen()
        yield listener


@pytest.fixture
def process(tmp_path: Path, service: socket.socket) -> Iterator[subprocess.Popen[bytes]]:
    order = relay.Order(
        secret="s" * 32,
        use=USE,
        services=[{"port": 0, "kind": "socket"}],
        file=str(tmp_path / "relay.json"),
        host="127.0.0.1",
        socket=str(tmp_path / "service"),
        directory=str(tmp_path),
        environment={},
    )
    child = relay.start(order)
    wait_until((tmp_path / "relay.json").exists)
    yield child
    child.kill()
    child.wait()


@pytest.fixture
def port(tmp_path: Path, process: subprocess.Popen[bytes]) -> int:
    return int(json.loads((tmp_path / "relay.json").read_text())["port"])


def asked(port: int) -> dict[str, object]:
    """What the relay answers the master."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        link = Link(sock)
        assert link.introduce(Secret("s" * 32, USE), relay.ROLE, 0)
        link.send({"port": 0})
        return dict(link.final(time.monotonic() + 10))


def test_strangers_who_prove_nothing_keep_no_master_out(port: int) -> None:
    strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(4 * relay.MOST_UNPROVED)]
    try:
        assert [asked(port) for _ in range(3)] == [{"ok": True}] * 3
    finally:
        for stranger in strangers:
            stranger.close()


@contextlib.contextmanager
def connected(port: int) -> Iterator[tuple[Link, dict[str, object]]]:
    """A connection to the service, and what the relay answers the master."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        link = Link(sock)
        assert link.introduce(Secret("s" * 32, USE), relay.ROLE, 0)
        link.send({"port": 0})
        yield link, dict(link.final(time.monotonic() + 10))


def test_who_comes_when_all_connections_are_in_use_is_told_so(port: int, service: socket.socket) -> None:
    service.listen(relay.MOST)
    with contextlib.ExitStack() as stack:
        for _ in range(relay.MOST):
            assert stack.enter_context(connected(port))[1] == {"ok": True}
        answer = stack.enter_context(connected(port))[1]
        assert answer["busy"] is True and f"{relay.MOST} connections" in str(answer["error"])


def test_a_term_that_the_whole_job_gets_leaves_the_way_open(port: int, process: subprocess.Popen[bytes]) -> None:
    with connected(port) as (_, answer):
        assert answer == {"ok": True}
        process.send_signal(signal.SIGTERM)
        assert asked(port) == {"ok": True}
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 0


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_nothing_of_an_answer_is_kept_back_until_what_came_before_is_acknowledged(host: str) -> None:
    with relay._listener(host) as listener, socket.create_connection(("127.0.0.1", listener.getsockname()[1])):
        with listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """By TCP, which breaks as connections do."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        return one, listener.accept()[0]


def test_a_service_that_reads_no_more_may_still_answer() -> None:
    (client, source), (target, service) = socket_pair(), socket_pair()
    with client, source, target:
        service.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        service.close()
        client.sendall(b"a body")
        relay.pump(source, target)
        with contextlib.suppress(BrokenPipeError):
            source.sendall(b"the answer that came before")
        source.close()
        assert client.recv(100) == b"the answer that came before"


def test_a_client_that_breaks_off_ends_both_directions() -> None:
    (client, source), (target, service) = socket_pair(), socket_pair()
    with source, target, service:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        relay.pump(source, target)
        assert service.recv(100) == b"" and target.recv(100) == b""


def test_the_end_of_one_direction_is_carried_and_the_other_goes_on() -> None:
    (client, source), (target, service) = socket_pair(), socket_pair()
    with client, source, target, service:
        client.sendall(b"all")
        client.shutdown(socket.SHUT_WR)
        relay.pump(source, target)
        assert service.recv(100) + service.recv(100) == b"all"
        service.sendall(b"answer")
        assert target.recv(100) == b"answer"
