"""Routes of the proxy: tickets that let a browser in at a service of a task."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Request
from pydantic import Field

from dethpc.errors import Refused
from dethpc.master.http.access import Editor, TheServices, peer
from dethpc.master.http.models import Wire
from dethpc.master.http.router import new_router
from dethpc.state.queries import placement
from dethpc.state.store import SqlStore
from dethpc.web.access import is_loopback, where


class TicketRequest(Wire):
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """0: the main service."""
    path: str = ""
    """Where the browser is to begin; "" where the service does."""


class ProxyTicket(Wire):
    """``url``: for a browser that reaches the master at the address of this request. For any other, ``path`` under ``host`` by
    loopback or through a tunnel, or under ``site_host``, which is "" where the site has none; both are "" where services share the
    master's own origin."""

    url: str
    path: str
    host: str
    site_host: str


router = new_router(prefix="/api/v1/tasks", tags=["proxies"])


@router.post("/{task_id}/proxy-tickets")
async def make_ticket(
    task_id: str,
    body: TicketRequest,
    request: Request,
    who: Editor,
    services: TheServices,
) -> ProxyTicket:
    """Where a browser opens a service of the task: an address that is valid once, within five minutes. On this machine it is valid
    for the user who asked, and for nobody else."""
    if body.path and (
        not body.path.startswith("/") or body.path.startswith(("//", "/\\")) or not body.path.isprintable()
    ):
        raise Refused(f"path {body.path[:100]!r} does not begin with one /")
    origins = services.origins
    service = await services.relays.service(task_id, body.port)
    scheme, name, port = where(request)
    if services.auth.tls is not None and "x-forwarded-proto" not in request.headers:
        scheme = "https"  # programs of this machine ask by a Unix socket, where no TLS is
    host, site_host = ("", "") if origins.shared else (origins.host(service), origins.site_host(service))
    by_name = host if is_loopback(name) else site_host
    if not by_name and not origins.shared:
        raise Refused(
            f"the site has no host names for tasks (master.proxy.origins) that browsers reach under {name}: open it through "
            f"ssh -L, or use det tunnel"
        )
    workspaces = await asyncio.to_thread(_workspaces, services.store, task_id)
    path = origins.ticket(service, workspaces, who.user_id, body.path, await peer(request))
    return ProxyTicket(url=f"{scheme}://{by_name or name}{port}{path}", path=path, host=host, site_host=site_host)


def _workspaces(store: SqlStore, task_id: str) -> frozenset[int]:
    with store.read() as connection:
        return frozenset(placement.workspaces_of(connection, "task", task_id))
