"""The job queue, over the REST API. Answers are the wire's JSON objects."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from dethpc.client.nouns import tasks
from dethpc.client.session import Json, Session


def listing(session: Session, pool: Optional[str] = None) -> List[Json]:
    """The pool's jobs in the order in which they are served; None: the default pool."""
    return queue(session, pool)[0]


def queue(session: Session, pool: Optional[str] = None, **where: Any) -> Tuple[List[Json], str]:
    """As ``listing``, and how the pool's queue is ordered: "priority", "fair_share" or another.

    ``where``: projectId, workspaceId."""
    chosen = {"resourcePool": pool, **where}
    params = {name: value for name, value in chosen.items() if value is not None}
    answer = session.get("/api/v1/job-queues-v2", params=params)
    return [job["full"] for job in answer.get("jobs") or []], str(answer.get("queueOrder") or "")


def update(session: Session, changes: Sequence[Json]) -> None:
    """Change jobs, all or none: {"jobId": ..., and one of "priority", "weight", "resourcePool", "aheadOf", "behindOf"}."""
    session.post("/api/v1/job-queues", {"updates": list(changes)})


def waiting(session: Session) -> Dict[str, Json]:
    """Why jobs wait, by job id: {"text", "count", "groups"}; those that wait for nothing are left out."""
    rows: List[Json] = session.get("/api/v1/waiting")["experiments"]
    for task in tasks.launched(session, live=True)[0]:
        if task["reason"]:
            group = {"text": task["reason"], "count": 1, "trialIds": []}
            rows.append({"jobId": task["jobId"], "text": task["reason"], "count": 1, "groups": [group]})
    return {str(row["jobId"]): row for row in rows}
