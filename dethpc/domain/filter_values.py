"""Whether a value of JSON, such as a hyperparameter or metadata of a run, meets a term of a filter."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from typing import Any

from dethpc.domain.filters import Term
from dethpc.domain.text import times
from dethpc.domain.text.not_finite import as_float
from dethpc.errors import Refused

COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def number(term: Term) -> float:
    """The term's value as a number. Raises Refused."""
    value = term.value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value if abs(value) < 2**63 else as_float(value)
    try:
        return float(value if isinstance(value, str) else "")
    except ValueError:
        raise _refused(term, "a number") from None


def moment(term: Term) -> float:
    """The term's value, a time in RFC 3339, as seconds since the epoch. Raises Refused."""
    at = seconds(term.value) if isinstance(term.value, str) else None
    if at is None:
        raise _refused(term, "a time such as 2025-11-13T02:13:20Z")
    return at


def flag(term: Term) -> bool:
    """Raises Refused."""
    value = {"true": True, "false": False}.get(term.value, term.value) if isinstance(term.value, str) else term.value
    if not isinstance(value, bool):
        raise _refused(term, "true or false")
    return value


def text(term: Term) -> str:
    return str(term.value).lower() if isinstance(term.value, bool) else str(term.value)


def _refused(term: Term, needs: str) -> Refused:
    return Refused(f"filter: {term.column[:100]} is compared with {needs}, not with {str(term.value)[:60]!r}")


def seconds(value: str) -> float | None:
    """Seconds since the epoch of an RFC 3339 time; None where it is none."""
    try:
        return times.seconds(value)
    except (ValueError, OverflowError):
        return None


def at_path(values: Any, path: str) -> Any:
    """The value at ``optimizer.lr``; None where there is none. Names may have dots themselves."""
    if isinstance(values, dict):
        if path in values:
            return values[path]
        head, dot, rest = path.partition(".")
        while dot:
            if head in values and (value := at_path(values[head], rest)) is not None:
                return value
            part, dot, rest = rest.partition(".")
            head = f"{head}.{part}"
    return None


def test_of(term: Term) -> Callable[[Any], bool]:
    """Whether a value of JSON meets the term. Of a list, one item suffices. What cannot be compared does not meet it. Raises
    Refused."""
    if term.operator == "isEmpty":
        return is_empty
    if term.operator == "notEmpty":
        return lambda value: not is_empty(value)
    if term.operator in ("contains", "notContains"):
        part, positive = text(term).lower(), term.operator == "contains"
        return lambda value: value is not None and any(part in _as_text(item) for item in _items(value)) is positive
    compare = COMPARISONS[term.operator]
    if term.type == "DATE":
        at = moment(term)
        return lambda value: any(compare(time, at) for time in _times(value))
    goal = number(term) if term.type == "NUMBER" else term.value
    return lambda value: value is not None and any(_meets(item, goal, compare) for item in _items(value))


def is_empty(value: Any) -> bool:
    return value is None or value in ("", [], {})


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _as_text(value: Any) -> str:
    return value.lower() if isinstance(value, str) else json.dumps(value).lower()


def _times(value: Any) -> list[float]:
    times = (seconds(item) for item in _items(value) if isinstance(item, str))
    return [time for time in times if time is not None]


def _meets(value: Any, goal: Any, compare: Callable[[Any, Any], Any]) -> bool:
    if isinstance(value, bool) and isinstance(goal, str):
        return bool(compare(json.dumps(value), goal.lower()))
    if isinstance(value, bool) is not isinstance(goal, bool):
        return False
    if isinstance(value, (int, float)) and isinstance(goal, str):
        value = str(value)
    comparable = isinstance(value, str) is isinstance(goal, str) and isinstance(value, (str, int, float))
    return comparable and bool(compare(value, goal))


def hyperparameter_test(term: Term) -> Callable[[Any], bool]:
    """Whether a hyperparameter as an experiment configures it meets the term: its value, one of its values, or a bound of its
    range. A range contains what lies in it. Raises Refused."""
    test = test_of(term)
    inside = _inside(term) if term.operator in ("contains", "notContains") else None

    def check(value: Any) -> bool:
        if not isinstance(value, dict) or "type" not in value:
            return test(value)
        if value["type"] == "const":
            return test(value.get("val"))
        if value["type"] == "categorical":
            return test(value.get("vals"))
        bounds = [value.get("minval"), value.get("maxval")]
        return test(bounds) if inside is None else inside(bounds)

    return check


def _inside(term: Term) -> Callable[[list[Any]], bool]:
    try:
        point, positive = number(term), term.operator == "contains"
    except Refused:
        return lambda bounds: term.operator == "notContains"
    return lambda bounds: None not in bounds and (bounds[0] <= point <= bounds[1]) is positive


def sort_key(value: Any) -> tuple[int, Any]:
    """By which values of JSON are sorted, of whatever types: numbers, then texts, then the others."""
    if isinstance(value, (int, float)):
        return 0, value
    return (1, value) if isinstance(value, str) else (2, json.dumps(value))
