"""Streams of log lines, shared by the routes of trials and of tasks."""

from __future__ import annotations

import asyncio
import time as clock
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from fastapi import Depends, Query
from fastapi.responses import StreamingResponse

from dethpc.config.patterns import Pattern
from dethpc.domain.text.times import seconds
from dethpc.errors import Refused
from dethpc.master.files import logs
from dethpc.master.files.log_follower import Follower
from dethpc.master.files.logs import Filter, Line, Source
from dethpc.master.http import streams
from dethpc.master.http.models import Wire, time
from dethpc.master.installation import Installation
from dethpc.state import queries
from dethpc.state.store import ReadStore


class LogEntry(Wire):
    """One line of a task. ``trial_id``: 0 without a trial.

    ``message`` is the line as a terminal shows it, newline included; ``log`` the text alone."""

    id: str
    trial_id: int
    task_id: str
    allocation_id: str
    agent_id: str
    container_id: str | None = None
    rank_id: int | None
    timestamp: str
    level: str
    stdtype: str
    source: str = "task"
    log: str
    message: str

    @classmethod
    def of(cls, line: Line, trial_id: int, task_id: str) -> LogEntry:
        at = time(line.at)
        rank = "" if line.rank is None else f" [rank={line.rank}]"
        return cls(
            id=str(line.id),
            trial_id=trial_id,
            task_id=task_id,
            allocation_id=str(line.attempt),
            agent_id=line.node,
            rank_id=line.rank,
            timestamp=at,
            level=f"LOG_LEVEL_{line.level}",
            stdtype=line.stdtype,
            source=line.source,
            log=line.text,
            message=f"[{at}] {line.node}{rank} || {line.level}: {line.text}\n",
        )


class LogFields(Wire):
    """The values that a log can be filtered by."""

    agent_ids: list[str]
    allocation_ids: list[str] = []
    container_ids: list[str] = []
    rank_ids: list[int]
    stdtypes: list[str]
    sources: list[str]


class MasterLogEntry(Wire):
    id: int
    message: str
    timestamp: str
    level: str


class MasterLogAnswer(Wire):
    log_entry: MasterLogEntry


_CHECKS = 3
"""How often known files are read between two listings of all files."""


@dataclass
class LogQuery:
    filter: Filter
    limit: int
    follow: bool
    newest_first: bool


@dataclass(frozen=True, slots=True)
class LogParameters:
    """How a request says which lines of a log it is for."""

    limit: int = 0
    follow: bool = False
    order_by: Annotated[str, Query(alias="orderBy")] = ""
    levels: Annotated[tuple[str, ...], Query()] = ()
    rank_ids: Annotated[tuple[int, ...], Query(alias="rankIds")] = ()
    agent_ids: Annotated[tuple[str, ...], Query(alias="agentIds")] = ()
    allocation_ids: Annotated[tuple[str, ...], Query(alias="allocationIds")] = ()
    stdtypes: Annotated[tuple[str, ...], Query()] = ()
    sources: Annotated[tuple[str, ...], Query()] = ()
    container_ids: Annotated[tuple[str, ...], Query(alias="containerIds")] = ()
    text: Annotated[str, Query(alias="searchText")] = ""
    regex: Annotated[bool, Query(alias="enableRegex")] = False
    after: Annotated[str, Query(alias="timestampAfter")] = ""
    before: Annotated[str, Query(alias="timestampBefore")] = ""

    def query(self) -> LogQuery:
        """Raises Refused."""
        try:
            search = Pattern(self.text) if self.regex and self.text else self.text or None
        except ValueError as error:
            raise Refused(f"searchText is {error}") from None
        try:
            bounds = [seconds(moment) if moment else None for moment in (self.after, self.before)]
        except ValueError:
            raise Refused("a time must look like 2021-10-26T23:17:12Z") from None
        # There are no containers: wishing for lines of one is wishing for nothing.
        nothing = bool(self.container_ids)
        log_filter = Filter(
            levels=frozenset(level.removeprefix("LOG_LEVEL_") for level in self.levels),
            ranks=frozenset(self.rank_ids),
            nodes=frozenset(self.agent_ids),
            stdtypes=frozenset({"none"} if nothing else self.stdtypes),
            sources=frozenset(self.sources),
            attempts=frozenset(self.allocation_ids),
            text=search,
            after=bounds[0],
            before=bounds[1],
        )
        return LogQuery(log_filter, self.limit, self.follow, self.order_by == "ORDER_BY_DESC")


async def _query(parameters: Annotated[LogParameters, Depends()]) -> LogQuery:
    return parameters.query()


Filtered = Annotated[LogQuery, Depends(_query)]


class TaskLog(NamedTuple):
    """The log of one task. ``trial_id``: 0 of a task without a trial."""

    installation: Installation
    store: ReadStore
    task_id: str
    trial_id: int = 0

    def sources(self) -> list[list[Source]]:
        with self.store.read() as connection:
            runs = [run.id for run in queries.runs_of_task(connection, self.task_id)]
        return logs.sources(self.installation.home.find, runs)

    def sources_to_follow(self) -> list[list[Source]]:
        """Without what nodes wrote in an attempt whose start the master is about to report, for that line is the first."""
        with self.store.read() as connection:
            begun = {run.id: run.attempt for run in queries.runs_of_task(connection, self.task_id)}
        directory_of = self.installation.home.find
        return [
            [
                source
                for source in attempt
                if not logs.precedes_its_start(source, directory_of, begun.get(str(source.attempt.run), -1))
            ]
            for attempt in logs.sources(directory_of, begun)
        ]

    def over(self) -> bool:
        """Whether nothing more will be written."""
        with self.store.read() as connection:
            return queries.task_is_over(connection, self.task_id)


def stream(log: TaskLog, query: LogQuery) -> StreamingResponse:
    def encoded(lines: Sequence[Line]) -> bytes:
        return b"".join(streams.line(LogEntry.of(line, log.trial_id, log.task_id)) for line in lines)

    async def once() -> AsyncIterator[bytes]:
        attempts = await asyncio.to_thread(log.sources)
        looks = logs.looks(attempts, query.filter, query.limit, newest_first=query.newest_first)
        async for [chunk] in streams.in_thread(map(encoded, looks), 1):
            yield chunk

    async def follow() -> AsyncIterator[bytes]:
        over = False
        follower = Follower(lambda: log.sources() if over else log.sources_to_follow(), query.filter)
        async for [chunk] in streams.in_thread(map(encoded, follower.history()), 1):
            yield chunk
        while True:
            # In this order: what is written before the end is read after it is seen.
            over = await asyncio.to_thread(log.over)
            yield await asyncio.to_thread(lambda: encoded(follower.more()))
            if follower.behind:
                continue
            if over:
                return
            for _ in range(_CHECKS):
                await asyncio.sleep(streams.PAUSE / _CHECKS)
                if await asyncio.to_thread(follower.grown):
                    break

    return streams.Stream(follow() if query.follow else once())


def fields(log: TaskLog, *, follow: bool) -> StreamingResponse:
    """The values that the log can be filtered by, so far; with ``follow`` again whenever there are more, until it ends."""

    def log_fields() -> LogFields:
        attempts = log.sources()
        ranks = {line.rank for line in logs.read(attempts, Filter(), 100_000) if line.rank is not None}
        every = [source for attempt in attempts for source in attempt]
        return LogFields(
            agent_ids=sorted({source.node for source in every}),
            allocation_ids=[str(attempt[0].attempt) for attempt in attempts],
            rank_ids=sorted(ranks),
            stdtypes=["stderr", "stdout"],
            sources=sorted({"task", *(source.said_by for source in every)}),
        )

    async def lines() -> AsyncIterator[bytes]:
        previous = b""
        while True:
            over, begun = not follow or await asyncio.to_thread(log.over), clock.monotonic()
            now = streams.line(await asyncio.to_thread(log_fields))
            yield now if now != previous else b""
            if over:
                return
            previous = now
            await asyncio.sleep(max(streams.PAUSE, 10 * (clock.monotonic() - begun)))  # it reads the whole log

    return streams.Stream(lines())
