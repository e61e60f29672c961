"""The grammar of filters and orders: what it means, and that what makes no sense is refused in words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dethpc.domain import filter_values, filters
from dethpc.domain.filters import Filter, Group, MetricColumn, Sorting, Term
from dethpc.errors import Refused


def field(column: Any = "id", operator: Any = "=", value: Any = 1, **others: Any) -> dict[str, Any]:
    return {"kind": "field", "columnName": column, "operator": operator, "value": value, **others}


def group(*children: Any, conjunction: Any = "and") -> dict[str, Any]:
    return {"kind": "group", "conjunction": conjunction, "children": list(children)}


def text_of(*children: Any, **others: Any) -> str:
    return json.dumps({"filterGroup": group(*children), "showArchived": False, **others})


def test_a_filter_is_read_with_its_groups() -> None:
    part = group(field("name", "contains", "x", location="LOCATION_TYPE_RUN"), conjunction="or")
    condition = filters.parse(text_of(field(type="COLUMN_TYPE_NUMBER"), part, id="x"))
    assert condition.group.children == (
        Term("id", "EXPERIMENT", "=", "NUMBER", 1),
        Group(True, (Term("name", "RUN", "contains", "UNSPECIFIED", "x"),)),
    )
    assert not condition.show_archived and filters.parse(text_of(showArchived=True)).show_archived
    assert filters.parse(None) == filters.parse("") == Filter()


def test_a_term_without_its_value_says_nothing_yet() -> None:
    empty = field("name", "isEmpty", None)
    condition = filters.parse(text_of(field(value=None), empty))
    assert [term.operator for term in condition.terms()] == ["isEmpty"]


def deep(levels: int) -> str:
    """Written by hand: ``json`` writes none so deep."""
    begin = '{"kind":"group","conjunction":"and","children":['
    return '{"filterGroup":' + begin * levels + "]}" * levels + "}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "filterGroup"),
        ('{"filterGroup": 3}', "filterGroup"),
        (json.dumps({"filterGroup": field()}), 'of the kind "group"'),
        (deep(10_000), "no JSON|in each other"),
        (deep(100), "in each other"),
        (text_of(3), "must be an object"),
        (text_of({"kind": "x"}), "kind is"),
        (text_of({**group(), "conjunction": "xor"}), "conjunction"),
        (text_of({**group(), "children": {"a": 1}}), "must be a list"),
        (text_of(field(operator="~")), "operator is one of"),
        (text_of(field(operator=["="])), "operator is one of"),
        (text_of(field(column=3)), "columnName"),
        (text_of(field(column="x" * 1000)), "columnName"),
        (text_of(field(value=[1])), "must be a text, a number"),
        (text_of(field(location="LOCATION_TYPE_MOON")), "location is one of"),
        (text_of(field(type=7)), "type is one of"),
        (text_of(*[field()] * 501), "more than 500"),
        ('{"filterGroup": ' + "1" * 5000 + "}", "no JSON"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(Refused, match=message):
        filters.parse(text)


def test_orders_and_statistics_of_metrics() -> None:
    assert filters.sortings("a=asc, hp.x=y=desc") == [Sorting("a", False), Sorting("hp.x=y", True)]
    assert filters.sortings(None) == filters.sortings("") == []
    for text in ("a", "a=up", "=asc", ",", "a=asc," * 40):
        with pytest.raises(Refused, match="sort"):
            filters.sortings(text)
    assert filters.metric_column("validation.node1/gpu0.util.last") == MetricColumn(
        "validation", "node1/gpu0.util", "last"
    )
    for column in ("loss", "validation.loss", "validation.loss.median", "..last"):
        with pytest.raises(Refused, match="no column of a metric"):
            filters.metric_column(column)


def meets(value: Any, operator: str, goal: Any, kind: str = "UNSPECIFIED") -> bool:
    return filter_values.test_of(Term("hp.x", "RUN_HYPERPARAMETERS", operator, kind, goal))(value)


@pytest.mark.parametrize(
    ("value", "operator", "goal", "kind"),
    [
        (0.1, "=", 0.1, "NUMBER"),
        (0.1, "<", "0.2", "NUMBER"),
        (3, ">=", 3.0, "UNSPECIFIED"),
        (3, "=", "3", "TEXT"),
        ("adam", "contains", "DA", "TEXT"),
        ("adam", "!=", "sgd", "TEXT"),
        (True, "=", True, "UNSPECIFIED"),
        (True, "=", "true", "UNSPECIFIED"),
        (["a", "b"], "=", "b", "ARRAY"),
        (["a", "b"], "notContains", "c", "ARRAY"),
        ("2025-11-13T02:00:00Z", "<", "2025-11-13T03:30:00+01:00", "DATE"),
        (None, "isEmpty", None, "TEXT"),
        ([], "isEmpty", None, "TEXT"),
        (0, "notEmpty", None, "TEXT"),
    ],
)
def test_values_that_meet_a_term(value: Any, operator: str, goal: Any, kind: str) -> None:
    assert meets(value, operator, goal, kind)


@pytest.mark.parametrize(
    ("value", "operator", "goal", "kind"),
    [
        (None, "!=", 1, "NUMBER"),
        (None, "notContains", "x", "TEXT"),
        ("1", "=", 1, "NUMBER"),
        (True, "=", 1, "NUMBER"),
        ({"a": 1}, "=", 1, "NUMBER"),
        (float("nan"), "<", 1, "NUMBER"),
        ("soon", "<", "2025-11-13T02:00:00Z", "DATE"),
        (None, "<", "2025-11-13T02:00:00Z", "DATE"),
        (10**400, "<", 1, "NUMBER"),
    ],
)
def test_values_that_do_not(value: Any, operator: str, goal: Any, kind: str) -> None:
    assert not meets(value, operator, goal, kind)


@pytest.mark.parametrize(("goal", "kind"), [("much", "NUMBER"), (True, "NUMBER"), ("soon", "DATE"), (3, "DATE")])
def test_goals_of_another_type_are_refused(goal: Any, kind: str) -> None:
    with pytest.raises(Refused, match="is compared with"):
        meets(1, "<", goal, kind)


def configured(value: Any, operator: str, goal: Any, kind: str = "NUMBER") -> bool:
    return filter_values.hyperparameter_test(Term("hp.x", "HYPERPARAMETERS", operator, kind, goal))(value)


def test_hyperparameters_of_an_experiment_are_constants_choices_or_ranges() -> None:
    span = {"type": "double", "minval": 1, "maxval": 3}
    assert configured(span, "contains", 2) and not configured(span, "contains", 4)
    assert configured(span, "notContains", "4") and configured(span, "<", 2) and not configured(span, "<", 1)
    assert configured({"type": "const", "val": 7}, "=", 7) and configured(
        {"type": "const", "val": "a"}, "=", "a", "TEXT"
    )
    choices = {"type": "categorical", "vals": ["a", "b"]}
    assert configured(choices, "contains", "b", "TEXT") and not configured(choices, "=", "c", "TEXT")
    assert configured(None, "isEmpty", None) and configured(span, "notEmpty", None)


def test_names_may_have_dots_themselves() -> None:
    values = {"a": {"b": {"c": 1}}, "a.b": {"d": 2}, "x.y": 3, "l": [1]}
    paths = ("a.b.c", "a.b.d", "x.y", "a.b.e", "l.0", "")
    assert [filter_values.at_path(values, path) for path in paths] == [1, 2, 3, None, None, None]


def test_what_no_database_holds_is_replaced() -> None:
    (term,) = filters.parse(text_of(field("na\0me", "=", "\ud800x"))).terms()
    assert (term.column, term.value) == ("na\ufffdme", "\ufffdx")
