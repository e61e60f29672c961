"""Routes of the message to everybody who uses this cluster, such as when it will be down. There is one at most."""

from __future__ import annotations

import contextlib
import re
import time as clock
from typing import Any

from dethpc.domain import records as stored
from dethpc.domain.text.times import seconds
from dethpc.errors import Refused, StoreError
from dethpc.master.durable.records import RecordReader, Records
from dethpc.master.http.access import Owner, TheRecords, ViewerSomewhere
from dethpc.master.http.models import Given, UserText, Wire, time, time_or_none
from dethpc.master.http.router import new_router


class ClusterMessage(Wire):
    message: UserText
    start_time: str
    end_time: str | None
    created_time: str

    @classmethod
    def of(cls, record: stored.ClusterMessage) -> ClusterMessage:
        return cls(
            message=record.message,
            start_time=time(record.starts_at),
            end_time=time_or_none(record.ends_at),
            created_time=time(record.created_at),
        )


class MessageAnswer(Wire):
    cluster_message: ClusterMessage | None = None


class NewMessage(Wire):
    """``end_time`` and ``duration`` (as in 1h30m) exclude each other."""

    message: Given
    start_time: str
    end_time: str | None = None
    duration: str | None = None


router = new_router(prefix="/api/v1/master/cluster_message", tags=["master"])

LONGEST = 250
_ONLY = 1
_UNITS = {"w": 604800.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(w|d|h|ms|m|s|us|µs|ns)", re.ASCII)


@router.get("")
def get(records: TheRecords, who: ViewerSomewhere) -> MessageAnswer:
    """The one that counts now or will; none where its time is over."""
    record = not_over(records)
    return MessageAnswer(cluster_message=ClusterMessage.of(record) if record is not None else None)


def current(records: RecordReader) -> stored.ClusterMessage | None:
    """The message that counts now. None also where the database is away, which other parts of an answer tell."""
    with contextlib.suppress(StoreError):
        record = not_over(records)
        return record if record is not None and record.starts_at <= clock.time() else None
    return None


def not_over(records: RecordReader) -> stored.ClusterMessage | None:
    """The message, unless its time is over."""
    record = next(iter(records.find(stored.ClusterMessage, id=_ONLY)), None)
    over = record is not None and record.ends_at is not None and record.ends_at <= clock.time()
    return None if over else record


@router.put("")
def set(request: NewMessage, records: TheRecords, who: Owner) -> dict[str, Any]:
    """In the place of the one that there was."""
    if not request.message.strip() or len(request.message) > LONGEST:
        raise Refused(f"a message has 1 to {LONGEST} characters, not {len(request.message)}")
    if not request.message.isprintable():
        raise Refused(f"a message has only characters that can be seen, not {ascii(request.message)[:80]}")
    if request.end_time is not None and request.duration is not None:
        raise Refused("either endTime or duration: each says when the message ends")
    begin, end, now = _moment("startTime", request.start_time), None, clock.time()
    if request.end_time is not None:
        end = _moment("endTime", request.end_time)
    elif request.duration is not None:
        end = begin + _length(request.duration)
    if end is not None and not max(begin, now) < end < _LATEST:
        raise Refused("a message must end after it begins, and in the future")
    records.put(stored.ClusterMessage(_ONLY, request.message, now, begin, end))
    return {}


@router.delete("")
def clear(records: TheRecords, who: Owner) -> dict[str, Any]:
    _drop(records)
    return {}


def _drop(records: Records) -> None:
    for record in records.find(stored.ClusterMessage):
        records.drop(record)


_LATEST = 253402300799.0  # the end of the year 9999


def _moment(field: str, text: str) -> float:
    try:
        at = seconds(text)
    except (ValueError, OverflowError):
        at = -1.0
    if not 0 <= at < _LATEST:
        raise Refused(f"{field} is a time as in 2025-11-13T02:00:00Z, not {text[:60]!r}")
    return at


def _length(text: str) -> float:
    """Seconds of a duration as Go writes them, or in days and weeks."""
    parts = list(_PART.finditer(text[:LONGEST]))
    if not parts or "".join(part.group() for part in parts) != text:
        raise Refused(f"duration is written as in 1h30m, not as {text[:60]!r}")
    return sum(float(part.group(1)) * _UNITS[part.group(2)] for part in parts)
