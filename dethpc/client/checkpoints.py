"""Checkpoints over the REST API. Answers are the wire's JSON objects."""

from __future__ import annotations

from typing import Any, Dict

from dethpc.client.session import Session

Json = Dict[str, Any]


def get(session: Session, uuid: str) -> Json:
    """The checkpoint (the wire's ``checkpoint`` object). Raises NotFound."""
    found: Json = session.get(f"/api/v1/checkpoints/{uuid}")["checkpoint"]
    return found


def storage(checkpoint: Json) -> Json:
    """The ``checkpoint_storage`` section that the checkpoint was written with; {} when the master does not say."""
    config = (checkpoint.get("training") or {}).get("experimentConfig") or {}
    section: Json = config.get("checkpoint_storage") or {}
    return section
