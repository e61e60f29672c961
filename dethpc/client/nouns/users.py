"""Users, over the REST API. Answers are the wire's JSON objects."""

from __future__ import annotations

from typing import Any, List

from dethpc.client import names
from dethpc.client.session import Json, Session
from dethpc.domain.ids import OWNER_ID


def me(session: Session) -> Json:
    user: Json = session.get("/api/v1/me")["user"]
    return user


def own_id(session: Session) -> int:
    """Of the session's user. The owner's is known."""
    return OWNER_ID if session.is_owners else int(me(session)["id"])


def users(session: Session) -> List[Json]:
    rows: List[Json] = session.get("/api/v1/users")["users"]
    return rows


def by_name(session: Session, username: str) -> Json:
    """A name counts before an id: it may be a number. Raises NotFound, with names like it."""
    return names.find("user", username, users(session), name="username")


def create(session: Session, username: str, password: str, *, admin: bool = False, display_name: str = "") -> Json:
    """``password`` in clear; "": none yet. Raises AlreadyExists, Refused."""
    user = {"username": username, "admin": admin, "active": True, "displayName": display_name}
    row: Json = session.post("/api/v1/users", {"user": user, "password": password, "isHashed": False})["user"]
    return row


def change(session: Session, user: int, **changes: Any) -> Json:
    """Fields are ``password`` (in clear), ``displayName``, ``username``, ``active``, ``admin``, ``agentUserGroup``.

    Raises NotFound, Refused.
    """
    row: Json = session.patch(f"/api/v1/users/{user}", {"isHashed": False, **changes})["user"]
    return row


def logout(session: Session, *, everywhere: bool = False) -> None:
    """End the login or access token of ``session``; ``everywhere``: all of this user's. The owner's token file stays good."""
    session.post("/api/v1/auth/logout", params={"everywhere": everywhere})


def logins(session: Session) -> List[Json]:
    """Logins that are good: ``id``, ``createdAt``, ``expiry``, ``program``, and whether it is ``current``: that of ``session``."""
    rows: List[Json] = session.get("/api/v1/auth/sessions")["sessions"]
    return rows


def end_login(session: Session, login: int) -> None:
    """Raises NotFound."""
    session.delete(f"/api/v1/auth/sessions/{login}")


def one_time_code(session: Session) -> Json:
    """``code``, which logs a browser in once, within five minutes, ``host``, the host name of the pages by loopback, and
    ``siteHost``, that by the network, "" for the master's own."""
    code: Json = session.post("/api/v1/auth/code")
    return code
