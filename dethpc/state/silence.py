"""A PostgreSQL server that says nothing because its machine hangs or its processes were stopped. The kernel there still
acknowledges what it is sent, so no time limit of TCP is met, and a statement that takes long looks the same: a second connection
tells them apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import psycopg
from psycopg.errors import ConnectionTimeout

Result = TypeVar("Result")

SILENCE = 4.0
"""Seconds without a word after which a statement asks whether the server is there."""

LOOK = 5
"""Seconds within which a server that is there answers somebody new, unless its URL gives it less."""

REST = 10.0
"""Seconds after a silence was found for which nobody else tries: what is asked for meanwhile fails at once."""


class Server:
    """Makes the connections to one server."""

    def __init__(self) -> None:
        self._rests_until = 0.0

    def connect(self, *args: Any, **params: Any) -> psycopg.Connection[Any]:
        """As ``psycopg.connect``. Raises: psycopg.OperationalError."""
        if time.monotonic() < self._rests_until:
            raise ConnectionTimeout(f"it said nothing when it was last asked; it is asked again within {REST:.0f} s")
        try:
            connection = _Connection.connect(*args, **params)
        except ConnectionTimeout:
            self._rest()
            raise
        least = min(LOOK, int(params.get("connect_timeout", LOOK)))
        connection.asks = lambda: self._answers(*args, **{**params, "connect_timeout": least})
        return connection

    def _answers(self, *args: Any, **params: Any) -> bool:
        """Whether it says anything at all to somebody new; a refusal is an answer."""
        try:
            psycopg.connect(*args, **params).close()
        except ConnectionTimeout:
            self._rest()
            return False
        except psycopg.Error:
            pass
        return True

    def _rest(self) -> None:
        self._rests_until = time.monotonic() + REST


class _Connection(psycopg.Connection[Any]):
    """Ends itself when its server has gone silent. psycopg tells what it waits for ten times a second that nothing has come."""

    asks: Callable[[], bool] = staticmethod(lambda: True)
    """Whether its server answers somebody new."""

    def wait(self, gen: Generator[Any, Any, Result], *args: Any, **options: Any) -> Result:
        return super().wait(self._heard(gen), *args, **options)

    def _heard(self, gen: Generator[Any, Any, Result]) -> Generator[Any, Any, Result]:
        heard = time.monotonic()
        try:
            state = next(gen)
            while True:
                ready = yield state
                silent = not ready and time.monotonic() - heard >= SILENCE
                if silent and not self.asks():
                    self.close()
                    raise ConnectionTimeout(f"it has said nothing for {time.monotonic() - heard:.0f} s")
                if silent or ready:
                    heard = time.monotonic()
                state = gen.send(ready)
        except StopIteration as done:
            result: Result = done.value
            return result
