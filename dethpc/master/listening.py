"""The addresses on which a master listens: those at which its jobs and its owner reach it, and no others.

A compute node reaches this machine at the address that the kernel uses for packets to the node. The master always listens on
loopback as well, for ``det`` and tunnels, and on IPv4 and IPv6 both: no other process can then answer there on the same port.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from dethpc.domain.ports import Scheduler
from dethpc.errors import Refused, SchedulerUnavailable
from dethpc.scheduler.routes import addresses_towards

log = logging.getLogger(__name__)

EVERY = "0.0.0.0"  # noqa: S104
LOOPBACK = ("127.0.0.1", "::1")

_TRIES = 20  # ports that are free on one address and taken on another


@dataclass(frozen=True)
class Listening:
    """``hosts``: the first one is that of ``master.json``. ``why``: how they were chosen, in words."""

    hosts: tuple[str, ...]
    why: str

    @property
    def host(self) -> str:
        return self.hosts[0]

    def to_json(self) -> dict[str, object]:
        return {"hosts": list(self.hosts), "why": self.why}


def named(host: str, by: str) -> Listening:
    """As somebody said, by ``by``."""
    return Listening(_with_loopback([host]), f"as {by} says")


def chosen(scheduler: Scheduler, before: Sequence[str] = ()) -> Listening:
    """Where nobody says. ``before``: the hosts of the last master on this machine, which count while Slurm is away."""
    if scheduler.kind != "slurm":
        return Listening(LOOPBACK, "jobs run on this machine")
    try:
        nodes = scheduler.nodes()
    except SchedulerUnavailable as error:
        if before and all(_is_loopback(host) or _is_here(host) for host in before):
            return Listening(tuple(before), f"as the master before this one: Slurm did not name its nodes ({error})")
        return _everywhere(f"Slurm did not name its nodes ({error})")
    hosts = addresses_towards(node.address or node.name for node in nodes)
    if not hosts:
        return _everywhere("the address of no compute node is known")
    if all(_is_loopback(host) for host in hosts):
        return Listening(LOOPBACK, "the compute nodes are this machine")
    return Listening(_with_loopback(hosts), "by which compute nodes reach this machine, and loopback")


def _everywhere(why: str) -> Listening:
    log.warning("the master listens on every address of this machine: %s; name one in master.host", why)
    return Listening(_with_loopback([EVERY]), f"every address of this machine: {why}; master.host can name one")


def _with_loopback(hosts: Sequence[str]) -> tuple[str, ...]:
    covered = {"127.0.0.1"} if EVERY in hosts else set()
    covered |= {"::1"} if "::" in hosts else set()
    named = ["127.0.0.1" if host == "localhost" else host for host in hosts]
    return tuple(dict.fromkeys([*named, *(host for host in LOOPBACK if host not in covered)]))


def _is_here(host: str) -> bool:
    """Whether this machine has the address, now: one that starts may have got another, or its network is not up yet."""
    try:
        _listener(host, 0).close()
    except OSError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return host == "::1" or host.startswith("127.")


def listen(hosts: Sequence[str], port: int, before: int = 0) -> list[socket.socket]:
    """One port of all ``hosts``. ``port`` 0: that of ``before``, so that open pages go on to lead here; any free one where that is
    taken. Raises Refused when ``port`` is taken."""
    ports = [port] if port else [*([before] if before else []), *[0] * _TRIES]
    for number in ports:
        try:
            return _listeners(hosts, number)
        except (OSError, OverflowError) as error:
            problem = error
    where = ", ".join(hosts)
    raise Refused(f"cannot listen on {where} port {port}: {getattr(problem, 'strerror', problem)}") from problem


def _listeners(hosts: Sequence[str], port: int) -> list[socket.socket]:
    listeners: list[socket.socket] = []
    try:
        for host in hosts:
            try:
                listener = _listener(host, port)
            except OSError as error:
                if listeners and host == "::1" and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    continue  # no IPv6 on this machine: nobody else has it either
                raise
            listeners.append(listener)
            port = listener.getsockname()[1]
    except (OSError, OverflowError):
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family)
    # Connections inherit it. asyncio sets it on those alone whose protocol has a number, and without it the kernel keeps the second
    # half of an answer back until the client has acknowledged the first, 40 ms later.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def url_of(name: str, port: int, *, tls: bool) -> str:
    return f"{'https' if tls else 'http'}://{f'[{name}]' if ':' in name else name}:{port}"


def reachable(host: str) -> str:
    """The name under which other machines find a server that listens on ``host``: this machine's, where it is a name of that very
    address."""
    if _is_loopback(host):
        return host
    name = socket.getfqdn()
    name = socket.gethostname() if name.startswith("localhost") else name
    if host in (EVERY, "::", ""):
        return name
    with suppress(OSError):
        if {str(info[4][0]) for info in socket.getaddrinfo(name, None)} == {host}:
            return name
    return host
