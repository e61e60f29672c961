"""An application that is made when somebody first asks it: a master starts sooner, and keeps nothing of it where nobody does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send


class Later:
    """``make`` is called once, in a thread; if it fails, by the next request once more."""

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        self._make, self._making = make, threading.Lock()
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if app is None:
            app = await asyncio.to_thread(self._made)
        await app(scope, receive, send)

    def _made(self) -> ASGIApp:
        with self._making:
            app = self._app = self._app or self._make()
        return app
