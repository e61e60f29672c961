"""The server that carries the application: it ends soon, whoever is connected."""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI

from dethpc.master.pulse import Pulse

LAST_ANSWERS = 1
"""Seconds that requests in progress have when the master is stopped."""


class Server(uvicorn.Server):
    """Ends soon whoever is connected: long-polls are answered, and what goes on then is cut off."""

    def __init__(self, app: FastAPI) -> None:
        self._app, self.pulse = app, Pulse()
        super().__init__(
            uvicorn.Config(
                app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=LAST_ANSWERS
            )
        )

    @property
    def alive(self) -> bool:
        """It runs in the thread whose end is the master's."""
        return True

    async def on_tick(self, counter: int) -> bool:
        self.pulse.beat()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.preemptions.end()
        await super().shutdown(sockets)


def reachable(host: str) -> str:
    """The name under which other machines find a server that listens on ``host``."""
    if host not in ("0.0.0.0", "::", ""):  # noqa: S104
        return host
    name = socket.getfqdn()
    return socket.gethostname() if name.startswith("localhost") else name
