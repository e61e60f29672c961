"""Routes of the history of slots: every allocation of a time, sums by day or month, and both as CSV."""

from __future__ import annotations

import csv
import io
import time as clock
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta, timezone
from typing import Annotated, Any

from fastapi import Query, Response
from sqlalchemy import Connection

from dethpc.domain.text.times import seconds
from dethpc.errors import Refused
from dethpc.master.http.access import Reading, TheStore, ViewerSomewhere
from dethpc.master.http.models import UserText, Wire, encodable, time, time_or_none
from dethpc.master.http.router import new_router
from dethpc.state.queries import allocations as stored
from dethpc.state.queries.allocations import Allocation


class RawEntry(Wire):
    """An allocation, or what of it lies in the time. ``seconds``: of it, whatever its slots."""

    kind: str
    start_time: str
    end_time: str | None
    experiment_id: int | None
    username: UserText
    user_id: int
    labels: list[UserText]
    seconds: float
    slots: int


class RawEntries(Wire):
    resource_entries: list[RawEntry]


class AggregatedEntry(Wire):
    """``seconds`` and all others: slot-seconds in the period. An experiment of several labels counts for each."""

    period_start: str
    period: str
    seconds: float = 0.0
    by_username: dict[str, float] = {}
    by_experiment_label: dict[str, float] = {}
    by_resource_pool: dict[str, float] = {}

    def add(self, allocation: Allocation, slot_seconds: float) -> None:
        self.seconds += slot_seconds
        _add(self.by_username, [allocation.username], slot_seconds)
        _add(self.by_resource_pool, [allocation.pool], slot_seconds)
        _add(self.by_experiment_label, allocation.labels or (), slot_seconds)


def _add(sums: dict[str, float], names: Iterable[str], amount: float) -> None:
    for name in map(encodable, names):
        sums[name] = sums.get(name, 0.0) + amount


class AggregatedEntries(Wire):
    resource_entries: list[AggregatedEntry]


router = new_router(tags=["cluster"])

_DAILY, _MONTHLY = (f"RESOURCE_ALLOCATION_AGGREGATION_PERIOD_{period}" for period in ("DAILY", "MONTHLY"))

After = Annotated[str, Query(alias="timestampAfter", description="As in 2025-11-13T02:00:00Z.")]
Before = Annotated[str, Query(alias="timestampBefore")]
Start = Annotated[
    str, Query(alias="startDate", description="The first day, as in 2025-11-13; or month, as in 2025-11.")
]
End = Annotated[str, Query(alias="endDate", description="The last day, or month.")]


@router.get("/api/v1/resources/allocation/raw")
def raw(connection: Reading, who: ViewerSomewhere, after: After, before: Before) -> RawEntries:
    return RawEntries(resource_entries=list(_raw(connection, *_times(after, before))))


@router.get("/api/v1/resources/allocation/aggregated")
def aggregated(
    connection: Reading, who: ViewerSomewhere, start: Start, end: End, period: str = _DAILY
) -> AggregatedEntries:
    """Days or months in which slots were held, in UTC."""
    return AggregatedEntries(resource_entries=_aggregated(connection, start, end, period))


@router.get("/resources/allocation/raw", name="raw_csv")
def raw_csv(store: TheStore, who: ViewerSomewhere, after: After, before: Before) -> Response:
    with store.read() as connection:
        entries = list(_raw(connection, *_times(after, before)))
    header = ("experiment_id", "kind", "username", "labels", "slots", "start_time", "end_time", "seconds")
    return _csv(
        header,
        (
            (
                entry.experiment_id or 0,
                entry.kind,
                entry.username,
                ",".join(label.replace("\\", "\\\\").replace(",", "\\,") for label in entry.labels),
                entry.slots,
                entry.start_time,
                entry.end_time or "",
                f"{entry.seconds:f}",
            )
            for entry in entries
        ),
    )


@router.get("/resources/allocation/allocations-csv")
def allocations_csv(store: TheStore, who: ViewerSomewhere, after: After, before: Before) -> Response:
    first, last = _times(after, before)
    header = "allocation_id,task_type,username,workspace_name,experiment_id,slots,start_time,end_time,imagepulling_time,slot_hours,"
    with store.read() as connection:
        lines = [
            (
                f"{one.run_id}.{one.number}",
                one.kind.value,
                one.username,
                one.workspace or "",
                one.experiment_id or "",
                one.slots,
                time(one.started_at),
                time_or_none(one.ended_at) or "",
                "0.0",  # images are pulled before, by tasks of their own
                f"{_overlap(one, first, last) * one.slots / 3600:f}",
                one.pool,
            )
            for one in stored.allocations(connection, first, last)
        ]
    return _csv([*header.split(",")[:-1], "resource_pool"], lines)


@router.get("/resources/allocation/aggregated", name="aggregated_csv")
def aggregated_csv(store: TheStore, who: ViewerSomewhere, start: Start, end: End, period: str = _DAILY) -> Response:
    with store.read() as connection:
        entries = _aggregated(connection, start, end, period)
    return _csv(("aggregation_type", "aggregation_key", "date", "seconds"), _sums(entries))


def _sums(entries: Iterable[AggregatedEntry]) -> Iterator[tuple[str, str, str, str]]:
    for entry in entries:
        for kind, sums in (
            ("experiment_label", entry.by_experiment_label),
            ("username", entry.by_username),
            ("resource_pool", entry.by_resource_pool),
            ("total", {"total": entry.seconds}),
        ):
            for name, amount in sorted(sums.items()):
                yield kind, name, entry.period_start, f"{amount:f}"


def _csv(header: Iterable[str], lines: Iterable[Iterable[Any]]) -> Response:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return Response(encodable(text.getvalue()), media_type="text/csv")


# --- what they show


def _raw(connection: Connection, after: float, before: float) -> Iterator[RawEntry]:
    for one in stored.allocations(connection, after, before):
        yield RawEntry(
            kind=one.kind.value.lower(),
            start_time=time(one.started_at),
            end_time=time_or_none(one.ended_at),
            experiment_id=one.experiment_id,
            username=one.username,
            user_id=one.user_id,
            labels=one.labels or [],
            seconds=_overlap(one, after, before),
            slots=one.slots,
        )


def _overlap(allocation: Allocation, after: float, before: float) -> float:
    end = clock.time() if allocation.ended_at is None else allocation.ended_at
    return max(0.0, min(end, before) - max(allocation.started_at, after))


def _aggregated(connection: Connection, start: str, end: str, period: str) -> list[AggregatedEntry]:
    if period not in (_DAILY, _MONTHLY):
        raise Refused(f"period is {_DAILY} or {_MONTHLY}, not {period[:60]!r}")
    monthly = period == _MONTHLY
    first, last = _day(start, monthly), _next(_day(end, monthly), monthly)
    if first >= last:
        raise Refused(f"startDate {start} is after endDate {end}")
    after, before = _midnight(first), _midnight(last)
    entries: dict[date, AggregatedEntry] = {}
    for one in stored.allocations(connection, after, before):
        for day, amount in _parts(one, after, before, monthly):
            if day not in entries:
                begin = f"{day:%Y-%m}" if monthly else day.isoformat()
                entries[day] = AggregatedEntry(period_start=begin, period=period)
            entries[day].add(one, amount * one.slots)
    return [entries[day] for day in sorted(entries)]


def _parts(allocation: Allocation, after: float, before: float, monthly: bool) -> Iterator[tuple[date, float]]:
    """Each period in which it held its slots, and for how many seconds."""
    begin = max(allocation.started_at, after)
    end = begin + _overlap(allocation, after, before)
    day = datetime.fromtimestamp(begin, timezone.utc).date()
    day = day.replace(day=1) if monthly else day
    while begin < end:
        following = _next(day, monthly)
        until = min(end, _midnight(following))
        yield day, until - begin
        begin, day = until, following


def _day(text: str, monthly: bool) -> date:
    form, example = ("%Y-%m", "2025-11") if monthly else ("%Y-%m-%d", "2025-11-13")
    try:
        day = datetime.strptime(text, form).date()
    except ValueError:
        day = date.max
    if not 1970 <= day.year < date.max.year:
        raise Refused(f"a {'month' if monthly else 'day'} is written as in {example}, not as {text[:60]!r}")
    return day


def _next(day: date, monthly: bool) -> date:
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1) if monthly else day + timedelta(days=1)


def _midnight(day: date) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=timezone.utc).timestamp()


def _times(after: str, before: str) -> tuple[float, float]:
    try:
        first, last = seconds(after), seconds(before)
    except (ValueError, OverflowError):
        raise Refused(
            f"times are written as in 2025-11-13T02:00:00Z, not as {after[:40]!r} and {before[:40]!r}"
        ) from None
    if first > last:
        raise Refused(f"timestampAfter {after} is later than timestampBefore {before}")
    return first, last
