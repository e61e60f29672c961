"""Images of containers in the cache, over the REST API. Answers are the wire's JSON objects."""

from __future__ import annotations

from typing import List, Sequence

from dethpc.client.session import Json, Session


def images(session: Session) -> Json:
    """``images``, the newest first, and ``pulls``, those that are under way."""
    answer: Json = session.get("/api/v1/images")
    return answer


def pull(session: Session, image: str, *, pool: str = "", format: str = "", force: bool = False) -> Json:
    """Begin to bring an image into the cache; the pull, which may be under way already. Raises Refused."""
    body = {"image": image, "resourcePool": pool, "format": format, "force": force}
    row: Json = session.post("/api/v1/images", json=body)["pull"]
    return row


def get_pull(session: Session, task: str) -> Json:
    """How far a pull is. Raises NotFound."""
    row: Json = session.get(f"/api/v1/images/pulls/{task}")["pull"]
    return row


def cancel(session: Session, image: str) -> List[str]:
    """End the pulls of an image that are under way; the ids of their tasks. Raises NotFound where there is none."""
    task_ids: List[str] = session.post("/api/v1/images/cancel", json={"image": image})["taskIds"]
    return task_ids


def unneeded(session: Session) -> List[Json]:
    """Images that no experiment needs which has not ended."""
    rows: List[Json] = session.get("/api/v1/images/unneeded")["images"]
    return rows


def prune(session: Session, images: Sequence[Json]) -> int:
    """Remove these, as far as nobody needs them by now; how many go."""
    chosen = [{"digest": image["digest"], "format": image["format"]} for image in images]
    return int(session.post("/api/v1/images/prune", json={"images": chosen})["removed"])
