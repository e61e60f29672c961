"""A transport to a master in the same process, without a socket: for the master's own pages and for tests."""

from __future__ import annotations

import asyncio
import queue
import threading
from typing import Any, Awaitable, Callable, Dict, Iterator, Mapping, MutableMapping, Optional, Union
from urllib.parse import unquote

from dethpc.client.transport import NoAnswer, OnSent

Message = MutableMapping[str, Any]
App = Callable[[Any, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]

_AHEAD = 16  # pieces of a body that the application may be ahead of its reader


class InProcess:
    """A transport that calls an ASGI application (its HTTP part; start-up and shut-down are whoever's made it).

    ``headers`` and ``state``, the request's state as the application sees it, go with each request. ``loop``: the event loop that
    the application already runs in, if it does; otherwise it gets one in a thread of its own. Calls block, so code of that loop
    must make them in a thread.
    """

    url = "http://in-process"

    def __init__(
        self,
        app: App,
        loop: Optional[asyncio.AbstractEventLoop] = None,
        headers: Optional[Mapping[str, str]] = None,
        state: Optional[Mapping[str, object]] = None,
    ) -> None:
        self._app, self._headers, self._state = app, headers or {}, state or {}
        self._given = loop
        self._own: Optional[asyncio.AbstractEventLoop] = None
        self._lock = threading.Lock()

    def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Optional[bytes],
        timeout: float,
        on_sent: Optional[OnSent] = None,
    ) -> Exchange:
        loop = self._loop()
        if _running() is loop:
            raise RuntimeError(
                "a call into the application from its own event loop waits for itself: make it in a thread"
            )
        exchange = Exchange(loop, body or b"", timeout)
        exchange.start(self._app, http_scope(method, target, {**self._headers, **headers}, self._state))
        return exchange

    def close(self) -> None:
        """End the loop that this transport made, and what is still asked through it; a next request makes another."""
        with self._lock:
            if self._own is not None:
                self._own.call_soon_threadsafe(self._own.stop)
                self._own = None

    def _loop(self) -> asyncio.AbstractEventLoop:
        if self._given is not None:
            return self._given
        with self._lock:
            if self._own is None:
                self._own = asyncio.new_event_loop()
                threading.Thread(target=_run, args=(self._own,), name="in-process", daemon=True).start()
            return self._own


class Exchange:
    """One request and its answer; a ``transport.Response`` once ``start`` has returned."""

    status: int
    location: str

    def __init__(self, loop: asyncio.AbstractEventLoop, body: bytes, timeout: float) -> None:
        self._loop, self._timeout = loop, timeout
        self._body: Optional[bytes] = body
        self._messages: queue.SimpleQueue[Union[Message, BaseException]] = queue.SimpleQueue()

    def start(self, app: App, scope: Dict[str, Any]) -> None:
        """Hand the request over and wait for the head of the answer. Raises NoAnswer."""
        call = self._call(app, scope)
        try:
            self._task = asyncio.run_coroutine_threadsafe(call, self._loop)
        except RuntimeError as error:  # the loop is closed: the server has ended
            call.close()
            raise NoAnswer(error, sent=False) from None
        head = self._next(self._timeout)
        self.status = int(head["status"])
        self.location = next((value.decode() for name, value in head.get("headers", ()) if name == b"location"), "")

    def read(self) -> bytes:
        return b"".join(self.chunks(self._timeout))

    def chunks(self, timeout: Optional[float]) -> Iterator[bytes]:
        try:
            more = True
            while more:
                message = self._next(timeout)
                self._loop.call_soon_threadsafe(self._room.release)
                more = bool(message.get("more_body"))
                if message.get("body"):
                    yield message["body"]
        finally:
            if more:
                self.close()

    def close(self) -> None:
        self._task.cancel()

    def _next(self, timeout: Optional[float]) -> Message:
        try:
            message = self._messages.get(timeout=timeout)
        except queue.Empty:
            self.close()
            raise NoAnswer(TimeoutError(f"nothing for {timeout:g} s"), sent=True) from None
        if isinstance(message, BaseException):
            raise NoAnswer(message, sent=True) from message
        return message

    # --- in the loop

    async def _call(self, app: App, scope: Dict[str, Any]) -> None:
        self._room = asyncio.Semaphore(_AHEAD)
        self._over = asyncio.Event()
        try:
            await app(scope, self._receive, self._send)
            self._messages.put(ConnectionError("the application ended without a whole answer"))
        except BaseException as error:  # one that follows a whole answer is read by nobody
            self._messages.put(error)
            if not isinstance(error, Exception):
                raise

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            await self._room.acquire()
            if not message.get("more_body"):
                self._over.set()
        self._messages.put(message)


def http_scope(
    method: str, target: str, headers: Mapping[str, str], state: Optional[Mapping[str, object]] = None
) -> Dict[str, Any]:
    """A request as ASGI applications take it. ``target``: path and query."""
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "root_path": "",
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        "client": None,
        "server": ("in-process", None),
        "state": dict(state or {}),
    }


def _running() -> Optional[asyncio.AbstractEventLoop]:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.run_until_complete(_end())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


async def _end() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
