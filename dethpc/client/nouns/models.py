"""The model registry, over the REST API. Answers are the wire's JSON objects; a model is named by its name or its id."""

from __future__ import annotations

from typing import Any, List, Union
from urllib.parse import quote

from dethpc.client.session import Json, Session

Name = Union[str, int]


def path(model: Name) -> str:
    return f"/api/v1/models/{quote(str(model), safe='')}"


def models(session: Session, **params: Any) -> List[Json]:
    """``params``: filters, order and page, as the wire has them."""
    rows: List[Json] = session.get("/api/v1/models", params)["models"]
    return rows


def model(session: Session, name: Name) -> Json:
    """Raises NotFound."""
    row: Json = session.get(path(name))["model"]
    return row


def labels(session: Session) -> List[str]:
    """Those in use, the most popular first."""
    names: List[str] = session.get("/api/v1/model/labels")["labels"]
    return names


def create(session: Session, name: str, **fields: Any) -> Json:
    """``fields`` as the wire has them. Raises Refused, NotFound."""
    row: Json = session.post("/api/v1/models", {"name": name, **fields})["model"]
    return row


def change(session: Session, identifier: Name, **fields: Any) -> Json:
    """Raises NotFound, Refused."""
    row: Json = session.patch(path(identifier), fields)["model"]
    return row


def act(session: Session, identifier: Name, action: str) -> None:
    """``action``: archive or unarchive. Raises NotFound."""
    session.post(f"{path(identifier)}/{action}")


def delete(session: Session, identifier: Name) -> None:
    """With its versions; their checkpoints stay. Raises NotFound."""
    session.delete(path(identifier))


def versions(session: Session, identifier: Name, **params: Any) -> List[Json]:
    """The newest first, unless ``params`` say otherwise. Raises NotFound."""
    rows: List[Json] = session.get(f"{path(identifier)}/versions", params)["modelVersions"]
    return rows


def version(session: Session, identifier: Name, number: int) -> Json:
    """Raises NotFound."""
    row: Json = session.get(f"{path(identifier)}/versions/{number}")["modelVersion"]
    return row


def register(session: Session, identifier: Name, checkpoint: str, **fields: Any) -> Json:
    """The new version. ``checkpoint``: a uuid. Raises NotFound, Refused."""
    body = {"modelName": str(identifier), "checkpointUuid": checkpoint, **fields}
    row: Json = session.post(f"{path(identifier)}/versions", body)["modelVersion"]
    return row


def change_version(session: Session, identifier: Name, number: int, **fields: Any) -> Json:
    """Raises NotFound, Refused."""
    row: Json = session.patch(f"{path(identifier)}/versions/{number}", fields)["modelVersion"]
    return row


def delete_version(session: Session, identifier: Name, number: int) -> None:
    """Its checkpoint stays. Raises NotFound."""
    session.delete(f"{path(identifier)}/versions/{number}")
