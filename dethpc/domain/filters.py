"""Filters and orders of tables of experiments and runs in Determined's grammar: JSON of groups of terms, and names of columns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Union

from dethpc.errors import Refused

OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "contains", "notContains", "isEmpty", "notEmpty")
WITHOUT_VALUE = ("isEmpty", "notEmpty")
TYPES = ("UNSPECIFIED", "TEXT", "NUMBER", "DATE", "ARRAY")
STATISTICS = ("min", "max", "mean", "last")
PLAIN = ("EXPERIMENT", "RUN")
METRICS = ("VALIDATIONS", "TRAINING", "CUSTOM_METRIC")
LOCATIONS = (*PLAIN, *METRICS, "HYPERPARAMETERS", "RUN_HYPERPARAMETERS", "RUN_METADATA")

MOST_TERMS = 500
"""A database takes expressions of a thousand levels, and reads a chain of ORs as levels."""
MOST_GROUPS = 30  # in each other
LONGEST_COLUMN = 500


@dataclass(frozen=True, slots=True)
class Term:
    """A condition on one column. ``value`` is a text, a number or a flag; None where ``operator`` needs none."""

    column: str
    location: str
    operator: str
    type: str
    value: Any


@dataclass(frozen=True, slots=True)
class Group:
    """``disjunction``: one of the children suffices, where there are any."""

    disjunction: bool
    children: tuple[Condition, ...]


Condition = Union[Term, Group]


@dataclass(frozen=True, slots=True)
class Filter:
    group: Group = Group(False, ())
    show_archived: bool = True

    def terms(self) -> Iterator[Term]:
        return _terms(self.group)


def _terms(group: Group) -> Iterator[Term]:
    for child in group.children:
        if isinstance(child, Group):
            yield from _terms(child)
        else:
            yield child


def parse(text: str | None) -> Filter:
    """What ``filter`` of a request means; no text means no condition. Raises Refused."""
    if not text:
        return Filter()
    try:
        root = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"filter is no JSON that can be read: {str(error)[:200]}") from None
    if not isinstance(root, dict) or not isinstance(root.get("filterGroup"), dict):
        raise Refused('filter must be an object {"filterGroup": {...}, "showArchived": true or false}')
    group = _condition(root["filterGroup"], 0)
    if not isinstance(group, Group):
        raise Refused('filterGroup must be of the kind "group"')
    condition = Filter(group, root.get("showArchived") is True)
    if sum(1 for _ in condition.terms()) > MOST_TERMS:
        raise Refused(f"filter has more than {MOST_TERMS} conditions")
    return condition


def _condition(item: Any, level: int) -> Condition:
    if not isinstance(item, dict):
        raise Refused(f"filter: a condition must be an object, not {_shown(item)}")
    if level > MOST_GROUPS:
        raise Refused(f"filter has more than {MOST_GROUPS} groups in each other")
    if item.get("kind") == "field":
        return _term(item)
    if item.get("kind") != "group":
        raise Refused(f'filter: kind is "field" or "group", not {_shown(item.get("kind"))}')
    if item.get("conjunction") not in ("and", "or"):
        raise Refused(f'filter: conjunction of a group is "and" or "or", not {_shown(item.get("conjunction"))}')
    children = item.get("children") or []
    if not isinstance(children, list):
        raise Refused(f"filter: children of a group must be a list, not {_shown(children)}")
    conditions = (_condition(child, level + 1) for child in children)
    # a term that still lacks its value says nothing yet: the table sends it while it is being written
    complete = [one for one in conditions if isinstance(one, Group) or one.value is not None or _needs_none(one)]
    return Group(item["conjunction"] == "or", tuple(complete))


def _needs_none(term: Term) -> bool:
    return term.operator in WITHOUT_VALUE


def _term(item: dict[str, Any]) -> Term:
    column, value, operator = item.get("columnName"), item.get("value"), item.get("operator")
    if not isinstance(column, str) or not 0 < len(column) <= LONGEST_COLUMN:
        raise Refused(f"filter: columnName must be the name of a column, not {_shown(column)}")
    if operator not in OPERATORS:
        raise Refused(f"filter: operator is one of {', '.join(OPERATORS)}, not {_shown(operator)}")
    if isinstance(value, (dict, list)):
        raise Refused(f"filter: value of {column[:100]} must be a text, a number, true or false")
    location = _choice(item, "location", "LOCATION_TYPE_", LOCATIONS, "EXPERIMENT")
    kind = _choice(item, "type", "COLUMN_TYPE_", TYPES, "UNSPECIFIED")
    return Term(_storable(column), location, operator, kind, _storable(value) if isinstance(value, str) else value)


def _storable(text: str) -> str:
    """No database holds NUL or lone surrogates, and some complain when they are asked for such."""
    return text.replace("\0", "\ufffd").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _choice(item: dict[str, Any], field: str, prefix: str, choices: tuple[str, ...], default: str) -> str:
    value = item.get(field)
    if value is None or value == f"{prefix}UNSPECIFIED":
        return default
    if not isinstance(value, str) or value.removeprefix(prefix) not in choices:
        possible = ", ".join(prefix + choice for choice in choices)
        raise Refused(f"filter: {field} is one of {possible}, not {_shown(value)}")
    return value.removeprefix(prefix)


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(value)[:60]


class Sorting(NamedTuple):
    column: str
    descending: bool


def sortings(text: str | None) -> list[Sorting]:
    """Of ``column=asc,column=desc``. Raises Refused."""
    orders = []
    for part in (text or "").split(",") if text else []:
        column, _, direction = part.strip().rpartition("=")
        if not column or direction not in ("asc", "desc"):
            raise Refused(f"sort must be as in startTime=desc,id=asc: {part[:60]!r} is not")
        orders.append(Sorting(_storable(column), direction == "desc"))
    if len(orders) > MOST_GROUPS:
        raise Refused(f"sort has more than {MOST_GROUPS} columns")
    return orders


class MetricColumn(NamedTuple):
    """A statistic of a metric: ``validation.loss.min``."""

    group: str
    name: str
    statistic: str


_METRIC = re.compile(rf"([^.]+)\.(.+)\.({'|'.join(STATISTICS)})", re.DOTALL)


def metric_column(column: str) -> MetricColumn:
    """Raises Refused."""
    if (parts := _METRIC.fullmatch(column)) is None:
        statistics = ", ".join(STATISTICS)
        raise Refused(f"{column[:100]!r} is no column of a metric: it is GROUP.NAME. and one of {statistics}")
    return MetricColumn(*parts.groups())
