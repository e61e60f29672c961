"""Log policies: what a line of a trial's log means for the trial, and what is kept of the lines that matched."""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping, NamedTuple, Optional

from dethpc.domain.attempts.end_report import moment, plain_text

CANCEL_RETRIES, EXCLUDE_NODE = "cancel_retries", "exclude_node"
ACTIONS = (CANCEL_RETRIES, EXCLUDE_NODE)

LONGEST_WORDS = 300
"""Characters of a line that are told of again."""

_NOTED = "log_policies"
# Compiled when a policy is first read: every training and every command of ``det`` imports this, and few read one.
_ANYTHING_FIRST = r"(\(\?[ims]+\))?(?:\.\*\??)+(?![+*?{])"
_CLASS = r"\[:\^?\w+:\]"
_SPELLED_OTHERWISE = (
    r"(?s)(?P<same>\[\^?\]?(?:\\.|[^\]\\])*\])|\\Q(?P<literal>.*?)(?:\\E|\Z)|\(\?<(?P<name>\w+)>|(?P<end>\\z)|\\."
)


class LogPolicy(NamedTuple):
    """``action`` is one of ``ACTIONS``, or "" where a match only marks the trial with ``name``."""

    name: str
    pattern: str
    action: str

    @classmethod
    def all_of(cls, section: Iterable[Mapping[str, Any]]) -> tuple[LogPolicy, ...]:
        """Those of a configuration's section that have a pattern: without one, a name takes a default policy away."""
        listed = (item for item in section if item.get("pattern"))
        return tuple(cls(item.get("name") or "", item["pattern"], item.get("action") or "") for item in listed)

    @property
    def title(self) -> str:
        return f'log policy "{self.name}"' if self.name else "a log policy"


def _as_python_spells(match: re.Match[str]) -> str:
    if match["literal"] is not None:
        return re.escape(match["literal"])
    if match["name"] is not None:
        return f"(?P<{match['name']}>"
    return r"\Z" if match["end"] else match.group()


def compiled(pattern: str) -> re.Pattern[str]:
    """What finds ``pattern``, written for RE2, in a line. Raises: ValueError with words that follow "is".

    What a pattern allows before and does not need, ``.*``, is left away: it costs the square of a line's length.
    """
    open_first = re.match(_ANYTHING_FIRST, pattern)
    needed = pattern if open_first is None else (open_first.group(1) or "") + pattern[open_first.end() :]
    try:
        if named := re.search(_CLASS, pattern):
            raise ValueError(f"{named.group()} has another meaning in each")
        return re.compile(re.sub(_SPELLED_OTHERWISE, _as_python_spells, needed), re.ASCII)
    except (re.error, ValueError, RecursionError, OverflowError) as error:
        raise ValueError(f"not a regular expression of both RE2 and Python's re ({error})") from None


class LogMatch(NamedTuple):
    """The first line of an attempt on a node that matched a policy."""

    name: str
    pattern: str
    action: str
    line: str
    node: str
    at: float  # seconds since the epoch

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> LogMatch:
        texts = {name: plain_text(obj.get(name) or "") for name in ("name", "pattern", "action", "line", "node")}
        return cls(**texts, at=moment(obj.get("at")) or 0.0)

    @property
    def cause(self) -> str:
        """In Determined's words, which scripts look for."""
        line = self.line if len(self.line) <= LONGEST_WORDS else self.line[:LONGEST_WORDS] + "..."
        return f'(log "{line}" matched regex {self.pattern})'

    @property
    def notice(self) -> str:
        """For the trial's log: what matched, and what follows."""
        title = LogPolicy(self.name, self.pattern, self.action).title
        follows = {
            EXCLUDE_NODE: f" therefore will not schedule on {self.node} after a failure",
            CANCEL_RETRIES: " therefore will not restart after a failure",
        }
        return f"{title}: {self.cause}{follows.get(self.action, '')}"


def against_retrying(matches: Iterable[LogMatch]) -> Optional[LogMatch]:
    """The first match because of which the trial shall not start again after a failure."""
    return next((match for match in matches if match.action == CANCEL_RETRIES), None)


class Noted(NamedTuple):
    """What a trial's row keeps of its matches, among what is kept for its search."""

    name: str = ""  # of the policy that matched last, of those that have a name
    nodes: tuple[str, ...] = ()  # to which no further run of the trial goes

    @classmethod
    def of(cls, search: Mapping[str, Any]) -> Noted:
        note = search.get(_NOTED) or {}
        return cls(note.get("name") or "", tuple(note.get("nodes") or ()))

    def after(self, matches: Iterable[LogMatch]) -> Noted:
        """With these matches of a further attempt."""
        name, nodes = self.name, set(self.nodes)
        for match in sorted(matches, key=lambda match: match.at):
            name = match.name or name
            if match.action == EXCLUDE_NODE and match.node:
                nodes.add(match.node)
        return Noted(name, tuple(sorted(nodes)))

    def into(self, search: Mapping[str, Any]) -> dict[str, Any]:
        """``search`` with this in it."""
        return {**search, _NOTED: {"name": self.name, "nodes": list(self.nodes)}}


def forgotten(search: Mapping[str, Any]) -> dict[str, Any]:
    """``search`` without what was noted of matches: the trial begins anew with its nodes and its retries."""
    return {name: value for name, value in search.items() if name != _NOTED}
