"""Access tokens, over the REST API. Answers are the wire's JSON objects."""

from __future__ import annotations

from typing import List, Optional, Sequence

from dethpc.client import names
from dethpc.client.session import Json, Session


def tokens(
    session: Session, *, username: Optional[str] = None, inactive: bool = False, ids: Sequence[int] = ()
) -> List[Json]:
    """Those that are good; with ``inactive``, or by ``ids``, those that are revoked or have expired, too."""
    params: Json = {"showInactive": inactive}
    if username:
        params["username"] = username
    if ids:
        params["tokenIds"] = list(ids)
    rows: List[Json] = session.get("/api/v1/tokens", params=params)["tokenInfo"]
    return rows


def by_description(session: Session, text: str) -> int:
    """The id of the access token that has this id or description. Raises NotFound, Refused."""
    rows = [
        names.Candidate(str(row["id"]), row["description"] or "", f"created {row['createdAt']}")
        for row in tokens(session, inactive=True)
    ]
    return int(names.choose("token", text, rows))


def create(session: Session, user: int, *, days: Optional[float] = None, description: str = "") -> Json:
    """``token`` and ``tokenId``; nobody can see the token again. ``days``: -1 for ever, None: 30. Raises NotFound, Refused."""
    lifespan = None if days is None else "-1" if days == -1 else f"{24 * days:g}h"
    token: Json = session.post(
        "/api/v1/tokens", {"userId": user, "lifespan": lifespan, "description": description or None}
    )
    return token


def change(session: Session, token: int, *, description: Optional[str] = None, revoke: bool = False) -> Json:
    """Raises NotFound."""
    body = {"tokenId": token, "description": description, "setRevoked": revoke}
    row: Json = session.patch(f"/api/v1/tokens/{token}", body)["tokenInfo"]
    return row
