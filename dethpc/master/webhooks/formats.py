"""An event as JSON, as a message for Slack and as an e-mail."""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]

GREEN, RED, GREY = "#13B670", "#DD5040", "#8A9199"
_COLORS = {"COMPLETED": GREEN, "ERROR": RED}


def encoded(value: Json) -> bytes:
    """Without blanks: receivers that verify the signature as Determined's documentation shows encode what they read in this way."""
    return json.dumps(value, separators=(",", ":")).encode()


def slack(event: Json, base_url: str) -> Json:
    """``base_url``: of the master's pages; "": messages have no links."""
    message: Json = {"blocks": [{"type": "section", "text": {"type": "plain_text", "text": title(event)}}]}
    if details := _details(event):
        message["blocks"][0]["fields"] = [_mrkdwn(f"*{name}*: {_escaped(text)}") for name, text in details]
    if experiment := event["event_data"].get("experiment"):
        name = _escaped(f"{experiment['name']} (#{experiment['id']})")
        link = f"<{base_url}/det/experiments/{experiment['id']}|{name}>" if base_url else name
        fields = [_mrkdwn(f"*{label}*: {_escaped(text)}") for label, text in _facts(experiment)]
        block = {"type": "section", "text": _mrkdwn(link), "fields": fields}
        message["attachments"] = [{"color": _COLORS.get(experiment["state"], GREY), "blocks": [block]}]
    return message


def mail(event: Json, base_url: str) -> tuple[str, str]:
    """Subject and text."""
    experiment = event["event_data"].get("experiment")
    lines = [f"{name}: {text}" for name, text in _details(event)]
    if experiment:
        lines += ["", f"Experiment: {experiment['id']}", f"Name: {experiment['name']}"]
        lines += [f"{name}: {text}" for name, text in _facts(experiment)]
        lines += [f"{base_url}/det/experiments/{experiment['id']}"] if base_url else []
    lines += ["", f"Event {event['event_id']}"]
    return title(event), "\n".join(lines).lstrip("\n") + "\n"


def title(event: Json) -> str:
    """The event in one line."""
    data = event["event_data"]
    experiment = data.get("experiment")
    if experiment is None:
        return "Test of a webhook"
    subject = f"Experiment {experiment['id']}"
    if "trial_id" in experiment:
        subject += f", trial {experiment['trial_id']}"
    if "metric" in data:
        condition = event["condition"]
        bound = f"{condition['operator']} {condition['metric_value']:g}"
        return f"{subject}: {data['metric']['name']} is {data['metric']['value']} ({bound})"
    if "task_log" in data:
        return f"{subject}: its log has a line that matches {event['condition']['regex']}"
    if "custom_data" in data:
        return " ".join(f"{subject}: {data['custom_data']['title']}".split())
    return f"{subject} is {experiment['state']}"


def _details(event: Json) -> list[tuple[str, str]]:
    data = event["event_data"]
    if "custom_data" in data:
        return [(name.capitalize(), data["custom_data"][name]) for name in ("level", "title", "description")]
    if "task_log" in data:
        return [("Node", data["task_log"]["node_name"]), ("Line", data["task_log"]["triggering_log"])]
    if "metric" in data:
        return [("Group", data["metric"]["group"]), ("Steps", str(data["metric"]["steps_completed"]))]
    return []


def _facts(experiment: Json) -> list[tuple[str, str]]:
    hours, minutes = divmod(experiment["duration"] // 60, 60)
    return [
        ("Status", experiment["state"]),
        ("Duration", f"{hours}h {minutes}min"),
        ("Workspace", experiment["workspace"]),
        ("Project", experiment["project"]),
    ]


def _mrkdwn(text: str) -> Json:
    return {"type": "mrkdwn", "text": text[:2000]}  # the most that Slack takes


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
