"""Tasks without a trial over the REST API: commands, notebooks, shells, TensorBoards (each a ``noun`` in the plural), and generic
tasks. Answers are the wire's JSON objects.

Every function raises MasterError when talking to the master fails, NotFound when there is no such task, and Refused when its
present state does not allow the request.
"""

from __future__ import annotations

import re
from typing import Any, List, Optional, Sequence, Tuple

from dethpc.client import names
from dethpc.client.session import Json, Session
from dethpc.errors import MasterError, NotFound, Refused

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UPLOAD = 600.0  # seconds; the context may be tens of megabytes


def _post(session: Session, path: str, body: Json) -> Json:
    """A request that launches something in the environment of this process, unless ``body`` names one, or None. What is None is
    left out. Raises ConfigError, ContextError."""
    from dethpc.client import environment  # here: few commands launch anything

    if "environment" not in body:
        body = {**body, "environment": environment.encoded()}
    sent = {name: value for name, value in body.items() if value is not None}
    answer: Json = session.post(path, json=sent, timeout=_UPLOAD)
    return answer


def launch(session: Session, noun: str, config: Json, files: Sequence[Json], **fields: Any) -> Json:
    """Returns {"command", "config", "warnings", "notes"}, of which the first is called as the noun is. ``fields`` as the wire has
    them. Raises ConfigError, ContextError."""
    return _post(session, f"/api/v1/{noun}", {"config": config, "files": list(files), **fields})


def listing(session: Session, noun: str, **params: Any) -> List[Json]:
    rows: List[Json] = session.get(f"/api/v1/{noun}", params={k: v for k, v in params.items() if v is not None})[noun]
    return rows


def get(session: Session, noun: str, task_id: str) -> Json:
    """Returns {"command", "config"}, of which the first is called as the noun is."""
    answer: Json = session.get(f"/api/v1/{noun}/{task_id}")
    return answer


def named(session: Session, noun: str, text: str) -> str:
    """The id of the task that ``text`` is, or is the beginning of, or the description; one that has ended only where no other is
    meant. Raises NotFound, Refused."""
    kind = noun[:-1]
    return text if _ID.fullmatch(text) else _named(session, kind, text, [f"TASK_TYPE_{kind.upper()}"])


def named_of_any_kind(session: Session, text: str) -> str:
    """As ``named``, of launched tasks of every kind. Ids of other tasks, such as ``7.12``, stay as they are."""
    return text if "." in text or _ID.fullmatch(text) else _named(session, "task", text, ())


def _named(session: Session, noun: str, text: str, types: Sequence[str]) -> str:
    live, _ = launched(session, types=types, live=True)
    try:
        return names.choose(noun, text, map(_candidate, live), beginnings=True)
    except NotFound:
        rows, _ = launched(session, types=types)
        return names.choose(noun, text, map(_candidate, rows), beginnings=True)


def _candidate(row: Json) -> names.Candidate:
    details = f"{row['state'].replace('STATE_', '')}, launched {row['startTime'][:19]}Z"
    return names.Candidate(row["id"], row["description"], details)


def kill(session: Session, noun: str, task_id: str) -> Json:
    answer: Json = session.post(f"/api/v1/{noun}/{task_id}/kill")
    return answer


def set_priority(session: Session, noun: str, task_id: str, priority: int) -> None:
    session.post(f"/api/v1/{noun}/{task_id}/set_priority", {"priority": priority})


def answers(session: Session, task_id: str, path: str = "") -> bool:
    """Whether what the task serves answers yet."""
    try:
        session.raw(f"/proxy/{task_id}/{path}")
    except (NotFound, Refused):
        return False
    except MasterError as error:
        if error.status != 502:
            raise
        return False
    return True


def ticket(session: Session, task_id: str, path: str = "") -> Json:
    """Where a browser opens what the task serves: {"url", "path", "host", "siteHost"}. It is valid once."""
    answer: Json = session.post(f"/api/v1/tasks/{task_id}/proxy-tickets", {"path": path} if path else {})
    return answer


# --- of any kind


def launched(
    session: Session, *, types: Sequence[str] = (), live: Optional[bool] = None, offset: int = 0, limit: int = 0
) -> Tuple[List[Json], int]:
    """A page of launched tasks of these types (TASK_TYPE_COMMAND), the newest first, and how many there are. ``live``: those that
    have not ended, or only those that have."""
    params: Json = {"taskTypes": list(types), "offset": offset, "limit": limit}
    if live is not None:
        params["live"] = live
    answer = session.get("/api/v1/launched-tasks", params=params)
    return answer["tasks"], int(answer["pagination"]["total"])


def launched_task(session: Session, task_id: str) -> Json:
    """Returns {"task", "config"}."""
    answer: Json = session.get(f"/api/v1/launched-tasks/{task_id}")
    return answer


# --- generic tasks


def create_generic(session: Session, config: str, files: Optional[Sequence[Json]], **fields: Any) -> Json:
    """``config``: YAML. Returns {"taskId", "warnings", "notes"}. Raises ConfigError, ContextError."""
    return _post(session, "/api/v1/generic-tasks", {"config": config, "contextDirectory": files, **fields})


def generic_config(session: Session, task_id: str) -> str:
    """Its configuration, as JSON text."""
    return str(session.get(f"/api/v1/tasks/{task_id}/config")["config"])


def task(session: Session, task_id: str) -> Json:
    """Of any kind, with its allocations, the newest first."""
    answer: Json = session.get(f"/api/v1/tasks/{task_id}")["task"]
    return answer


def allocations(session: Session) -> List[Json]:
    """Every run of any task that has not ended."""
    return list(session.get("/api/v1/tasks")["allocationIdToSummary"].values())


def pause(session: Session, task_id: str) -> None:
    session.post(f"/api/v1/tasks/{task_id}/pause")


def unpause(session: Session, task_id: str) -> None:
    session.post(f"/api/v1/tasks/{task_id}/unpause")


def kill_generic(session: Session, task_id: str, *, from_root: bool = False) -> None:
    """``from_root``: with all that descend from the same task."""
    session.post(f"/api/v1/tasks/{task_id}/kill", {"taskId": task_id, "killFromRoot": from_root})
