"""Trials over the REST API. Answers are the wire's JSON objects."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional

from dethpc.client.session import Session

Json = Dict[str, Any]

_PAGE = 1000


def get(session: Session, trial: int) -> Json:
    """The trial itself (the wire's ``trial`` object). Raises NotFound."""
    found: Json = session.get(f"/api/v1/trials/{trial}")["trial"]
    return found


def waiting(session: Session, trial: int) -> Optional[Json]:
    """What the trial waits for: {"cause", "why", "sooner", "text", "startTime"}; None when it waits for nothing."""
    found: Optional[Json] = session.get(f"/api/v1/trials/{trial}/waiting")["waiting"]
    return found


def kill(session: Session, trial: int) -> None:
    """End the trial; the experiment goes on."""
    session.post(f"/api/v1/trials/{trial}/kill")


def workloads(session: Session, trial: int, *, batch_metrics: bool = False) -> Iterator[Json]:
    """What the trial reported, in order: objects with one of ``training``, ``validation``, ``checkpoint``."""
    offset = 0
    while True:
        params = {"offset": offset, "limit": _PAGE, "includeBatchMetrics": batch_metrics}
        page: List[Json] = session.get(f"/api/v1/trials/{trial}/workloads", params=params).get("workloads") or []
        yield from page
        offset += len(page)
        if len(page) < _PAGE:
            return


def checkpoints(session: Session, trial: int) -> List[Json]:
    """The trial's checkpoints, oldest first."""
    params = {"sortByAttr": "SORT_BY_BATCH_NUMBER"}
    answer: List[Json] = session.get(f"/api/v1/trials/{trial}/checkpoints", params=params).get("checkpoints") or []
    return answer
