"""Which slots were held when and for whom, and the message to all users, over the REST API."""

from __future__ import annotations

from typing import Optional

from dethpc.client.session import Json, Session

_MESSAGE = "/api/v1/master/cluster_message"


def raw(session: Session, after: str, before: str, *, as_csv: bool = False) -> bytes:
    """Each time that slots were held between the two (RFC 3339), as JSON or CSV."""
    params = {"timestampAfter": after, "timestampBefore": before}
    return session.raw(f"{'' if as_csv else '/api/v1'}/resources/allocation/raw", params)


def allocations(session: Session, after: str, before: str) -> bytes:
    """As CSV: a line for each job, with its pool and slot-hours."""
    params = {"timestampAfter": after, "timestampBefore": before}
    return session.raw("/resources/allocation/allocations-csv", params)


def aggregated(session: Session, first: str, last: str, *, monthly: bool, as_csv: bool = False) -> bytes:
    """Seconds of slots by day or month, for labels, users and pools. ``first``, ``last``: days or months, both counted."""
    period = f"RESOURCE_ALLOCATION_AGGREGATION_PERIOD_{'MONTHLY' if monthly else 'DAILY'}"
    params = {"startDate": first, "endDate": last, "period": period}
    return session.raw(f"{'' if as_csv else '/api/v1'}/resources/allocation/aggregated", params)


def message(session: Session) -> Optional[Json]:
    """That which users are shown now, or will be; None: there is none."""
    answer: Optional[Json] = session.get(_MESSAGE)["clusterMessage"]
    return answer


def set_message(session: Session, text: str, start: str, *, end: Optional[str], duration: Optional[str]) -> None:
    """In the place of the one there was. Raises Refused."""
    body = {"message": text, "startTime": start, "endTime": end, "duration": duration}
    session.put(_MESSAGE, {name: value for name, value in body.items() if value is not None})


def clear_message(session: Session) -> None:
    session.delete(_MESSAGE)
