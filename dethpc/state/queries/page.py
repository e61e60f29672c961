"""How a list is cut into pages: order, offset and limit, along the indexes of the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import nlargest, nsmallest
from typing import Any, NamedTuple, TypeVar, cast

from sqlalchemy import ColumnElement, Connection, Select, and_, func, or_, select

from dethpc.domain.states import State
from dethpc.errors import NotFound, Refused
from dethpc.state import rows
from dethpc.state.dialects import VALUES, execute_in_chunks

Fact = TypeVar("Fact")
Value = TypeVar("Value")
Key = TypeVar("Key", int, str)


@dataclass(slots=True)
class Order:
    """How a list is sorted: by a key of the list's own table of keys; equals by id."""

    key: str = "id"
    descending: bool = False


@dataclass(slots=True)
class Page:
    """``limit`` None: all of it; 0: nothing, only the total counts. A negative offset counts from the end."""

    offset: int = 0
    limit: int | None = 100

    def begin(self, total: int) -> int:
        return max(total + self.offset, 0) if self.offset < 0 else min(self.offset, total)

    def of(self, items: Sequence[Value]) -> Sequence[Value]:
        """The page of a list that is in memory."""
        begin = self.begin(len(items))
        return items[begin:] if self.limit is None else items[begin : begin + self.limit]


def one(connection: Connection, fact: type[Fact], what: str, **key: Any) -> Fact:
    """The one with these values. Raises: NotFound."""
    matches = rows.find(connection, fact, **key)
    if not matches:
        raise NotFound(f"{what} not found")
    return matches[0]


def total_of(connection: Connection, fact: type[Any], where: Sequence[ColumnElement[bool]]) -> int:
    return connection.scalar(select(func.count()).select_from(rows.table(fact)).where(*where)) or 0


def sort_key(keys: Mapping[str, ColumnElement[Any]], order: Order, *others: str) -> ColumnElement[Any]:
    """``others``: what the list can be sorted by without a key. Raises Refused, in the words that requests are made in."""
    if order.key not in keys:
        wrong, *possible = (f"SORT_BY_{name.upper()}" for name in (order.key, *keys, *others))
        raise Refused(f"cannot sort by {wrong}, only by {', '.join(possible)}")
    return keys[order.key]


class Sorted(NamedTuple):
    """A list in its order: of the rows ``where``, by ``key``, equals by ``id``. ``larger_first``: what ascending means for the key.
    Rows without a value come last either way."""

    where: Sequence[ColumnElement[bool]]
    key: ColumnElement[Any]
    id: ColumnElement[Any]
    descending: bool
    larger_first: bool = False

    def ids(self, connection: Connection, begin: int, page: Page) -> list[Any]:
        """Those of a page."""
        if page.limit == 0:
            return []
        by = self.key.desc() if self.descending != self.larger_first else self.key.asc()
        tie = self.id.desc() if self.descending else self.id.asc()
        keys = [tie] if self.key is self.id else [by.nulls_last(), tie]
        query = select(self.id).where(*self.where).order_by(*keys).offset(begin).limit(page.limit)
        return list(connection.scalars(query))

    def page(self, connection: Connection, fact: type[Fact], begin: int, page: Page) -> list[Fact]:
        """Only ids are sorted, and only the page's rows are read."""
        ids = self.ids(connection, begin, page)
        by_id = {getattr(item, self.id.key or ""): item for item in having(connection, fact, self.id, ids)}
        return [by_id[one] for one in ids]


def by_value(ids: Sequence[Key], values: Mapping[Key, Any], order: Order, page: Page) -> Sequence[Key]:
    """A page of ids by value, those without one last."""
    begin = page.begin(len(ids))
    valued = ((values[id], id) for id in ids if id in values)
    end = len(ids) if page.limit is None else begin + page.limit
    cut_off = nlargest if order.descending else nsmallest
    chosen = [id for _, id in cut_off(end, valued)]
    if len(chosen) < end:
        chosen += [id for id in ids if id not in values]
    return chosen[begin:end]


def having(connection: Connection, fact: type[Fact], column: ColumnElement[Any], values: Sequence[Any]) -> list[Fact]:
    return [fact(*row) for row in execute_in_chunks(connection, _among(cast(Any, fact), column), values)]


# Statements are made once where they can be: making one takes several times as long as running it.


@cache
def _among(fact: type[Any], column: ColumnElement[Any]) -> Select[Any]:
    return rows.query(fact, column.in_(VALUES))


def in_states(column: ColumnElement[Any], names: frozenset[str], running: ColumnElement[bool]) -> ColumnElement[bool]:
    plain = [State(name) for name in names if name in State.__members__]
    conditions: list[ColumnElement[bool]] = [column.in_(plain)]
    if State.ACTIVE.value not in names:
        if names & {"RUNNING"}:
            conditions.append(and_(column == State.ACTIVE, running))
        if names & {"QUEUED", "PULLING", "STARTING"}:
            conditions.append(and_(column == State.ACTIVE, ~running))
    return or_(*conditions)
