"""TCP through a WebSocket: binary messages carry the bytes of a connection to a service, as Determined's clients send them."""

from __future__ import annotations

import asyncio
import contextlib

from websockets.frames import Frame, Opcode
from websockets.http11 import Request as Handshake
from websockets.protocol import State
from websockets.server import ServerProtocol

from dethpc.errors import Refused
from dethpc.master.http.limits import SWITCH
from dethpc.master.proxy.channels import Channel
from dethpc.master.proxy.forwarding import READ, Client, Request, Switch, permitted_alone

_DATA = (Opcode.BINARY, Opcode.TEXT, Opcode.CONT)
_MOST = 1 << 20  # bytes of one frame
_FAREWELL = 5.0  # seconds that the client has to answer the end


async def tunnel(request: Request, channel: Channel) -> None:
    """Raises Refused where the client speaks no WebSocket. Closes the connection to the service."""
    try:
        protocol = ServerProtocol(max_size=_MOST)
        protocol.receive_data(_head(request))
        (handshake,) = protocol.events_received()
        assert isinstance(handshake, Handshake)
        response = protocol.accept(handshake)
        if response.status_code != 101:
            raise Refused(f"a tunnel begins with a WebSocket: {response.body.decode(errors='replace').strip()}")
        protocol.send_response(response)
        protocol.data_to_send()  # the head, which the server sends
        switch: Switch = request.scope["state"][SWITCH]
        fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.raw_items()]
        client = await switch(fields, READ)
        async with permitted_alone(request, channel):
            await _Tunnel(protocol, client, channel).carry()
    finally:
        channel.close()


def _head(request: Request) -> bytes:
    fields = [(name, value) for name, value in request.scope["headers"] if name != b"connection"]
    lines = [b"GET / HTTP/1.1", *(name + b": " + value for name, value in fields), b"connection: Upgrade", b"", b""]
    return b"\r\n".join(lines)


class _Tunnel:
    def __init__(self, protocol: ServerProtocol, client: Client, channel: Channel) -> None:
        self._protocol = protocol
        self._reader, self._writer = client
        self._channel = channel

    async def carry(self) -> None:
        """Until either side ends."""
        back = asyncio.create_task(self._send_messages())
        try:
            await self._receive_messages()
        except OSError:
            self._writer.transport.abort()
        finally:
            back.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await back
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    async def _receive_messages(self) -> None:
        while not self._protocol.close_expected() and (data := await self._reader.read(READ)):
            self._protocol.receive_data(data)
            for frame in self._protocol.events_received():
                if isinstance(frame, Frame) and frame.opcode in _DATA:
                    await self._channel.write(frame.data)
            await self._flush()

    async def _send_messages(self) -> None:
        try:
            while data := await self._channel.read():
                self._protocol.send_binary(data)
                await self._flush()
        finally:
            if self._protocol.state is State.OPEN:
                self._protocol.send_close(1000)
                await self._flush()
                asyncio.get_running_loop().call_later(_FAREWELL, self._writer.transport.abort)

    async def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._writer.write(data)
        await self._writer.drain()
