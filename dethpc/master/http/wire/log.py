"""Log lines on the wire."""

from __future__ import annotations

from dethpc.master.files.logs import Line
from dethpc.master.http.models import Wire, time


class LogEntry(Wire):
    """One line of a trial. ``message`` is the line as a terminal shows it, newline included; ``log`` the text alone."""

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
