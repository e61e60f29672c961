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

from dethpc.master.http.connection import Connection
from dethpc.master.http.door import Arrival, Door
from dethpc.master.http.peer import Peers
from dethpc.master.http.tls import Tls
from dethpc.master.pulse import Pulse

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
    """Accepts what the door lets in. Ends soon whoever is connected: long-polls are answered, and what goes on then is cut off."""

    def __init__(self, app: FastAPI, tls: Tls | None = None) -> None:
        self._app, self.pulse = app, Pulse()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        # Half of the files for connections; the database, logs and commands need some, too.
        self.door = Door(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2, self._let_in)
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
        self.pulse.beat()
        self.door.sweep()
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        for listener in sockets or []:
            listener.setblocking(False)
            listener.listen(_QUEUE)
            self._go_on(self._accept(listener))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._tasks:
            task.cancel()
        self._app.state.preemptions.end()
        self._app.state.commits.end()
        cut = asyncio.get_running_loop().call_later(LAST_ANSWERS, self._cut_off)
        await super().shutdown(sockets)
        cut.cancel()
        self.door.close()
        self._peers.close()

    def _cut_off(self) -> None:
        """Streams end as where their reader goes. uvicorn would cancel them, and log each as a failure with a traceback."""
        for connection in list(self.server_state.connections):
            assert isinstance(connection, Connection)
            connection.cut()

    async def _accept(self, listener: socket.socket) -> None:
        loop, count = asyncio.get_running_loop(), 0
        while True:
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError as error:
                log.warning("a connection cannot be accepted: %s", error.strerror)
                await asyncio.sleep(1.0 if error.errno in _NO_MORE else 0.0)
                continue
            self.door.arrive(Arrival(self._peers.name(sock), sock))
            count += 1
            if count % _AT_ONCE == 0:
                await asyncio.sleep(0)

    def _let_in(self, arrival: Arrival) -> Connection:
        connection = Connection(
            self.door,
            arrival,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            _loop=asyncio.get_running_loop(),
        )
        self._go_on(self._carry(connection, arrival.sock))
        return connection

    async def _carry(self, connection: Connection, sock: socket.socket) -> None:
        tls = None if sock.family == socket.AF_UNIX else self.config.ssl  # no network lies in between
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, sock, ssl=tls)
        except OSError as error:  # of TLS, too: the other side is no client of ours, or has gone
            # It would hold what was read of the handshake, in a circle that Python finds much later.
            error.__traceback__ = None
            self.door.leave(connection)
            sock.close()

    def _go_on(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
