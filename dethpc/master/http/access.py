"""Dependencies of routes: the parts of the master that a route uses, the principal of the request, and pages of lists.

Dependencies that do not block are ``async``: FastAPI calls any other dependency in a thread, which takes longer than all of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any, cast

from fastapi import Depends, Query, Request
from sqlalchemy import Connection

from dethpc.domain.facts import Trial
from dethpc.domain.ids import AttemptId
from dethpc.domain.roles import Role
from dethpc.errors import NotFound, Refused
from dethpc.master.durable.records import Records
from dethpc.master.experiments.checkpoints import Checkpoints
from dethpc.master.experiments.control import Control
from dethpc.master.experiments.create import Creator
from dethpc.master.experiments.policy import Policies
from dethpc.master.experiments.searches import Searches
from dethpc.master.experiments.taking_in import Copies
from dethpc.master.experiments.unmanaged import Unmanaged
from dethpc.master.files.retention import LogRetention
from dethpc.master.http.auth import Auth, Forbidden, Principal
from dethpc.master.http.connection import VISIT
from dethpc.master.http.door import Visit
from dethpc.master.http.doorbell import Doorbell
from dethpc.master.http.middleware import GRANT
from dethpc.master.http.page_sessions import Grant
from dethpc.master.http.service import Services
from dethpc.master.installation import Installation
from dethpc.master.submitting.image_pulls import Images
from dethpc.master.watching.cluster_view import ClusterView
from dethpc.master.watching.foreign_runs import ForeignRuns
from dethpc.master.watching.wait_reasons import WaitReasons
from dethpc.master.watching.worker_reports import WorkerReports
from dethpc.master.webhooks.service import Webhooks
from dethpc.state import queries
from dethpc.state.queries import Order
from dethpc.state.store import SqlStore
from dethpc.web.access import May


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


async def logged_in(request: Request) -> Principal:
    """Any user, whatever their role, and any run."""
    return cast(Principal, request.state.principal)


async def principal(request: Request) -> Principal:
    """A run, or a user whose role allows a request of this method about what a run may ask for."""
    who = await logged_in(request)
    who.must_be(Role.VIEWER if request.method == "GET" else Role.EDITOR)
    return who


def _at_least(role: Role) -> Callable[[Request], Awaitable[Principal]]:
    async def user(request: Request) -> Principal:
        who = await logged_in(request)
        if who.is_run:
            raise Forbidden("a run's token does not allow this")
        who.must_be(role)
        return who

    return user


async def peer(request: Request) -> str:
    """Who is at the other end of the connection: see ``master.http.peer``."""
    visit: Visit | None = getattr(request.state, VISIT, None)
    return visit.peer if visit is not None else ""


def page_grant(request: Request) -> Grant | None:
    """What a page of this master shows that asks; None for every other client."""
    return cast("Grant | None", getattr(request.state, GRANT, None))


async def creating(request: Request) -> bool:
    """Whether a request that creates an experiment may do so, and not validate it alone."""
    page = page_grant(request)
    return page is None or page.may is May.RUN


def reading(request: Request) -> Iterator[Connection]:
    """A read-only connection for the time of the route's function."""
    with services(request).store.read() as connection:
        yield connection


TheInstallation = Annotated[Installation, _part("installation")]
TheAuth = Annotated[Auth, _part("auth")]
TheElsewhere = Annotated[ForeignRuns, _part("elsewhere")]
TheRecords = Annotated[Records, _part("records")]
TheStore = Annotated[SqlStore, _part("store")]
TheControl = Annotated[Control, _part("control")]
TheCreator = Annotated[Creator, _part("creator")]
TheCopies = Annotated[Copies, _part("copies")]
TheSearches = Annotated[Searches, _part("searches")]
TheUnmanaged = Annotated[Unmanaged, _part("unmanaged")]
TheBeside = Annotated[WorkerReports, _part("beside")]
TheCheckpoints = Annotated[Checkpoints, _part("checkpoints")]
TheRetention = Annotated[LogRetention, _part("retention")]
ThePolicies = Annotated[Policies, Depends(policies)]
TheCluster = Annotated[ClusterView, _part("cluster")]
TheWaits = Annotated[WaitReasons, _part("waits")]
TheImages = Annotated[Images, _part("images")]
TheDoorbell = Annotated[Doorbell, _part("doorbell")]
TheWebhooks = Annotated[Webhooks, _part("webhooks")]
AnyUser = Annotated[Principal, Depends(_at_least(Role.NONE))]
Viewer = Annotated[Principal, Depends(_at_least(Role.VIEWER))]
Editor = Annotated[Principal, Depends(_at_least(Role.EDITOR))]
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


def order(sort_by: str, order_by: str, unsorted: str = "id") -> Order:
    key = sort_by.removeprefix("SORT_BY_").lower()
    return Order(unsorted if key in ("", "unspecified") else key, order_by == "ORDER_BY_DESC")


def whole(value: str | float, what: str) -> int:
    """The whole number that a client sent as text or with a fraction. Raises Refused."""
    try:
        return int(value)
    except (ValueError, OverflowError):
        raise Refused(f"{what} must be a whole number, not {str(value)[:100]!r}") from None
