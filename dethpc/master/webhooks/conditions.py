"""Conditions of triggers: what a request brings, checked and spelled in one way."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from dethpc.config.patterns import Pattern
from dethpc.domain.records import TriggerType
from dethpc.domain.states import State
from dethpc.domain.text.not_finite import as_float
from dethpc.errors import Refused

STATES = (State.ACTIVE, State.PAUSED, State.COMPLETED, State.CANCELED, State.ERROR)
"""Those of an experiment that a webhook can report."""

_OPERATORS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def checked(trigger_type: TriggerType, condition: Mapping[str, Any]) -> dict[str, Any]:
    """The condition with its defaults. Raises Refused."""
    if trigger_type is TriggerType.EXPERIMENT_STATE_CHANGE:
        return _of_state(condition)
    if trigger_type is TriggerType.METRIC_THRESHOLD_EXCEEDED:
        return _of_metric(condition)
    if trigger_type is TriggerType.TASK_LOG:
        return _of_log(condition)
    return {}


def exceeds(condition: Mapping[str, Any], value: float) -> bool:
    """Whether a value of the condition's metric meets it."""
    return bool(_OPERATORS[condition["operator"]](value, condition["metric_value"]))


def _of_state(condition: Mapping[str, Any]) -> dict[str, Any]:
    name = str(condition.get("state") or "").upper().removeprefix("STATE_")
    if name not in [state.value for state in STATES]:
        names = ", ".join(state.value for state in STATES)
        raise Refused(f"the condition of a change of state has a state, one of {names}, not {name!r}")
    return {"state": name}


def _of_metric(condition: Mapping[str, Any]) -> dict[str, Any]:
    name = condition.get("metric_name") or condition.get("metricName")
    value = condition.get("metric_value", condition.get("metricValue"))
    comparison, group = condition.get("operator") or ">", condition.get("group") or "validation"
    if not isinstance(name, str) or type(value) not in (int, float) or not isinstance(group, str):
        raise Refused("the condition of a metric has metric_name, a text, and metric_value, a number")
    if comparison not in _OPERATORS:
        raise Refused(f"the operator of a metric's condition is one of {', '.join(_OPERATORS)}, not {comparison!r}")
    return {"metric_name": name, "metric_value": as_float(value), "operator": comparison, "group": group}


def _of_log(condition: Mapping[str, Any]) -> dict[str, Any]:
    regex = condition.get("regex")
    if not isinstance(regex, str) or not regex:
        raise Refused("the condition of a log has regex, a regular expression that a line of a trial's log matches")
    try:
        Pattern(regex)
    except ValueError as error:
        raise Refused(f"regex {regex!r} is {error}") from None
    return {"regex": regex}
