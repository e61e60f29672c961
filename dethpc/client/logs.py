"""Logs of a trial over the REST API, followed across restarts of the master."""

from __future__ import annotations

import datetime
import itertools
import json
import tempfile
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from dethpc import errors
from dethpc.client.session import Session

Json = Dict[str, Any]

_ENDED = ("STATE_COMPLETED", "STATE_CANCELED", "STATE_ERROR")
LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


@dataclass(frozen=True)
class Filter:
    """Which lines to show. ``level`` means that level and those above; times are RFC 3339."""

    level: Optional[str] = None
    ranks: Sequence[int] = field(default_factory=tuple)
    nodes: Sequence[str] = field(default_factory=tuple)
    stdtypes: Sequence[str] = field(default_factory=tuple)
    search: Optional[str] = None
    after: Optional[str] = None
    before: Optional[str] = None

    def params(self) -> Json:
        found: Json = {
            "rankIds": list(self.ranks),
            "agentIds": list(self.nodes),
            "stdtypes": list(self.stdtypes),
            "searchText": self.search,
            "timestampAfter": self.after,
            "timestampBefore": self.before,
        }
        if self.level is not None:
            found["levels"] = ["LOG_LEVEL_" + level for level in LEVELS[LEVELS.index(self.level) :]]
        return {name: value for name, value in found.items() if value}


def read(
    session: Session, trial: int, which: Filter, *, head: Optional[int] = None, tail: Optional[int] = None
) -> Iterator[Json]:
    """The lines that exist now: all, the first ``head`` or the last ``tail``. Each has at least id, timestamp, level, message."""
    params = which.params()
    if head is not None:
        params["limit"] = head
    if tail is not None:
        params["limit"], params["orderBy"] = tail, "ORDER_BY_DESC"
        yield from reversed(list(session.stream(f"/api/v1/trials/{trial}/logs", params=params)))
    else:
        yield from session.stream(f"/api/v1/trials/{trial}/logs", params=params)


def together(
    session: Session,
    trials: Iterable[int],
    which: Filter,
    *,
    head: Optional[int] = None,
    tail: Optional[int] = None,
) -> Iterator[Json]:
    """The lines of several trials that exist now in order of time, each with its ``trialId``; ``head`` and ``tail`` are of all
    together."""
    found = in_order(line for trial in trials for line in _of(trial, read(session, trial, which, head=head, tail=tail)))
    lines = found if tail is None else iter(deque(found, maxlen=tail))
    return lines if head is None else itertools.islice(lines, head)


def in_order(lines: Iterable[Json]) -> Iterator[Json]:
    """By time, those of the same time as they come. They wait in a file: a search may have written more than memory has room
    for."""
    with tempfile.TemporaryFile() as file:
        places: List[Tuple[float, int]] = []
        for line in lines:
            places.append((_seconds(str(line["timestamp"])), file.tell()))
            file.write(json.dumps(line).encode() + b"\n")
        places.sort()
        for _, place in places:
            file.seek(place)
            yield json.loads(file.readline())


def _of(trial: int, lines: Iterable[Json]) -> Iterator[Json]:
    for line in lines:
        yield {**line, "trialId": trial}


def _seconds(timestamp: str) -> float:
    return datetime.datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


def follow(
    connect: Callable[[], Session], trial: int, which: Filter, *, patience: float = 60.0, pause: float = 0.5
) -> Iterator[Json]:
    """Every line, those to come too, until the trial has ended.

    When the master goes away the stream is taken up again where it broke, at the address that ``connect`` then finds; after
    ``patience`` seconds without an answer MasterUnreachable is raised. No line comes twice.
    """
    recent: Deque[Tuple[str, str]] = deque(maxlen=10_000)  # (timestamp, id) of the lines shown last
    seen: set[str] = set()
    answered = time.monotonic()
    while True:
        began: Optional[float] = None
        params = {**which.params(), "follow": True}
        if recent:
            params["timestampAfter"] = _earlier(recent[-1][0])
        try:
            session, began, news = connect(), time.monotonic(), False
            ended = session.get(f"/api/v1/trials/{trial}")["trial"]["state"] in _ENDED
            for line in session.stream(f"/api/v1/trials/{trial}/logs", params=params, timeout=60.0):
                answered = time.monotonic()
                key = str(line.get("id") or (line.get("timestamp"), line.get("message")))
                if key in seen:
                    continue
                if len(recent) == recent.maxlen:
                    seen.discard(recent[0][1])
                recent.append((str(line.get("timestamp")), key))
                seen.add(key)
                news = True
                yield line
            # A stream that ends proves little: a master that shuts down ends it as well. Nothing new after the end does.
            if ended and not news:
                return
            if not ended:
                time.sleep(pause)
        except errors.MasterUnreachable:
            if began is not None and time.monotonic() - began > 5.0:
                answered = time.monotonic()  # a live master, and a trial with nothing to say
            if time.monotonic() - answered > patience:
                raise
            time.sleep(pause)


def _earlier(timestamp: str) -> str:
    """Some seconds before: lines of several nodes interleave, and a late one may carry an earlier time."""
    moment = datetime.datetime.fromisoformat(timestamp.replace("Z", "+00:00"))
    return (moment - datetime.timedelta(seconds=10)).isoformat()
