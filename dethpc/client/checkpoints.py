"""Checkpoints over the REST API. Answers are the wire's JSON objects."""

from __future__ import annotations

from typing import Any, Dict, Sequence

from dethpc.client.session import Session
from dethpc.domain.trial_config import TrialConfig
from dethpc.errors import Refused

Json = Dict[str, Any]


def get(session: Session, uuid: str) -> Json:
    """The checkpoint (the wire's ``checkpoint`` object). Raises NotFound."""
    found: Json = session.get(f"/api/v1/checkpoints/{uuid}")["checkpoint"]
    return found


def delete(session: Session, uuids: Sequence[str]) -> None:
    """Delete checkpoints and their files. Raises NotFound, and Refused when a trial would still start from one."""
    session.delete("/api/v1/checkpoints", json={"checkpointUuids": list(uuids)})


def remove_files(session: Session, uuids: Sequence[str], globs: Sequence[str]) -> None:
    """Delete the files that match ("**" means any folders); without globs only look which there are. Raises as ``delete``."""
    session.post("/api/v1/checkpoints/rm", json={"checkpointUuids": list(uuids), "checkpointGlobs": list(globs)})


def set_metadata(session: Session, uuid: str, metadata: Json) -> None:
    """Replace the checkpoint's metadata, as the master has them. Raises NotFound."""
    session.post(f"/api/v1/checkpoints/{uuid}/metadata", json={"checkpoint": {"uuid": uuid, "metadata": metadata}})


def refuse_elsewhere(uuid: str, place: str) -> None:
    """Raises Refused where training code put the checkpoint into another ``place``: its word must not decide what det reads."""
    if place:
        raise Refused(
            f"checkpoint {uuid} is in {place}, where the training code put it, and not in the checkpoint_storage of its "
            "experiment: det reads nothing there; copy it by hand"
        )


def storage(checkpoint: Json) -> Json:
    """The ``checkpoint_storage`` section that the checkpoint was written with; {} when the master does not say. Raises Refused
    where that is not the experiment's."""
    refuse_elsewhere(checkpoint.get("uuid") or "", checkpoint.get("elsewhere") or "")
    return TrialConfig.from_json((checkpoint.get("training") or {}).get("experimentConfig") or {}).checkpoint_storage
