"""What every route needs: the master, who is asking, and a page of a list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, cast

from fastapi import Depends, Query, Request
from sqlalchemy import Connection

from dethpc.domain.ids import AttemptId
from dethpc.errors import NotFound
from dethpc.master.http.auth import Forbidden, Principal
from dethpc.master.http.service import Master
from dethpc.state.queries import Order


def the_master(request: Request) -> Master:
    return cast(Master, request.app.state.master)


def principal(request: Request) -> Principal:
    return cast(Principal, request.state.principal)


def owner(request: Request) -> Principal:
    """Only the owner, not a run."""
    who = principal(request)
    if not who.is_owner:
        raise Forbidden("a run's token is not good for this")
    return who


def reading(request: Request) -> Iterator[Connection]:
    """A read-only connection for the time of the route's function."""
    with the_master(request).store.read() as connection:
        yield connection


TheMaster = Annotated[Master, Depends(the_master)]
Owner = Annotated[Principal, Depends(owner)]
Anyone = Annotated[Principal, Depends(principal)]
# Given back before the answer goes out: a client that reads slowly, or follows a log, must not keep a connection.
Reading = Annotated[Connection, Depends(reading, scope="function")]


def may_see_experiment(who: Principal, experiment_id: int) -> None:
    """Raises: Forbidden when a run asks about an experiment that is not its own."""
    if not who.is_owner and who.experiment_id != experiment_id:
        raise Forbidden("a run's token is not good for another experiment")


def may_be_run(who: Principal, run_id: str) -> None:
    """Raises: Forbidden when a run speaks for another."""
    if not who.is_owner and who.run_id != run_id:
        raise Forbidden("a run's token is not good for another run")


def attempt_id(text: str) -> AttemptId:
    """Raises: NotFound."""
    try:
        return AttemptId.parse(text)
    except ValueError:
        raise NotFound(f"allocation {text} not found") from None


# --- pages and orders, as clients ask for them

Limit = Annotated[int, Query(description="At most so many items; 0 or -1: all of them, -2: only how many there are.")]
Offset = Annotated[int, Query(description="Skip so many items; a negative number counts from the end.")]
OrderBy = Annotated[str, Query(alias="orderBy")]
SortBy = Annotated[str, Query(alias="sortBy")]


def order(sort_by: str, order_by: str, unsorted: str = "id") -> Order:
    key = sort_by.removeprefix("SORT_BY_").lower()
    return Order(unsorted if key in ("", "unspecified") else key, order_by == "ORDER_BY_DESC")
