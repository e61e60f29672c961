"""Logs of trials and of other tasks over the REST API, followed across restarts of the master."""

from __future__ import annotations

import datetime
import itertools
import json
import time
from collections import deque
from typing import (
    Callable,
    Deque,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
    Union,
)

from dethpc import errors
from dethpc.client.session import Json, Session, patiently
from dethpc.domain.text.times import seconds

Log = Union[int, str]
"""A trial's, by the trial's id, or that of another task, by the task's."""

ENDED = ("STATE_COMPLETED", "STATE_CANCELED", "STATE_ERROR")
LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def level_of(name: Optional[str]) -> Optional[str]:
    """The level that a person means by ``name``; None where there is no such one."""
    level = (name or "").upper()
    level = "WARNING" if level == "WARN" else level
    return level if level in LEVELS else None


class Filter(NamedTuple):
    """Which lines to show. ``level`` means that level and those above; times are RFC 3339."""

    level: Optional[str] = None
    ranks: Sequence[int] = ()
    nodes: Sequence[str] = ()
    stdtypes: Sequence[str] = ()
    sources: Sequence[str] = ()
    search: Optional[str] = None
    after: Optional[str] = None
    before: Optional[str] = None

    def params(self) -> Json:
        query: Json = {
            "rankIds": list(self.ranks),
            "agentIds": list(self.nodes),
            "stdtypes": list(self.stdtypes),
            "sources": list(self.sources),
            "searchText": self.search,
            "timestampAfter": self.after,
            "timestampBefore": self.before,
        }
        if self.level is not None:
            query["levels"] = ["LOG_LEVEL_" + level for level in LEVELS[LEVELS.index(self.level) :]]
        return {name: value for name, value in query.items() if value}


def _path(log: Log) -> str:
    return f"/api/v1/trials/{log}/logs" if isinstance(log, int) else f"/api/v1/tasks/{log}/logs"


def _is_over(session: Session, log: Log) -> bool:
    if isinstance(log, int):
        return session.get(f"/api/v1/trials/{log}")["trial"]["state"] in ENDED
    return bool(session.get(f"/api/v1/tasks/{log}")["task"].get("endTime"))


def read(
    session: Session,
    log: Log,
    which: Filter,
    *,
    head: Optional[int] = None,
    tail: Optional[int] = None,
    skip: int = 0,
) -> Iterator[Json]:
    """The lines that exist now: all, the first ``head`` or the last ``tail``, which are those before the ``skip`` last. Each has at
    least id, timestamp, level, message."""
    params = which.params()
    if head is not None:
        params["limit"] = head
    if tail is not None:
        params["limit"], params["orderBy"] = tail + skip, "ORDER_BY_DESC"
        newest_first = session.stream(_path(log), params=params)
        yield from reversed(list(itertools.islice(newest_first, skip, None)))
    else:
        yield from session.stream(_path(log), params=params)


def of_trials(
    session: Session,
    trials: Iterable[int],
    which: Filter,
    *,
    head: Optional[int] = None,
    tail: Optional[int] = None,
) -> Iterator[Json]:
    """The lines of several trials that exist now in order of time, each with its ``trialId``; ``head`` and ``tail`` are of all
    together."""
    ordered = in_order(
        line for trial in trials for line in _of(trial, read(session, trial, which, head=head, tail=tail))
    )
    lines = ordered if tail is None else iter(deque(ordered, maxlen=tail))
    return lines if head is None else itertools.islice(lines, head)


class Tail(NamedTuple):
    """What of the lines that are there already is shown before the log is followed: what ``pick`` takes of the last ``lines``, or
    of a few more."""

    lines: int
    pick: Callable[[List[Json]], List[Json]]


def _latest(session: Session, log: Log, which: Filter, count: int) -> List[Json]:
    """The last ``count`` lines, and those before them that whoever follows the log afterwards would be sent again."""
    for first in read(session, log, which, tail=count):
        params = {**which.params(), **_since(which, str(first["timestamp"]))}
        return list(session.stream(_path(log), params=params))
    return []


def follow_together(
    connect: Callable[[], Session],
    trials: Callable[[Session], Tuple[Dict[int, bool], bool]],
    which: Filter,
    *,
    tail: Optional[Tail] = None,
    patience: float = 60.0,
    pause: float = 1.0,
) -> Iterator[Json]:
    """Every line of several trials, those to come too, until all have ended; what one look finds is in order of time. ``tail``: of
    those that are there already.

    ``trials`` says which there are, whether each has ended, and whether no other will come. A look takes a fifth of the time at
    most, for the master has other things to do. Raises MasterUnreachable after ``patience`` seconds without an answer.
    """
    shown: Dict[int, _Shown] = {}
    over: Set[int] = set()

    def look() -> Tuple[Iterator[Json], Dict[int, bool], bool]:
        session = connect()
        endings, complete = trials(session)
        return (
            in_order(line for trial in endings if trial not in over for line in fresh(session, trial)),
            endings,
            complete,
        )

    def fresh(session: Session, trial: int) -> Iterator[Json]:
        before = shown.setdefault(trial, _Shown(which))
        lines = session.stream(f"/api/v1/trials/{trial}/logs", params={**which.params(), **before.params()})
        return (line for line in _of(trial, lines) if line not in before)

    def latest(count: int) -> List[Json]:
        session = connect()
        endings, _ = trials(session)
        return list(in_order(line for one in endings for line in _of(one, _latest(session, one, which, count))))

    if tail is not None:
        there = patiently(lambda: latest(tail.lines), patience)
        for line in there:
            shown.setdefault(line["trialId"], _Shown(which)).add(line)
        yield from tail.pick(there)
    while True:
        began = time.monotonic()
        lines, endings, complete = patiently(look, patience)
        took, news = time.monotonic() - began, set()
        for line in lines:
            shown[line["trialId"]].add(line)
            news.add(line["trialId"])
            yield line
        over |= {trial for trial, ended in endings.items() if ended and trial not in news}
        if complete and over.issuperset(endings):
            return
        time.sleep(max(pause, 4 * took))


def in_order(lines: Iterable[Json]) -> Iterator[Json]:
    """By time, those of the same time as they come; all are read at once. They wait in a file: a search may have written more than
    memory has room for."""
    import tempfile

    file = tempfile.TemporaryFile()
    places: List[Tuple[float, int]] = []
    for line in lines:
        places.append((seconds(str(line["timestamp"])), file.tell()))
        file.write(json.dumps(line).encode() + b"\n")
    places.sort()

    def entries() -> Iterator[Json]:
        with file:
            for _, place in places:
                file.seek(place)
                yield json.loads(file.readline())

    return entries()


class _Shown:
    """Which lines of a task were shown last: all that come again when those after the last one are asked for."""

    def __init__(self, which: Filter) -> None:
        self._which = which
        self._recent: Deque[Tuple[str, str]] = deque()  # (timestamp, id)
        self._ids: Set[str] = set()

    def params(self) -> Json:
        """What asks for the lines after them."""
        return _since(self._which, self._recent[-1][0]) if self._recent else {}

    def __contains__(self, line: Json) -> bool:
        return self._id(line) in self._ids

    def add(self, line: Json) -> None:
        self._recent.append((str(line.get("timestamp")), self._id(line)))
        self._ids.add(self._id(line))
        if len(self._recent) % _FORGET_EVERY == 0:
            self._forget()

    def _forget(self) -> None:
        """What comes again no more."""
        since = seconds(self._recent[-1][0]) - 2 * _AGAIN
        while self._recent and seconds(self._recent[0][0]) < since:
            self._ids.discard(self._recent.popleft()[1])

    @staticmethod
    def _id(line: Json) -> str:
        return str(line.get("id") or (line.get("timestamp"), line.get("message")))


def _of(trial: int, lines: Iterable[Json]) -> Iterator[Json]:
    for line in lines:
        yield {**line, "trialId": trial}


_AGAIN = 10.0  # seconds before the last line, whose lines are asked for once more
_FORGET_EVERY = 5_000  # lines


def follow(
    connect: Callable[[], Session],
    log: Log,
    which: Filter,
    *,
    tail: Optional[Tail] = None,
    patience: float = 60.0,
    pause: float = 0.5,
) -> Iterator[Json]:
    """Every line, those to come too, until its task has ended. ``tail``: of those that are there already.

    When the master goes away the stream is taken up again where it broke, at the address that ``connect`` then finds; after
    ``patience`` seconds without an answer MasterUnreachable is raised. No line comes twice.
    """
    shown = _Shown(which)
    if tail is not None:
        there = patiently(lambda: _latest(connect(), log, which, tail.lines), patience)
        for line in there:
            shown.add(line)
        yield from tail.pick(there)
    answered = time.monotonic()
    while True:
        began: Optional[float] = None
        params = {**which.params(), **shown.params(), "follow": True}
        try:
            session, began, news = connect(), time.monotonic(), False
            ended = _is_over(session, log)
            for line in session.stream(_path(log), params=params, timeout=60.0):
                answered = time.monotonic()
                if line in shown:
                    continue
                shown.add(line)
                news = True
                yield line
            # A stream that ends proves little: a master that shuts down ends it as well. Nothing new after the end does.
            if ended and not news:
                return
            if not ended:
                time.sleep(pause)
        except errors.MasterUnreachable:
            if began is not None and time.monotonic() - began > 5.0:
                answered = time.monotonic()  # a live master, and a task with nothing to say
            if time.monotonic() - answered > patience:
                raise
            time.sleep(pause)


def _since(which: Filter, timestamp: str) -> Json:
    """What asks for the lines from some seconds before on: lines of several nodes interleave, and a late one may carry an earlier
    time. Never for those that ``which`` leaves out."""
    earlier = datetime.datetime.fromtimestamp(seconds(timestamp) - _AGAIN, datetime.timezone.utc).isoformat()
    return {"timestampAfter": max(earlier, which.after or earlier, key=seconds)}
