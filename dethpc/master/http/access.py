"""Dependencies of routes: the parts of the master that a route uses, the principal of the request, and pages of lists.

Dependencies that do not block are ``async``: FastAPI calls any other dependency in a thread, which takes longer than all of them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, Query, Request
from sqlalchemy import Connection

from dethpc.domain.facts import Trial
from dethpc.domain.ids import AttemptId
from dethpc.domain.roles import Role
from dethpc.errors import AlreadyExists, NotFound, Refused
from dethpc.master.durable.records import RecordReader, Records
from dethpc.master.experiments.archives.importing import Copies
from dethpc.master.experiments.checkpoints import Checkpoints
from dethpc.master.experiments.control import Control
from dethpc.master.experiments.create import Creator
from dethpc.master.experiments.policy import Policies
from dethpc.master.experiments.searches import Searches
from dethpc.master.experiments.unmanaged import Unmanaged
from dethpc.master.files.retention import LogRetention
from dethpc.master.http.auth import Auth, Forbidden, Principal
from dethpc.master.http.doorbell import Doorbell
from dethpc.master.http.limits import CLIENT, Client
from dethpc.master.http.middleware import GRANT
from dethpc.master.http.models import Pagination, page, paged
from dethpc.master.http.page_sessions import Grant
from dethpc.master.http.service import Services
from dethpc.master.installation import Installation
from dethpc.master.submitting.image_pulls import Images
from dethpc.master.tasks.launching import Launcher
from dethpc.master.watching.cluster_view import ClusterView
from dethpc.master.watching.foreign_runs import ForeignRuns
from dethpc.master.watching.wait_reasons import WaitReasons
from dethpc.master.watching.worker_reports import WorkerReports
from dethpc.master.webhooks.service import Webhooks
from dethpc.state import queries
from dethpc.state.queries import Order, Page, placement
from dethpc.state.store import NarrowStore, SqlStore
from dethpc.web.access import May, is_read


def services(request: Request) -> Services:
    """The master's objects."""
    return cast(Services, request.app.state.services)


def _part(name: str) -> Any:
    """A dependency: one of the ``Services``."""

    async def part(request: Request) -> Any:
        return getattr(services(request), name)

    return Depends(part)


async def policies(request: Request) -> Policies:
    return services(request).checkpoints.policies


async def all_services(request: Request) -> Services:
    return services(request)


async def logged_in(request: Request) -> Principal:
    """Any user, whatever their role, and any run."""
    return cast(Principal, request.state.principal)


async def principal(request: Request) -> Principal:
    """A run, or a user whose role allows a request of this method about what a run may ask for; see ``_at_least``."""
    who = await logged_in(request)
    role = Role.VIEWER if request.method == "GET" else Role.EDITOR
    await _check_role(request, who, role, in_any_workspace=True)
    return who


def _at_least(role: Role, *, in_any_workspace: bool = False) -> Callable[[Request], Awaitable[Principal]]:
    """``in_any_workspace``: a role in one workspace suffices where the path names nothing that lies in any, because the route reads
    by ``Reading`` and ``TheStore`` alone, which are narrowed, and asks ``must_be`` about what a body names."""

    async def user(request: Request) -> Principal:
        who = await logged_in(request)
        if who.is_run:
            raise Forbidden("a run's token does not allow this")
        await _check_role(request, who, role, in_any_workspace=in_any_workspace)
        return who

    return user


editor = _at_least(Role.EDITOR)


async def _check_role(request: Request, who: Principal, role: Role, *, in_any_workspace: bool) -> None:
    """Raises: Forbidden; NotFound about what lies in a workspace that the user does not see."""
    if who.is_run or who.role >= role:
        return
    places = await asyncio.to_thread(_places, request) if who.role or who.workspaces else {}
    if who.workspaces:
        for name, workspaces in places.items():
            if not workspaces or any(id and who.role_in(id) < Role.VIEWER for id in workspaces):
                if _names_new(request):
                    raise AlreadyExists(
                        f"the name is taken: there is a {name} in another workspace; choose another name"
                    )
                raise NotFound(f"{name} not found")
        if places and all(who.role_in(id) >= role for workspaces in places.values() for id in workspaces):
            return
        if not places and in_any_workspace and max(who.workspaces.values()) >= role:
            return
    lacking = [id for ids in places.values() for id in sorted(ids) if who.role_in(id) < role]
    somewhere = 0 not in lacking and (in_any_workspace or any(_named(request)))
    await asyncio.to_thread(partial(who.must_be, role, lacking[0] if lacking else 0, somewhere=somewhere))


_NOUNS = {
    "experiment_id": "experiment",
    "trial_id": "trial",
    "run_id": "trial",
    "run": "run",
    "task_id": "task",
    "launched_task_id": "task",
    "command_id": "task",
    "notebook_id": "task",
    "shell_id": "task",
    "tensorboard_id": "task",
    "uuid": "checkpoint",
    "job_id": "job",
    "workspace_id": "workspace",
    "project_id": "project",
    "model_name": "model",
    "webhook_id": "webhook",
}
"""What the parameters of paths name."""

_BY_TEXT = ("run", "task", "job", "checkpoint")
"""Nouns whose ids are text, digits or not."""


def _places(request: Request) -> dict[str, set[int]]:
    """The workspaces of each thing that the path names; of none where it does not exist. Nothing for "all projects"."""
    places = {}
    with services(request).store.read() as connection:
        for noun, value in _named(request):
            places[f"{noun} {value}"] = placement.workspaces_of(connection, noun, value)
        if _names_new(request):
            places = {name: workspaces for name, workspaces in places.items() if workspaces}  # it may be a new one
    return places


def _names_new(request: Request) -> bool:
    """Whether the path names what may be created."""
    return _route(request) == "/api/v1/templates/{name}" and request.method in ("POST", "PUT")


def _route(request: Request) -> str:
    """Its path as it was declared; "" of the proxy, which has none."""
    route = request.scope.get("route")
    return route.path if route is not None else ""


def _named(request: Request) -> Iterator[tuple[str, Any]]:
    path = _route(request)
    for name, value in request.path_params.items():
        if name in _NOUNS:
            number = int(value) if re.fullmatch(r"-?[0-9]{1,18}", str(value)) else None
            if name in ("workspace_id", "project_id") and number is not None and number <= 0:
                continue
            if name == "model_name":
                yield ("model", value) if number is None or number < 0 else ("model_id", number)
            else:
                yield _NOUNS[name], value if number is None or _NOUNS[name] in _BY_TEXT else number
        elif name == "allocation_id":
            yield "run", str(value).rpartition(".")[0]
        elif name == "key" and path.startswith("/api/v1/projects/key/"):
            yield "key", str(value).upper()
        elif name == "name" and path.startswith("/api/v1/templates/"):
            yield "template", value


async def peer(request: Request) -> str:
    """Who is at the other end of the connection: see ``master.http.peer``."""
    client: Client | None = getattr(request.state, CLIENT, None)
    return client.peer if client is not None else ""


def page_grant(request: Request) -> Grant | None:
    """What a page of this master shows that asks; None for every other client."""
    return cast("Grant | None", getattr(request.state, GRANT, None))


async def creating(request: Request) -> bool:
    """Whether a request that creates an experiment may do so, and not validate it alone."""
    page = page_grant(request)
    return page is None or page.may is May.RUN


def _narrowed(request: Request, role: Role) -> SqlStore | NarrowStore:
    """What lies where the principal has this role."""
    who: Principal | None = getattr(request.state, "principal", None)
    workspaces = who.workspaces_as(role) if who is not None and who.workspaces else None
    store: SqlStore = services(request).store
    return store if workspaces is None else NarrowStore(store, workspaces)


async def readable(request: Request) -> SqlStore | NarrowStore:
    """What the principal may see of the store; and where the request changes something, what they may change."""
    return _narrowed(request, Role.VIEWER if is_read(request.method, request.url.path) else Role.EDITOR)


async def visible(request: Request) -> SqlStore | NarrowStore:
    """What the principal may see of the store, also where the request changes something."""
    return _narrowed(request, Role.VIEWER)


TheStore = Annotated[SqlStore | NarrowStore, Depends(readable)]


async def visible_records(request: Request) -> RecordReader:
    """The records that the principal may see, also where the request changes something."""
    who: Principal = request.state.principal
    return services(request).records.within(who.workspaces_as(Role.VIEWER))


VisibleStore = Annotated[SqlStore | NarrowStore, Depends(visible)]
VisibleRecords = Annotated[RecordReader, Depends(visible_records)]


def reading(store: TheStore) -> Iterator[Connection]:
    """A read-only connection for the time of the route's function."""
    with store.read() as connection:
        yield connection


TheServices = Annotated[Services, Depends(all_services)]
TheInstallation = Annotated[Installation, _part("installation")]
TheAuth = Annotated[Auth, _part("auth")]
TheForeignRuns = Annotated[ForeignRuns, _part("foreign_runs")]
TheRecords = Annotated[Records, _part("records")]
TheControl = Annotated[Control, _part("control")]
TheCreator = Annotated[Creator, _part("creator")]
TheLauncher = Annotated[Launcher, _part("launcher")]
TheCopies = Annotated[Copies, _part("copies")]
TheSearches = Annotated[Searches, _part("searches")]
TheUnmanaged = Annotated[Unmanaged, _part("unmanaged")]
TheWorkerReports = Annotated[WorkerReports, _part("worker_reports")]
TheCheckpoints = Annotated[Checkpoints, _part("checkpoints")]
TheRetention = Annotated[LogRetention, _part("retention")]
ThePolicies = Annotated[Policies, Depends(policies)]
TheCluster = Annotated[ClusterView, _part("cluster")]
TheWaits = Annotated[WaitReasons, _part("waits")]
TheImages = Annotated[Images, _part("images")]
TheDoorbell = Annotated[Doorbell, _part("doorbell")]
TheWebhooks = Annotated[Webhooks, _part("webhooks")]
ViewerSomewhere = Annotated[Principal, Depends(_at_least(Role.VIEWER, in_any_workspace=True))]
EditorSomewhere = Annotated[Principal, Depends(_at_least(Role.EDITOR, in_any_workspace=True))]
AdminSomewhere = Annotated[Principal, Depends(_at_least(Role.ADMIN, in_any_workspace=True))]
"""Also those who have the role in one workspace alone, and whom the route shows nothing else."""
AnyUser = Annotated[Principal, Depends(_at_least(Role.NONE))]
Viewer = Annotated[Principal, Depends(_at_least(Role.VIEWER))]
Editor = Annotated[Principal, Depends(editor)]
Owner = Annotated[Principal, Depends(_at_least(Role.ADMIN))]
"""The owner of the master, and who is made an admin beside them."""
Peer = Annotated[str, Depends(peer)]
MayCreate = Annotated[bool, Depends(creating)]
AnyPrincipal = Annotated[Principal, Depends(principal)]
# Given back before the answer goes out: a client that reads slowly, or follows a log, must not keep a connection.
Reading = Annotated[Connection, Depends(reading, scope="function")]


def may_see_experiment(who: Principal, experiment_id: int | None) -> None:
    """Raises: Forbidden when a run asks about an experiment that is not its own, or about what belongs to none (None)."""
    if who.is_run and (experiment_id is None or who.experiment_id != experiment_id):
        raise Forbidden("a run's token does not allow access to another experiment")


def visible_trial(connection: Connection, who: Any, trial_id: int) -> Trial:
    """Raises: NotFound, Forbidden."""
    fact = queries.trial(connection, trial_id)
    may_see_experiment(who, fact.experiment_id)
    return fact


def may_be_run(who: Principal, run_id: str) -> None:
    """Raises: Forbidden when a run speaks for another."""
    if who.is_run and who.run_id != run_id:
        raise Forbidden("a run's token does not allow access to another run")


def attempt_id(text: str) -> AttemptId:
    """Raises: NotFound."""
    try:
        return AttemptId.parse(text)
    except ValueError:
        raise NotFound(f"allocation {text} not found") from None


# --- pages and orders, as clients ask for them

Limit = Annotated[int, Query(description="At most this many items; 0 or -1: all of them; -2: only the count.")]
Offset = Annotated[int, Query(description="Skip this many items; a negative number counts from the end.")]
OrderBy = Annotated[str, Query(alias="orderBy")]
SortBy = Annotated[str, Query(alias="sortBy")]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Paging:
    """Which page of a list a request is for."""

    limit: Limit = 0
    offset: Offset = 0

    @property
    def page(self) -> Page:
        return page(self.offset, self.limit)

    def of(self, items: Sequence[T]) -> tuple[list[T], Pagination]:
        """The page of a list that is in memory."""
        return paged(items, self.offset, self.limit)

    def pagination(self, total: int, begin: int, count: int) -> Pagination:
        return Pagination.of(total, begin, self.limit, count)


@dataclass(frozen=True, slots=True)
class Sorting:
    """In which order a request is for a list."""

    sort_by: SortBy = ""
    order_by: OrderBy = ""

    @property
    def descending(self) -> bool:
        return self.order_by == "ORDER_BY_DESC"

    def order(self, unsorted: str = "id") -> Order:
        return order(self.sort_by, self.order_by, unsorted)


ThePage = Annotated[Paging, Depends()]
TheOrder = Annotated[Sorting, Depends()]


def order(sort_by: str, order_by: str, unsorted: str = "id") -> Order:
    key = sort_by.removeprefix("SORT_BY_").lower()
    return Order(unsorted if key in ("", "unspecified") else key, order_by == "ORDER_BY_DESC")


def whole(value: str | float, what: str) -> int:
    """The whole number that a client sent as text or with a fraction. Raises Refused."""
    try:
        return int(value)
    except (ValueError, OverflowError):
        raise Refused(f"{what} must be a whole number, not {str(value)[:100]!r}") from None
