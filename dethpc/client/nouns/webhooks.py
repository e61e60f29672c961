"""Webhooks, over the REST API, and what they report in words. Answers are the wire's JSON objects."""

from __future__ import annotations

import re
from typing import Any, List, NamedTuple, Sequence

from dethpc.client import names
from dethpc.client.session import Json, Session

STATES = ("COMPLETED", "ERROR", "CANCELED", "PAUSED", "ACTIVE")

_METRIC = re.compile(r"(?P<name>[^<>=]+?)\s*(?P<operator>>=|<=|>|<)\s*(?P<value>[-+0-9.eE]+)")


class Reports(NamedTuple):
    """What a webhook reports. ``metrics``: conditions such as ``accuracy>=0.9`` or ``GROUP/NAME<1``."""

    states: Sequence[str] = ()
    patterns: Sequence[str] = ()
    metrics: Sequence[str] = ()
    custom: bool = False

    def triggers(self) -> List[Json]:
        """As the wire has it. Raises ValueError."""
        triggers = [_trigger("EXPERIMENT_STATE_CHANGE", {"state": state}) for state in self.states]
        triggers += [_trigger("TASK_LOG", {"regex": pattern}) for pattern in self.patterns]
        triggers += [_trigger("METRIC_THRESHOLD_EXCEEDED", _condition(text)) for text in self.metrics]
        return triggers + ([_trigger("CUSTOM", {})] if self.custom else [])

    @classmethod
    def of(cls, triggers: Sequence[Json]) -> Reports:
        conditions = [trigger["condition"] or {} for trigger in triggers]
        return cls(
            [str(condition["state"]) for condition in conditions if "state" in condition],
            [str(condition["regex"]) for condition in conditions if "regex" in condition],
            [_metric(condition) for condition in conditions if "metric_name" in condition],
            any(trigger["triggerType"] == "TRIGGER_TYPE_CUSTOM" for trigger in triggers),
        )

    def __str__(self) -> str:
        parts = [*self.states, *(f"log {pattern}" for pattern in self.patterns), *self.metrics]
        return ", ".join([*parts, *(["custom"] if self.custom else [])])


def _trigger(name: str, condition: Json) -> Json:
    return {"triggerType": f"TRIGGER_TYPE_{name}", "condition": condition}


def _condition(text: str) -> Json:
    match = _METRIC.fullmatch(text.strip())
    try:
        value = float(match["value"]) if match else 0.0
    except ValueError:
        match = None
    if match is None:
        raise ValueError(f"write NAME>NUMBER, such as 'accuracy>=0.9', not {text!r}")
    group, slash, name = match["name"].partition("/")
    if not slash:
        group, name = name, group
    condition = {"metric_name": name, "operator": match["operator"], "metric_value": value}
    return {**condition, "group": group} if slash else condition


def _metric(condition: Json) -> str:
    """So that ``_condition`` reads the same again."""
    group, name, value = (
        condition.get("group") or "validation",
        str(condition["metric_name"]),
        condition["metric_value"],
    )
    shown = name if group == "validation" and "/" not in name else f"{group}/{name}"
    return f"{shown} {condition['operator']} {float(value):.15g}"


def kind(row: Json) -> str:
    """``default``, ``slack`` or ``mail``."""
    if row["url"].startswith("mailto:"):
        return "mail"
    return str(row["webhookType"]).replace("WEBHOOK_TYPE_", "").lower()


def webhooks(session: Session) -> List[Json]:
    rows: List[Json] = session.get("/api/v1/webhooks")["webhooks"]
    return rows


def by_name(session: Session, text: str) -> int:
    """The id of the webhook that has this id or name. Raises NotFound, Refused."""
    rows = [names.Candidate(str(row["id"]), row["name"], row["url"]) for row in webhooks(session)]
    return int(names.choose("webhook", text, rows))


def create(session: Session, name: str, url: str, triggers: List[Json], **fields: Any) -> Json:
    """``fields`` as the wire has them. Raises Refused, NotFound."""
    body = {"name": name, "url": url, "triggers": triggers, **fields}
    row: Json = session.post("/api/v1/webhooks", body)["webhook"]
    return row


def change(session: Session, webhook_id: int, **fields: Any) -> Json:
    """Raises NotFound, Refused."""
    row: Json = session.patch(f"/api/v1/webhooks/{webhook_id}", fields)["webhook"]
    return row


def delete(session: Session, webhook_id: int) -> None:
    """Raises NotFound."""
    session.delete(f"/api/v1/webhooks/{webhook_id}")


def test(session: Session, webhook_id: int) -> str:
    """Send a test; what the receiver answered. Raises NotFound; Refused, with the reason, where it was not taken."""
    return str(session.post(f"/api/v1/webhooks/{webhook_id}/test")["answer"])


def deliveries(session: Session, webhook_id: int, **params: Any) -> List[Json]:
    """The newest first. ``params``: the page, as the wire has it. Raises NotFound."""
    rows: List[Json] = session.get(f"/api/v1/webhooks/{webhook_id}/deliveries", params)["deliveries"]
    return rows
