"""On which addresses a master listens."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import pytest

from dethpc.domain.ports import Scheduler
from dethpc.errors import Refused, SchedulerUnavailable
from dethpc.master import listening
from dethpc.master.listening import LOOPBACK, listen
from dethpc.scheduler import routes as routes_of


class Node(NamedTuple):
    name: str
    address: str


class Slurm:
    kind = "slurm"

    def __init__(self, *addresses: str) -> None:
        self._nodes = [Node(f"n{n}", address) for n, address in enumerate(addresses)]

    def nodes(self) -> list[Node]:
        if not self._nodes:
            raise SchedulerUnavailable("sinfo gave no answer")
        return self._nodes


def where(scheduler: object) -> listening.Listening:
    return listening.chosen(cast(Scheduler, scheduler))


class Routes:
    """A kernel that sends to 10.1.* from 10.1.0.1 and to 10.2.* from 10.2.0.1, and a name server that knows only addresses."""

    def __init__(self, family: int, kind: int) -> None:
        self._to = ""

    def connect(self, address: tuple[str, int]) -> None:
        self._to = address[0]

    def getsockname(self) -> tuple[str, int]:
        return (self._to if self._to.startswith("127.") else ".".join([*self._to.split(".")[:2], "0", "1"])), 1

    def __enter__(self) -> Routes:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def routes(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(name: str, port: int, **_: object) -> list[Any]:
        if name[0] not in "0123456789":
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", (name, port))]

    monkeypatch.setattr(routes_of.socket, "getaddrinfo", look_up)
    monkeypatch.setattr(routes_of.socket, "socket", Routes)


@pytest.mark.usefixtures("routes")
def test_on_slurm_a_master_listens_where_compute_nodes_reach_it_and_on_loopback() -> None:
    assert where(Slurm("10.1.0.7", "10.1.0.8")).hosts == ("10.1.0.1", *LOOPBACK)
    both = where(Slurm("10.2.0.7", "10.1.0.7", "10.1.0.8"))
    assert both.hosts == ("10.1.0.1", "10.2.0.1", *LOOPBACK), "that of most nodes first, which jobs are given"
    assert "compute nodes reach" in both.why


@pytest.mark.usefixtures("routes")
def test_where_the_nodes_are_this_machine_it_listens_on_loopback() -> None:
    assert where(Slurm("127.0.0.1", "127.0.1.1")).hosts == LOOPBACK


@pytest.mark.usefixtures("routes")
def test_where_nothing_is_known_of_the_nodes_it_listens_everywhere_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for slurm, words in (
        (Slurm(), "sinfo gave no answer"),
        (Slurm("c1", "c2", "c3", "c4"), "no compute node is known"),
    ):
        found = where(slurm)
        assert found.hosts == ("0.0.0.0", "::1") and words in found.why and words in caplog.text  # noqa: S104
        assert "master.host" in caplog.text


@pytest.mark.usefixtures("routes")
def test_while_slurm_is_away_it_listens_where_the_master_before_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_is_here", lambda host: False)
    gone = listening.chosen(cast(Scheduler, Slurm()), ("10.1.0.1", *LOOPBACK))
    assert gone.hosts == ("0.0.0.0", "::1"), "this machine has no such address any more"  # noqa: S104
    only = listening.chosen(cast(Scheduler, Slurm()), LOOPBACK)
    assert only.hosts == LOOPBACK
    monkeypatch.setattr(listening, "_is_here", lambda host: host == "10.1.0.1")
    away = listening.chosen(cast(Scheduler, Slurm()), ("10.1.0.1", *LOOPBACK))
    assert away.hosts == ("10.1.0.1", *LOOPBACK) and "as the master before this one: Slurm did not" in away.why
    there = listening.chosen(cast(Scheduler, Slurm("127.0.0.1")), ("10.1.0.1", *LOOPBACK))
    assert there.hosts == LOOPBACK


def test_an_address_is_here_if_somebody_can_listen_there() -> None:
    assert listening._is_here("127.0.0.1") and not listening._is_here("203.0.113.9")


def test_with_jobs_on_this_machine_it_listens_on_loopback() -> None:
    class Local:
        kind = "local"

    assert where(Local()).hosts == LOOPBACK


def test_what_the_site_names_counts_and_loopback_besides() -> None:
    assert listening.named("10.0.0.5", "master.host").hosts == ("10.0.0.5", *LOOPBACK)
    assert listening.named("127.0.0.1", "master.host").hosts == LOOPBACK
    assert listening.named("localhost", "master.host").hosts == LOOPBACK
    assert listening.named("0.0.0.0", "--host").hosts == ("0.0.0.0", "::1")  # noqa: S104
    assert listening.named("::", "--host").hosts == ("::", "127.0.0.1")


@pytest.fixture
def has_ipv6() -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        pytest.skip("no IPv6 on the loopback device")


@contextlib.contextmanager
def listeners(port: int, before: int = 0) -> Iterator[list[socket.socket]]:
    made = listen(LOOPBACK, port, before)
    try:
        yield made
    finally:
        for each in made:
            each.close()


@pytest.mark.usefixtures("has_ipv6")
def test_nobody_else_answers_under_the_masters_port_on_another_address_of_loopback() -> None:
    """A browser, or ssh -L to localhost, may try ::1 first."""
    with listeners(0) as made:
        port = made[0].getsockname()[1]
        assert [each.getsockname()[:2] for each in made] == [("127.0.0.1", port), ("::1", port)]
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("::1", port), family=socket.AF_INET6)


@pytest.mark.usefixtures("has_ipv6")
def test_a_port_that_another_program_has_on_one_of_the_addresses_is_not_used() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        taken = other.getsockname()[1]
        with listeners(0, before=taken) as made:
            assert {each.getsockname()[1] for each in made}.isdisjoint({taken})
        with pytest.raises(Refused, match=f"port {taken}"):
            listen(LOOPBACK, taken)
