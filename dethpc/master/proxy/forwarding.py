"""One request to a service and its response, both as streams: what one side does not read, the other does not send."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import h11
from starlette.types import Receive, Scope, Send

from dethpc.errors import StoreError
from dethpc.master.http.limits import SWITCH
from dethpc.master.http.streams import CHECKED
from dethpc.master.proxy.channels import Channel
from dethpc.master.proxy.fields import Fields, Front, of_request, of_response
from dethpc.master.proxy.relays import Relays, Service, ServiceUnavailable

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]
"""A client's connection after an upgrade."""

Switch = Callable[[Fields, int], Awaitable[Client]]

READ = 1 << 18
"""Bytes of such a client that are read at once; twice as many may wait to be carried on."""

_MOST_HEADER_BYTES = 256 << 10


class Request(NamedTuple):
    """``target``: the path with its query, as the service gets it. ``without``: fields that it does not get. ``permitted``: whether
    the client may still have what it has; None: it may without any login of ours."""

    scope: Scope
    target: bytes
    front: Front
    without: frozenset[bytes]
    permitted: Callable[[], Awaitable[bool]] | None = None

    @property
    def upgrades(self) -> bool:
        return upgrades(self.scope)

    @property
    def repeatable(self) -> bool:
        """Without a body, and without effect: where the service closes the connection meanwhile, another one is tried."""
        names = {name for name, _ in self.scope["headers"]}
        return (
            self.scope["method"] in ("GET", "HEAD")
            and not self.upgrades
            and not names & {b"content-length", b"transfer-encoding"}
        )


def upgrades(scope: Scope) -> bool:
    """Whether the client asks for a WebSocket."""
    return any(name == b"upgrade" and value.lower() == b"websocket" for name, value in scope["headers"])


async def forward(request: Request, relays: Relays, service: Service, receive: Receive, send: Send) -> None:
    """Raises ServiceUnavailable where the service gives no answer in HTTP, and what ``Relays.connect`` raises."""
    channel = relays.idle(service) if request.repeatable else None
    if channel is not None:
        exchange = _Exchange(request, channel, receive, send)
        with contextlib.suppress(ServiceUnavailable):
            await _carry(exchange, relays, service)
            return
    await _carry(_Exchange(request, await relays.connect(service), receive, send), relays, service)


async def _carry(exchange: _Exchange, relays: Relays, service: Service) -> None:
    """And keep the connection if it is good for another request."""
    try:
        async with permitted_alone(exchange.request, exchange.channel):
            await exchange.carry()
    except BaseException:
        exchange.channel.close()
        raise
    if exchange.reusable:
        relays.keep(service, exchange.channel)
    else:
        exchange.channel.close()


@contextlib.asynccontextmanager
async def permitted_alone(request: Request, channel: Channel) -> AsyncIterator[None]:
    """Within, the connection to the service breaks soon after the client's login has ended, or its user's role."""

    async def watch(permitted: Callable[[], Awaitable[bool]]) -> None:
        may = True
        while may:
            await asyncio.sleep(CHECKED)
            with contextlib.suppress(StoreError):  # nobody can tell while the database is away
                may = await permitted()
        channel.abort()

    watching = asyncio.create_task(watch(request.permitted)) if request.permitted is not None else None
    try:
        yield
    finally:
        if watching is not None:
            watching.cancel()


class _Exchange:
    def __init__(self, request: Request, channel: Channel, receive: Receive, send: Send) -> None:
        self.request, self._receive, self._send = request, receive, send
        self.channel = channel
        self._conn = h11.Connection(h11.CLIENT, _MOST_HEADER_BYTES)
        self._gone = False  # the client
        self._answered = False
        self._whole = False  # the response
        self._closes = False  # the service, after its response: perhaps only when it has looked whether more comes
        self._sending: asyncio.Task[None] | None = None

    @property
    def reusable(self) -> bool:
        """``Channel.idle`` says whether more has come than the response."""
        return self._whole and self.request.repeatable and not self._closes

    async def carry(self) -> None:
        """Raises ServiceUnavailable before the client has seen anything of an answer."""
        try:
            await self._send_head()
            self._sending = asyncio.create_task(self._send_body())
            await self._pass_response()
        except (OSError, h11.ProtocolError) as error:
            if not self._gone and not self._answered:
                raise ServiceUnavailable(
                    f"the service gave no answer in HTTP: {error or type(error).__name__}"
                ) from None
        finally:
            await self._stop_sending()

    async def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError, h11.ProtocolError):
                await self._sending

    async def _send_head(self) -> None:
        scope, request = self.request.scope, self.request
        fields = of_request(scope, request.front, request.without)
        if request.upgrades:
            fields += [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
        elif not request.repeatable:
            fields.append((b"connection", b"close"))
        try:
            head = h11.Request(method=scope["method"].encode(), target=request.target, headers=fields)
            end = self._sent(h11.EndOfMessage()) if (sent := self._sent(head)) and request.repeatable else b""
        except h11.LocalProtocolError as error:
            raise ServiceUnavailable(f"the request cannot be passed on: {error}") from None
        await self.channel.write(sent + end)

    async def _send_body(self) -> None:
        """To its end, or as long as the service reads it, and then wait for the client to go."""
        more = not self.request.repeatable
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._gone = True
                self.channel.abort()
                return
            if not more:
                continue
            more = message.get("more_body", False)
            body = message.get("body")
            data = self._sent(h11.Data(data=body)) if body else b""
            end = b"" if more else self._sent(h11.EndOfMessage())
            try:
                for part in filter(None, (data, end)):
                    await self.channel.write(part)
            except OSError:
                more = False  # it may have answered before

    def _sent(self, event: Any) -> bytes:
        return self._conn.send(event) or b""

    async def _pass_response(self) -> None:
        while True:
            event = self._conn.next_event()
            if event is h11.NEED_DATA:
                self._conn.receive_data(await self.channel.read())
            elif isinstance(event, h11.InformationalResponse):
                if event.status_code == 101:
                    await self._switch(event)
                    return
            elif isinstance(event, h11.Response):
                self._answered = True
                self._closes = _closes(event)
                headers = of_response(event.headers, self.request.front)
                await self._send({"type": "http.response.start", "status": event.status_code, "headers": headers})
                if length := self._length(event):
                    await self._pass_body(length)
                    return
            elif isinstance(event, h11.Data):
                await self._send({"type": "http.response.body", "body": event.data, "more_body": True})
            elif isinstance(event, h11.EndOfMessage):
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
                self._whole = self._conn.their_state is h11.DONE and self._conn.trailing_data == (b"", False)
                return
            else:
                raise ConnectionError("the service closed the connection without an answer")

    def _length(self, response: h11.Response) -> int:
        """Bytes of the body that follows; 0 where there is none, or where only its end will say how many they are."""
        fields = dict(response.headers)
        bodiless = self.request.scope["method"] == "HEAD" or response.status_code in (204, 304)
        return 0 if bodiless or b"transfer-encoding" in fields else int(fields.get(b"content-length", 0))

    async def _pass_body(self, length: int) -> None:
        """As it comes: h11 would copy each byte several times. Raises ConnectionError where the service breaks off."""
        data, ended = self._conn.trailing_data
        while True:
            length -= len(data)
            if length < 0:
                data = data[:length]
            if data:
                await self._send({"type": "http.response.body", "body": data, "more_body": length > 0})
            if length <= 0:
                self._whole = not length and not ended
                return
            if not (data := await self.channel.read()):
                raise ConnectionError("the service closed the connection in the middle of a body")

    async def _switch(self, event: h11.InformationalResponse) -> None:
        await self._stop_sending()  # it would take the client's end for one that nothing waits for
        switch: Switch = self.request.scope["state"][SWITCH]
        headers = of_response(event.headers, self.request.front)
        headers = [*headers, (b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
        client = await switch(headers, READ)
        self._gone = True
        early, _ = self._conn.trailing_data
        client[1].write(early)
        await splice(client, self.channel)


def _closes(response: h11.Response) -> bool:
    """Whether the service says that nothing more comes on this connection, as RFC 9112 section 9.3 has it."""
    options = [
        option.strip().lower()
        for name, value in response.headers
        if name == b"connection"
        for option in value.split(b",")
    ]
    return b"close" in options or (response.http_version < b"1.1" and b"keep-alive" not in options)


async def splice(client: Client, channel: Channel) -> None:
    """Carry bytes both ways until both directions have ended, or one breaks. Closes the client's connection."""
    reader, writer = client
    tasks = [asyncio.create_task(_up(reader, channel)), asyncio.create_task(_down(channel, writer))]
    try:
        await asyncio.gather(*tasks)
    except OSError:
        writer.transport.abort()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _up(reader: asyncio.StreamReader, channel: Channel) -> None:
    while data := await reader.read(READ):
        await channel.write(data)
    channel.write_eof()


async def _down(channel: Channel, writer: asyncio.StreamWriter) -> None:
    while data := await channel.read():
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
    else:
        raise ConnectionAbortedError("TLS carries no end of one direction")
