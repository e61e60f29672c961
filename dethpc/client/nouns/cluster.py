"""The master, its resource pools, nodes and slots, over the REST API. Answers are the wire's JSON objects."""

from __future__ import annotations

from typing import Iterator, List, Optional

from dethpc.client.session import Json, Session

_DOCTOR_TIMEOUT = 120.0  # seconds; a busy Slurm answers late


def master(session: Session) -> Json:
    """Version, cluster id, cluster name and the like. Raises MasterError, also where another server answers in JSON."""
    about: Json = session.identity()
    return about


def runs_elsewhere(session: Session) -> List[Json]:
    """The runs of which the master can learn nothing: {"runId", "jobId", "scheduler"}, the last in words."""
    runs: List[Json] = session.get("/api/v1/master/take-over").get("runs") or []
    return runs


def take_over(session: Session) -> List[Json]:
    """Count the runs as over that ``runs_elsewhere`` lists; which they were."""
    runs: List[Json] = session.post("/api/v1/master/take-over").get("runs") or []
    return runs


def master_config(session: Session) -> Json:
    config: Json = session.get("/api/v1/master/config").get("config") or {}
    return config


def master_logs(session: Session, *, follow: bool = False, tail: Optional[int] = None) -> Iterator[Json]:
    """Log entries: {"id", "timestamp", "level", "message"}. ``tail``: only the last N."""
    params: Json = {"follow": follow}
    if tail is not None:
        params["offset"] = -tail
    for entry in session.stream("/api/v1/master/logs", params=params):
        yield entry["logEntry"]


def diagnosis(session: Session) -> Json:
    """What ``det doctor`` found last: {"examinedAt", "host", "findings": [{"check", "level", "found", "dethpc", "change"}]}."""
    report: Json = session.get("/api/v1/doctor")
    return report


def examine(session: Session) -> Json:
    """Let the master look again; as ``diagnosis``. Raises Refused while it does."""
    report: Json = session.post("/api/v1/doctor", timeout=_DOCTOR_TIMEOUT)
    return report


def resource_pools(session: Session) -> List[Json]:
    pools: List[Json] = session.get("/api/v1/resource-pools").get("resourcePools") or []
    return pools


def agents(session: Session) -> List[Json]:
    """The compute nodes; each has ``slots``, an object of slots by id."""
    rows: List[Json] = session.get("/api/v1/agents").get("agents") or []
    return sorted(rows, key=lambda agent: str(agent["id"]))


def enable_agent(session: Session, name: str) -> Json:
    """Trials may go to the node again. Raises NotFound."""
    agent: Json = session.post(f"/api/v1/agents/{name}/enable", json={})["agent"]
    return agent


def disable_agent(session: Session, name: str, reason: str = "", *, drain: bool = False) -> List[str]:
    """Send no trial to the node any more; those that run there go on elsewhere, with ``drain`` there. What is to be known of it.
    Raises NotFound."""
    answer = session.post(f"/api/v1/agents/{name}/disable", json={"reason": reason, "drain": drain})
    return list(answer.get("notes") or [])


def change_slot(session: Session, agent: str, slot: str, action: str) -> None:
    """Raises Refused: Slurm gives single slots out."""
    session.post(f"/api/v1/agents/{agent}/slots/{slot}/{action}", json={})


def pools_goodput(session: Session, days: float) -> Json:
    """Where the slots of runs of the last ``days`` days went: {"since", "pools": [{"resourcePool", "useful", ...}]}."""
    goodput: Json = session.get("/api/v1/resource-pools/goodput", params={"days": days})
    return goodput
