"""Connections to the services of live tasks, through the relay of their attempt (``dethpc.exec.relay``).

The host is the node that the scheduler gave the run, and the port that of the attempt's ``relay.json``, where nobody answers
without the run's secret. So no task can direct the master to an address of its choice.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from dethpc.domain.facts import Run
from dethpc.domain.ids import AttemptId
from dethpc.domain.states import RunState
from dethpc.errors import MasterError, NotFound, Refused, RunDirError
from dethpc.exec import relay
from dethpc.exec.link import TIMEOUT, Link
from dethpc.master.parts import Parts
from dethpc.master.proxy.channels import Channel
from dethpc.master.watching.cluster_view import PLAN
from dethpc.rundir.files import read_json
from dethpc.rundir.secret import Secret
from dethpc.rundir.spec import Spec
from dethpc.state import queries

T = TypeVar("T")

_THREADS = 16
_MOST_IDLE = 16  # connections of one service
_KEPT_FOR = 4.0  # seconds; many servers close after five
_ATTEMPTS = 256  # whose relays are remembered


class ServiceUnavailable(MasterError):
    """A task's service does not answer, at present."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 502)


class ServiceBusy(MasterError):
    """A task's service takes no more connections, at present."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 503)


class Service(NamedTuple):
    """What a task offers at ``port``; 0 is its main service. ``protocol``: ``http``, or ``tcp`` of which nothing more is known.
    ``own_prefix``: it knows that clients reach it below ``/proxy/TASK``. ``own_login``: it lets in by itself whom it knows, as sshd
    does by a key; Determined's client shows no token there."""

    task: str
    port: int
    protocol: str = "http"
    own_prefix: bool = False
    own_login: bool = False

    @classmethod
    def of(cls, task: str, service: Mapping[str, Any]) -> Service:
        default = "tcp" if service["kind"] == "command" else "http"
        protocol = str(service.get("protocol", default))
        own_prefix, own_login = bool(service.get("own_prefix")), bool(service.get("own_login"))
        return cls(task, int(service["port"]), protocol, own_prefix, own_login)

    @property
    def name(self) -> str:
        """As paths have it."""
        return f"{self.task}:{self.port}" if self.port else self.task


class _Relay(NamedTuple):
    host: str
    port: int
    secret: Secret
    services: dict[int, Service]


class Relays:
    """May be used from any thread; ``connect`` from the server's event loop."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._cache: dict[AttemptId, _Relay] = {}
        self._idle: dict[Service, list[Channel]] = {}
        self._threads = ThreadPoolExecutor(_THREADS, "proxy")

    async def service(self, task_id: str, port: int) -> Service:
        """Raises NotFound, Refused, ServiceUnavailable."""
        run = self._running(task_id)
        target = self._cache.get(AttemptId(run.id, run.attempt)) if run is not None else None
        if target is not None and port in target.services:
            return target.services[port]
        _, service = await self._in_thread(self._find, task_id, port)
        return service

    async def connect(self, service: Service) -> Channel:
        """A connection that carries the service's bytes. Raises NotFound, Refused, ServiceUnavailable, ServiceBusy."""
        return Channel(await self._in_thread(self._connected, service))

    def idle(self, service: Service) -> Channel | None:
        """A connection that is kept for a next request in HTTP. Its other end may close it at any moment."""
        channels = self._idle.get(service, [])
        while channels:
            channel = channels.pop()
            if channel.idle:
                return channel
            channel.close()
        return None

    def keep(self, service: Service, channel: Channel) -> None:
        """For a next request, soon."""
        channels = self._idle.setdefault(service, [])
        if len(channels) >= _MOST_IDLE:
            channel.close()
            return
        channels.append(channel)
        asyncio.get_running_loop().call_later(_KEPT_FOR, self._drop, service, channel)

    def _drop(self, service: Service, channel: Channel) -> None:
        channels = self._idle.get(service, [])
        if channel in channels:
            channels.remove(channel)
            channel.close()
        if not channels:
            self._idle.pop(service, None)

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    # --- in a thread

    def _connected(self, service: Service) -> socket.socket:
        target, _ = self._find(service.task, service.port)
        try:
            sock = socket.create_connection((target.host, target.port), TIMEOUT)
        except OSError as error:
            self._cache.clear()
            raise ServiceUnavailable(
                f"the relay of task {service.task} on {target.host} does not answer: {error.strerror or error}"
            ) from None
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = Link(sock)
            if not link.introduce(target.secret, relay.ROLE, 0):
                raise ServiceUnavailable(f"what answers on {target.host} is not the relay of task {service.task}")
            link.send({"port": service.port})
            reply = link.final(time.monotonic() + TIMEOUT + 1)
            if reply.get("busy"):
                raise ServiceBusy(f"task {service.task}: {reply.get('error')}")
            if not reply.get("ok"):
                raise ServiceUnavailable(str(reply.get("error") or f"the relay of task {service.task} has ended"))
        except BaseException:
            sock.close()
            raise
        return sock

    def _find(self, task_id: str, port: int) -> tuple[_Relay, Service]:
        run = self._live_run(task_id)
        attempt = AttemptId(run.id, run.attempt)
        target = self._cache.get(attempt)
        if target is None:
            try:
                target = self._read(run)
            except (RunDirError, OSError, ValueError, TypeError, KeyError) as error:
                raise Refused(f"task {task_id} serves nothing at present: {error}") from None
            if len(self._cache) >= _ATTEMPTS:
                self._cache.clear()
            self._cache[attempt] = target
        if port not in target.services:
            raise NotFound(f"task {task_id} offers no {_name(port)}; what it offers: {_names(target.services)}")
        return target, target.services[port]

    def _live_run(self, task_id: str) -> Run:
        """That which has started. Raises NotFound, Refused."""
        run = self._running(task_id)
        if run is not None:
            return run
        if live := [run for run in self._parts.live_runs() if run.task_id == task_id]:
            raise Refused(f"task {task_id} has not started yet: {live[0].reason or live[0].state.value.lower()}")
        with self._parts.store.read() as connection:
            task = queries.task(connection, task_id)
        if task.ended_at is not None:
            raise Refused(f"task {task_id} has ended")
        raise Refused(f"task {task_id} does not run at present")

    def _running(self, task_id: str) -> Run | None:
        for run in self._parts.live_runs():
            if run.task_id == task_id and run.state is RunState.RUNNING and run.attempt >= 0:
                return run
        return None

    def _read(self, run: Run) -> _Relay:
        """Raises RunDirError, OSError, ServiceUnavailable."""
        directory = self._parts.home.run(run.id)
        obj = read_json(directory.spec)
        if obj is None:
            raise RunDirError(f"{directory.spec} is missing")
        spec = Spec.from_json(obj)
        services = [Service.of(run.task_id, service) for service in spec.services]
        secret = Secret(spec.among_workers, relay.use(run.id, run.attempt))
        if not services:
            return _Relay("", 0, secret, {})
        report = read_json(directory.attempt(run.attempt).relay)
        if report is None:
            raise ServiceUnavailable(f"task {run.task_id} is starting: its services are not there yet")
        port = int(report["port"])
        if not 0 < port < 1 << 16:
            raise RunDirError(f"port {port} is out of range")
        return _Relay(self._host(run), port, secret, {service.port: service for service in services})

    def _host(self, run: Run) -> str:
        """The address of its first node, as the scheduler names it. Raises ServiceUnavailable, SchedulerUnavailable."""
        name = run.nodes[0] if run.nodes else ""
        for node in self._parts.cluster.nodes(PLAN):
            if node.name == name:
                return node.address or name
        raise ServiceUnavailable(f"the scheduler knows no node {name!r}, where task {run.task_id} is said to run")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _name(port: int) -> str:
    return f"port {port}" if port else "main service"


def _names(ports: Iterable[int]) -> str:
    return ", ".join(_name(port) for port in ports) or "nothing"
