"""Tables of experiments and of runs, filtered and sorted by any column, as ``domain.filters`` reads them from requests.

What is a column of the database is filtered, sorted and cut there. Hyperparameters, metadata and configurations are JSON, which not
every SQLite can read and PostgreSQL reads only without NaN: where a request names one, the rows that meet the rest are read and
their JSON is looked at here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    FromClause,
    Row,
    Select,
    String,
    and_,
    case,
    cast,
    false,
    func,
    literal,
    or_,
    select,
    true,
    type_coerce,
)

from dethpc.domain import filter_values as values
from dethpc.domain.filters import METRICS, Filter, Group, Sorting, Term, metric_column
from dethpc.errors import Refused
from dethpc.state import rows
from dethpc.state.columns import decoded
from dethpc.state.queries.page import Page, in_states
from dethpc.state.tables import Summary

_summary = rows.table(Summary).c

Test = Callable[[Any], bool]

_ALIKE = 4096
"""Texts of JSON whose result is remembered: trials of one experiment share its configuration."""


class Column(NamedTuple):
    """One that rows of the table have. ``kind``: number, text, date, flag, state, labels, multitrial, or user, whose ``sql`` is a
    name and whose ``other`` is a number. ``path``: within ``sql``, which is JSON then."""

    sql: ColumnElement[Any]
    kind: str = "text"
    other: ColumnElement[Any] | None = None
    path: str = ""


@dataclass(frozen=True)
class Listing:
    """A table as requests see it. ``trial_id``: whose metrics a row shows; ``running``: whether a row that is ACTIVE runs."""

    noun: str
    location: str  # of its plain columns
    source: FromClause
    id: ColumnElement[int]
    trial_id: ColumnElement[Any]
    running: ColumnElement[bool]
    archived: ColumnElement[bool]
    columns: Mapping[str, Column]
    json: Mapping[str, tuple[str, str, ColumnElement[Any]]]
    """By location: what the names of its columns begin with, the path that stands before them, and the JSON."""


@dataclass(slots=True)
class _Leaf:
    """A term: a condition of the database, or a test of the text of JSON in ``source``."""

    condition: ColumnElement[bool] | None = None
    source: ColumnElement[Any] | None = None
    test: Test = bool
    place: int = 0  # in the rows that are read


@dataclass(slots=True)
class _Key:
    """What rows are sorted by: ``sql``, or what stands in it at ``path``."""

    sql: ColumnElement[Any]
    descending: bool
    path: str = ""
    place: int = 0


@dataclass(slots=True)
class _Request:
    listing: Listing
    where: list[ColumnElement[bool]]
    group: Group
    leaves: dict[int, _Leaf] = field(default_factory=dict)  # by the identity of their terms
    keys: list[_Key] = field(default_factory=list)

    @property
    def in_sql(self) -> bool:
        return all(leaf.source is None for leaf in self.leaves.values()) and not any(key.path for key in self.keys)


def chosen(
    connection: Connection,
    listing: Listing,
    where: Sequence[ColumnElement[bool]],
    criteria: Filter,
    orders: Sequence[Sorting],
    page: Page,
) -> tuple[list[int], int, int]:
    """The ids on the page, the total, and where the page begins; sorted by id last, and rows without a value come last. Raises
    Refused, in the words that requests are made in."""
    request = _Request(listing, list(where), criteria.group)
    for term in criteria.terms():
        request.leaves[id(term)] = _leaf(listing, term)
    request.keys = [_key(listing, order) for order in orders]
    if not criteria.show_archived:
        request.where.append(~listing.archived)
    if not any(order.column == "id" for order in orders):
        request.keys.append(_Key(listing.id, False))
    return _cut(connection, request, page) if request.in_sql else _sieved(connection, request, page)


# --- where all of it is the database's


def _cut(connection: Connection, request: _Request, page: Page) -> tuple[list[int], int, int]:
    listing = request.listing
    where = [*request.where, _joined(request, request.group, lambda leaf: leaf.condition)]
    total = connection.scalar(select(func.count()).select_from(listing.source).where(*where)) or 0
    begin = page.begin(total)
    if page.limit == 0:
        return [], total, begin
    query = select(listing.id).select_from(listing.source).where(*where).order_by(*_orders(request))
    return list(connection.scalars(query.offset(begin).limit(page.limit))), total, begin


def _orders(request: _Request) -> Iterator[ColumnElement[Any]]:
    for key in request.keys:
        by = key.sql.desc() if key.descending else key.sql.asc()
        yield by if key.sql is request.listing.id else by.nulls_last()


def _joined(request: _Request, group: Group, condition: Callable[[_Leaf], Any]) -> ColumnElement[bool]:
    parts = [
        _joined(request, child, condition) if isinstance(child, Group) else condition(request.leaves[id(child)])
        for child in group.children
    ]
    if not parts:
        return true()
    return or_(false(), *parts) if group.disjunction else and_(true(), *parts)


# --- where some of it is JSON


def _sieved(connection: Connection, request: _Request, page: Page) -> tuple[list[int], int, int]:
    """The database leaves out what cannot be meant; which of the others are meant is decided here."""
    listing = request.listing
    columns: list[ColumnElement[Any]] = [listing.id]
    for leaf in request.leaves.values():
        leaf.place = len(columns)
        condition = leaf.condition
        columns.append(type_coerce(leaf.source, String) if condition is None else case((condition, 1), else_=0))
    for key in request.keys:
        key.place = len(columns)
        columns.append(type_coerce(key.sql, String) if key.path else key.sql)
    possible = _joined(request, request.group, lambda leaf: true() if leaf.condition is None else leaf.condition)
    query: Select[Any] = select(*(column.label(f"c{n}") for n, column in enumerate(columns)))
    query = query.select_from(listing.source).where(*request.where, possible)
    in_order = not any(key.path for key in request.keys)
    if in_order:
        query = query.order_by(*_orders(request))
    read = lru_cache(_ALIKE)(lambda text, path: values.at_path(decoded(text), path))
    matches = [
        (row[0], () if in_order else [_sort_value(key, row, read) for key in request.keys])
        for row in connection.execute(query.execution_options(yield_per=1000))
        if _meets(request, request.group, row)
    ]
    for position, key in reversed(list(enumerate([] if in_order else request.keys))):
        valued = [match for match in matches if match[1][position] is not None]
        valued.sort(key=lambda match: match[1][position], reverse=key.descending)
        matches = [*valued, *(match for match in matches if match[1][position] is None)]
    ids = [match[0] for match in matches]
    return list(page.of(ids)), len(ids), page.begin(len(ids))


def _sort_value(key: _Key, row: Row[Any], read: Callable[[str, str], Any]) -> Any:
    value = read(row[key.place], key.path) if key.path else row[key.place]
    return None if value is None else values.sort_key(value)


def _meets(request: _Request, group: Group, row: Row[Any]) -> bool:
    def meets(child: Group | Term) -> bool:
        if isinstance(child, Group):
            return _meets(request, child, row)
        leaf = request.leaves[id(child)]
        return bool(row[leaf.place]) if leaf.condition is not None else leaf.test(row[leaf.place])

    return (any if group.disjunction and group.children else all)(meets(child) for child in group.children)


# --- columns


def _leaf(listing: Listing, term: Term) -> _Leaf:
    if term.location in METRICS:
        return _Leaf(_metric_condition(listing, term))
    if term.location in listing.json:
        source, path = _json_of(listing, term.location, term.column)
        make = values.hyperparameter_test if term.location == "HYPERPARAMETERS" else values.test_of
        return _json_leaf(source, path, make(term))
    if term.location != listing.location:
        raise Refused(f"filter: {listing.noun} have no columns at LOCATION_TYPE_{term.location}")
    column = _column(listing, term.column, "filter")
    if column.path:
        return _json_leaf(column.sql, column.path, _flag_or_text(column, term))
    return _Leaf(_condition(listing, column, term))


def _json_leaf(source: ColumnElement[Any], path: str, test: Test) -> _Leaf:
    return _Leaf(source=source, test=lru_cache(_ALIKE)(lambda text: test(values.at_path(decoded(text), path))))


def _flag_or_text(column: Column, term: Term) -> Test:
    if column.kind != "multitrial":
        return values.test_of(replace(term, type="TEXT"))
    goal = values.flag(term) if term.operator in ("=", "!=") else True
    return lambda name: ((name != "single") is goal) is (term.operator != "!=")


def _json_of(listing: Listing, location: str, name: str) -> tuple[ColumnElement[Any], str]:
    prefix, above, source = listing.json[location]
    return source, above + name.removeprefix(prefix)


def _column(listing: Listing, name: str, where: str) -> Column:
    if name not in listing.columns:
        possible = ", ".join(sorted(listing.columns))
        raise Refused(f"{where}: {listing.noun} have no column {name[:100]!r}, only {possible}")
    return listing.columns[name]


def _key(listing: Listing, order: Sorting) -> _Key:
    if order.column == "id":
        return _Key(listing.id, order.descending)
    for location, (prefix, _, _) in listing.json.items():
        if order.column.startswith(prefix):
            source, path = _json_of(listing, location, order.column)
            return _Key(source, order.descending, path)
    if order.column not in listing.columns and "." in order.column:
        return _Key(_statistic(listing, order.column, "NUMBER"), order.descending)
    column = _column(listing, order.column, "sort")
    return _Key(column.sql, order.descending, column.path)


# --- conditions of the database


def _condition(listing: Listing, column: Column, term: Term) -> ColumnElement[bool]:
    sql = column.sql
    if term.operator in ("isEmpty", "notEmpty"):
        text = type_coerce(sql, String)
        empty = or_(sql.is_(None), text.in_(["", "[]"])) if column.kind in ("text", "labels", "user") else sql.is_(None)
        return empty if term.operator == "isEmpty" else ~empty
    if column.kind == "state" and term.operator in ("=", "!="):
        return _state_condition(listing, sql, term)
    by_number = term.operator in values.COMPARISONS and not isinstance(term.value, str)
    if column.kind == "user" and column.other is not None and by_number:
        return _compared(column.other, term.operator, values.number(term))
    if column.kind == "labels":
        return _label_condition(sql, term)
    if term.operator in ("contains", "notContains"):
        if column.kind in ("date", "flag"):
            raise Refused(f"filter: {term.operator} is not for {term.column}: compare it")
        lower = func.lower(cast(sql, String) if column.kind == "number" else type_coerce(sql, String))
        part = lower.contains(values.text(term).lower(), autoescape=True)
        return part if term.operator == "contains" else ~part
    value = {"number": values.number, "date": values.moment, "flag": values.flag}.get(column.kind, values.text)(term)
    return _compared(type_coerce(sql, Double) if column.kind == "number" else sql, term.operator, value)


def _compared(sql: ColumnElement[Any], operator: str, value: Any) -> ColumnElement[bool]:
    compared: ColumnElement[bool] = values.COMPARISONS[operator](sql, literal(value))
    return compared


def _state_condition(listing: Listing, sql: ColumnElement[Any], term: Term) -> ColumnElement[bool]:
    name = values.text(term).removeprefix("STATE_").upper()
    condition = in_states(sql, frozenset({name}), listing.running)
    return condition if term.operator == "=" else ~condition


def _label_condition(sql: ColumnElement[Any], term: Term) -> ColumnElement[bool]:
    """Labels are a list in JSON: one of them is the value, or has it as a part."""
    text, label = type_coerce(sql, String), json.dumps(values.text(term))
    if term.operator in ("=", "!="):
        with_label = func.replace(text, label, "") != text
    elif term.operator in ("contains", "notContains"):
        with_label = func.lower(text).contains(label[1:-1].lower(), autoescape=True)
    else:
        raise Refused(f"filter: {term.operator} is not for {term.column}: use =, != or contains")
    return ~with_label if term.operator in ("!=", "notContains") else with_label


def _metric_condition(listing: Listing, term: Term) -> ColumnElement[bool]:
    numbers = term.type == "NUMBER" or (term.type == "UNSPECIFIED" and not isinstance(term.value, str))
    value = _statistic(listing, term.column, "NUMBER" if numbers else "TEXT")
    if term.operator in ("isEmpty", "notEmpty"):
        return value.is_(None) if term.operator == "isEmpty" else value.is_not(None)
    if term.operator in ("contains", "notContains"):
        part = func.lower(cast(value, String)).contains(values.text(term).lower(), autoescape=True)
        return part if term.operator == "contains" else ~part
    return _compared(value, term.operator, values.number(term) if numbers else values.text(term))


_ODD = ["NaN", "Infinity", "-Infinity", '"NaN"', '"Infinity"', '"-Infinity"']
_LONGEST_NUMBER = 300  # digits of a float, roughly


def numeric_statistics() -> dict[str, ColumnElement[Any]]:
    """Those of a summary of numbers, by name; what is no finite number counts as none."""
    last = type_coerce(_summary.last, String)
    return {
        "min": type_coerce(_summary.min, Double),
        "max": type_coerce(_summary.max, Double),
        "mean": case((_summary.sum == float("nan"), None), else_=type_coerce(_summary.sum, Double) / _summary.count),
        "last": case((or_(last.in_(_ODD), func.length(last) > _LONGEST_NUMBER), None), else_=cast(last, Double)),
    }


def _statistic(listing: Listing, column: str, kind: str) -> ColumnElement[Any]:
    """A statistic of the metric of the row's trial, as a number or as a text."""
    group, name, statistic = metric_column(column)
    value: ColumnElement[Any] = case((_summary.type == "number", numeric_statistics()[statistic]))
    if kind == "TEXT":
        value = func.trim(type_coerce(_summary.last, String), '"') if statistic == "last" else cast(value, String)
    own = (_summary.trial_id == listing.trial_id, _summary.group == group, _summary.name == name)
    query = select(value).where(*own).correlate_except(rows.table(Summary))
    return query.scalar_subquery()
