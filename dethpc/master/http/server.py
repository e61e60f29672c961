"""The server of the application: limits unauthenticated connections, and shuts down promptly whatever connections are open."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from asyncio import sslproto
from collections.abc import Coroutine
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

from dethpc.master.heartbeat import Heartbeat
from dethpc.master.http.limits import Connection, Connections
from dethpc.master.http.peer import Peers
from dethpc.master.http.tls import Tls
from dethpc.master.http.unix_socket import OwnerSocket

log = logging.getLogger(__name__)

LAST_ANSWERS = 1
"""Seconds that requests in progress have when the master is stopped."""

_TO_NOTICE = 1  # seconds in which a request ends by itself that finds its client gone

_QUEUE = 2048  # connections that the kernel keeps until they are accepted
_AT_ONCE = 16  # that are accepted before those that are open have their turn
_NO_MORE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_TICK = 1.0  # seconds between two looks at what is due

# Bytes that each connection keeps for what it receives: a record of TLS, not sixteen.
sslproto.SSLProtocol.max_size = 16 << 10  # type: ignore[attr-defined]


class Server(uvicorn.Server):
    """Serves TCP and, with limits of its own, the owner's Unix socket. When it ends, long-polls are answered, and connections that
    go on after that are closed."""

    def __init__(self, app: FastAPI, tls: Tls | None = None, owner: OwnerSocket | None = None) -> None:
        self._app, self.heartbeat = app, Heartbeat()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        # Half of the files for connections; the database, logs and commands need some, too.
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.connections = Connections(files * 3 // 8)
        self._owner_connections = Connections(files // 8)
        self._owner = owner
        self._owner_listener: socket.socket | None = None
        self._owner_accepts: asyncio.Task[None] | None = None
        self._peers = Peers()
        self._tasks: set[asyncio.Task[None]] = set()
        config = uvicorn.Config(
            app,
            http=Connection,
            loop="asyncio",
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=LAST_ANSWERS + _TO_NOTICE,
        )
        config.load()
        config.ssl = tls.context if tls else None
        super().__init__(config)

    @property
    def requests(self) -> int:
        """So many have been answered."""
        return self.server_state.total_requests

    @property
    def answering(self) -> bool:
        """One is being answered, such as a log that is followed."""
        return bool(self.server_state.tasks)

    @property
    def alive(self) -> bool:
        """It runs in the thread whose end is the master's."""
        return True

    @property
    def should_exit(self) -> bool:
        """Set by any thread or a signal handler, it ends the server at once."""
        return self._should_exit

    @should_exit.setter
    def should_exit(self, exits: bool) -> None:
        self._should_exit = exits
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._woken.set)

    async def main_loop(self) -> None:
        """As uvicorn's, which wakes ten times a second to see whether it should exit: an idle master lets its processor sleep."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._woken.wait(), _TICK)

    async def on_tick(self, counter: int) -> bool:
        self.heartbeat.beat()
        self.connections.close_late()
        self._owner_connections.close_late()
        self._listen_to_owner()
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        for listener in sockets or []:
            listener.setblocking(False)
            listener.listen(_QUEUE)
            self._go_on(self._accept(listener, self.connections))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._tasks:
            task.cancel()
        self._app.state.preemptions.end()
        self._app.state.commits.end()
        cut = asyncio.get_running_loop().call_later(LAST_ANSWERS, self._cut_off)
        await super().shutdown(sockets)
        cut.cancel()
        self._peers.close()

    def _cut_off(self) -> None:
        """Streams end as where their reader goes. uvicorn would cancel them, and log each as a failure with a traceback."""
        self.connections.cut()
        self._owner_connections.cut()

    def _listen_to_owner(self) -> None:
        """On the owner's socket, which is made anew when it has gone."""
        listener = self._owner.renew() if self._owner else None
        if listener is None or listener is self._owner_listener:
            return
        if self._owner_accepts is not None:
            self._owner_accepts.cancel()
        listener.setblocking(False)
        self._owner_listener, self._owner_accepts = listener, self._go_on(self._accept_owner(listener))

    async def _accept_owner(self, listener: socket.socket) -> None:
        with listener:
            await self._accept(listener, self._owner_connections)

    async def _accept(self, listener: socket.socket, connections: Connections) -> None:
        loop, count = asyncio.get_running_loop(), 0
        while True:
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError as error:
                log.warning("a connection cannot be accepted: %s", error.strerror)
                await asyncio.sleep(1.0 if error.errno in _NO_MORE else 0.0)
                continue
            await self.serve_socket(sock, connections)
            count += 1
            if count % _AT_ONCE == 0:
                await asyncio.sleep(0)

    async def serve_socket(self, sock: socket.socket, connections: Connections) -> None:
        """Wait for a place for the accepted ``sock``, and begin to serve it."""
        peer = self._peers.name(sock)
        try:
            await connections.place()
        except asyncio.CancelledError:
            sock.close()
            raise
        connection = Connection(
            connections,
            peer,
            sock,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            _loop=asyncio.get_running_loop(),
        )
        connections.add(connection)
        self._go_on(self._carry(connection, sock, connections))

    async def _carry(self, connection: Connection, sock: socket.socket, connections: Connections) -> None:
        tls = None if sock.family == socket.AF_UNIX else self.config.ssl  # no network lies in between
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, sock, ssl=tls)
        except OSError as error:  # of TLS, too: the other side is no client of ours, or has gone
            # It would hold what was read of the handshake, in a circle that Python finds much later.
            error.__traceback__ = None
            connections.remove(connection)
            sock.close()

    def _go_on(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
