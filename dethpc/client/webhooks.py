"""Webhooks, over the REST API. Answers are the wire's JSON objects."""

from __future__ import annotations

from typing import Any, Dict, List

from dethpc.client.session import Session

Json = Dict[str, Any]


def webhooks(session: Session) -> List[Json]:
    rows: List[Json] = session.get("/api/v1/webhooks")["webhooks"]
    return rows


def create(session: Session, name: str, url: str, triggers: List[Json], **fields: Any) -> Json:
    """``fields`` as the wire has them. Raises Refused, NotFound."""
    body = {"name": name, "url": url, "triggers": triggers, **fields}
    row: Json = session.post("/api/v1/webhooks", body)["webhook"]
    return row


def change(session: Session, webhook_id: int, **fields: Any) -> Json:
    """Raises NotFound, Refused."""
    row: Json = session.patch(f"/api/v1/webhooks/{webhook_id}", fields)["webhook"]
    return row


def delete(session: Session, webhook_id: int) -> None:
    """Raises NotFound."""
    session.delete(f"/api/v1/webhooks/{webhook_id}")


def test(session: Session, webhook_id: int) -> str:
    """Send a test; what the receiver answered. Raises NotFound; Refused, with the reason, where it was not taken."""
    return str(session.post(f"/api/v1/webhooks/{webhook_id}/test")["answer"])


def deliveries(session: Session, webhook_id: int, **params: Any) -> List[Json]:
    """The newest first. ``params``: the page, as the wire has it. Raises NotFound."""
    rows: List[Json] = session.get(f"/api/v1/webhooks/{webhook_id}/deliveries", params)["deliveries"]
    return rows
