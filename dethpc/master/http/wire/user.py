"""Users and logins on the wire. One master serves one user: its owner."""

from __future__ import annotations

from dethpc.master.http.wire.base import Pagination, Wire


class User(Wire):
    id: int = 1
    username: str
    display_name: str = ""
    admin: bool = True
    active: bool = True
    remote: bool = False


class LoginRequest(Wire):
    username: str = ""
    password: str = ""
    is_hashed: bool | None = None


class Proof(Wire):
    """Ours: the HMAC that only the owner's master can compute."""

    proof: str


class LoginAnswer(Wire):
    token: str
    user: User


class UserAnswer(Wire):
    user: User


class Users(Wire):
    users: list[User]
    pagination: Pagination


class UserPatch(Wire):
    username: str | None = None
    display_name: str | None = None
    active: bool | None = None
    admin: bool | None = None
    password: str | None = None
    is_hashed: bool | None = None
