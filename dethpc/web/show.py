"""Formats of values on a page: three or four digits, units, and relative times with the absolute one as a tooltip."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape

from dethpc.domain.nested import leaves
from dethpc.domain.progress import progress
from dethpc.domain.text import measures, times
from dethpc.domain.text.rungs import stopped_early
from dethpc.web import listed

SYMBOLS = {
    "RUNNING": "▶",
    "QUEUED": "◌",
    "ACTIVE": "▶",
    "PAUSED": "❙❙",
    "SUSPENDED": "❙❙",
    "COMPLETED": "✓",
    "CANCELED": "⊘",
    "ERROR": "✕",
}
"""A state is told by its colour and its shape."""

ENDED = ("COMPLETED", "CANCELED", "ERROR")
"""Plain states of experiments and trials that do not go on by themselves."""

_FAILED = (
    "USER_ERROR OUT_OF_MEMORY INVALID_HP NODE_FAIL DAMAGED_CHECKPOINT STORAGE_AWAY LAUNCH_FAILED LOST DELETE_FAILED"
)
_ENDED = "STOPPED PREEMPTED TIMEOUT CANCELLED KILLED DELETED PARTIALLY_DELETED"
_LIKE = dict.fromkeys(_FAILED.split(), "ERROR") | dict.fromkeys(_ENDED.split(), "CANCELED")
"""States that look like another: how a run ended, and what is left of a checkpoint."""


def plain_state(value: str) -> str:
    return (value or "").rpartition("STATE_")[2]


def state(value: str) -> Markup:
    name = plain_state(value)
    kind = "STOPPING" if name.startswith("STOPPING") or name.startswith("DELETING") else _LIKE.get(name, name)
    symbol = SYMBOLS.get(kind, "…")
    label = name.replace("_", " ").lower()
    return Markup('<span class="state {}"><span aria-hidden="true">{}</span> {}</span>').format(
        kind.lower().replace("_", "-"), symbol, label
    )


def standing(noun: Mapping[str, Any]) -> Markup:
    """The state of an experiment or a trial; whether the scheduler has suspended all or some of its jobs."""
    name = plain_state(noun.get("state", ""))
    if stopped_early(name, noun.get("reason") or ""):
        return state("STOPPED")
    jobs, running = noun.get("suspendedJobs") or int(bool(noun.get("suspended"))), noun.get("runningJobs") or 1
    if name != "RUNNING" or not jobs:
        return state(name)
    if jobs >= running:
        return state("SUSPENDED")
    return state(name) + f" ({jobs} of {running} jobs suspended)"


def moment(value: str | None) -> datetime.datetime | None:
    return times.moment(value) if value else None


def ago(value: str | None) -> Markup:
    """A relative time, which the page keeps true; the absolute one on hover."""
    at = moment(value)
    if at is None:
        return Markup("")
    local = at.astimezone()
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        at.isoformat(), local.strftime("%Y-%m-%d %H:%M:%S %Z"), local.strftime("%Y-%m-%d %H:%M")
    )


def number(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value).lower()
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def size(value: Any) -> str:
    """Bytes of the wire, where a long number is text; "" where none are known."""
    return "" if value in (None, "") else measures.size(float(value))


LONGEST = 200
"""Characters of a name or a label in a list; the whole one shows on hover."""


def short(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def unmeasured(experiment: Mapping[str, Any]) -> bool:
    """Whether nobody can say how far it is."""
    return progress(experiment) is None


def compact(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def values(named: Mapping[str, Any] | None) -> Markup:
    """Hyperparameters in one line. Text that turns the direction of writing turns its own alone."""
    parts = [
        Markup("<span class='pair'><bdi class='key'>{}</bdi><bdi>{}</bdi></span>").format(
            name, "null" if value is None else number(value)
        )
        for name, value in leaves(named or {})
    ]
    return Markup(" ").join(parts)


def plain_values(named: Mapping[str, Any] | None) -> str:
    """The same without markup."""
    return "  ".join(f"{name}={'null' if value is None else number(value)}" for name, value in leaves(named or {}))


def quoted(text: str) -> str:
    return quote(text, safe="")


_BROWSERS = (("Edg/", "Edge"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"))
_SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS", "macOS"),
    ("Linux", "Linux"),
)


def browser(agent: str) -> str:
    """What a browser calls itself, in words; another program's own."""
    name = next((name for mark, name in _BROWSERS if mark in agent), "")
    system = next((f" on {name}" for mark, name in _SYSTEMS if mark in agent), "")
    return name + system if name else agent[:40]


def data(value: Any) -> Markup:
    """JSON for an attribute, which a script reads."""
    return escape(json.dumps(value, separators=(",", ":"), allow_nan=False))


FILTERS: dict[str, Callable[..., Any]] = {
    "ago": ago,
    "browser": browser,
    "compact": compact,
    "data": data,
    "duration": measures.duration,
    "flat": lambda named: list(leaves(named or {})),
    "listed": listed.written,
    "number": number,
    "percent": measures.percent,
    "plain_state": plain_state,
    "quoted": quoted,
    "short": short,
    "size": size,
    "standing": standing,
    "state": state,
    "unmeasured": unmeasured,
    "values": values,
}
