"""``/proxy/TASK/...`` and ``/proxy/TASK:PORT/...`` on the master's own origin, for clients that show a token in a header, and for
those of services that have a login of their own.

A browser shows nothing there: what it sends by itself, such as a cookie, opens no service.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from urllib.parse import unquote

from starlette.requests import Request as HttpRequest
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from dethpc.errors import DethpcError, NotFound, RunOver, Unauthorized
from dethpc.master.http.access import editor
from dethpc.master.http.auth import Auth, Forbidden
from dethpc.master.http.limits import CLIENT, Client
from dethpc.master.http.middleware import PROXY
from dethpc.master.proxy import fields, forwarding
from dethpc.master.proxy.forwarding import Request, upgrades
from dethpc.master.proxy.relays import Relays, Service
from dethpc.web.access import where

TUNNEL = b"x-dethpc-tunnel"
"""The field of a request for TCP, whatever the service carries. Without ``Upgrade``, the answer says whether it
is there, and nothing reaches it."""


class Paths:
    def __init__(self, relays: Relays, auth: Auth) -> None:
        self._relays, self._auth = relays, auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises NotFound, Refused, Forbidden, ServiceUnavailable."""
        name, slash, rest = scope["raw_path"].removeprefix(f"{PROXY}/".encode()).partition(b"/")
        task, port = task_and_port(unquote(name.decode("ascii")))
        permitted = None
        if "principal" in scope["state"]:
            scope = {**scope, "path_params": {"task_id": task}}
            await editor(HttpRequest(scope))
            service = await self._relays.service(task, port)
            permitted = partial(self._permitted, scope)
        else:
            service = await self._with_own_login(scope, task, port)
        request = _request(scope, f"{PROXY}/{service.name}", b"/" + rest, service.own_prefix)
        request = request._replace(permitted=permitted)
        if not slash and not request.upgrades:
            query = scope["query_string"].decode("ascii")
            response = RedirectResponse(f"{PROXY}/{service.name}/" + (f"?{query}" if query else ""))
            await response(scope, receive, send)
            return
        tunnels = TUNNEL in dict(scope["headers"])
        if tunnels and not request.upgrades:
            await Response(status_code=204)(scope, receive, send)
        elif request.upgrades and (service.protocol == "tcp" or tunnels):
            from dethpc.master.proxy.tunnels import tunnel  # a master that carries none needs no library for it

            await tunnel(request, await self._relays.connect(service))
        else:
            await forwarding.forward(request, self._relays, service, receive, send)

    async def _permitted(self, scope: Scope) -> bool:
        """Whether the client that was let in would be let in now."""
        state = scope["state"]
        try:
            principal = await asyncio.to_thread(self._auth.principal, state["token"])
            await editor(HttpRequest({**scope, "state": {**state, "principal": principal}}))
        except (Unauthorized, RunOver, Forbidden, NotFound):
            return False
        return True

    async def _with_own_login(self, scope: Scope, task: str, port: int) -> Service:
        """For a client that shows no token. It learns of no other service whether it is there. Raises Unauthorized."""
        client: Client | None = scope["state"].get(CLIENT)
        with contextlib.suppress(DethpcError):
            service = await self._relays.service(task, port)
            if service.own_login and upgrades(scope) and client is not None:
                client.recognise(True)
                return service
        if client is not None:
            client.recognise(False)
        raise Unauthorized("this needs a token", 401)


def task_and_port(name: str) -> tuple[str, int]:
    """Of ``TASK`` and ``TASK:PORT``. Raises NotFound."""
    task, colon, port = name.partition(":")
    if not task or (colon and not (port.isascii() and port.isdigit() and len(port) <= 5)):
        raise NotFound(f"{name[:100]!r} is not TASK or TASK:PORT")
    return task, int(port) if colon else 0


def _request(scope: Scope, prefix: str, path: bytes, own_prefix: bool) -> Request:
    scheme, host, port = where(HttpRequest(scope))
    client = scope["client"][0] if scope["client"] else ""
    front = fields.Front(scheme, host + port, client, "" if own_prefix else prefix)
    target = scope["raw_path"] if own_prefix else path
    query = scope["query_string"]
    return Request(scope, target + (b"?" + query if query else b""), front, fields.TOKENS)
