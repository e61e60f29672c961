"""Users and logins on the wire."""

from __future__ import annotations

from dethpc.domain import records
from dethpc.master.http.wire.base import Given, Pagination, Wire, time


class User(Wire):
    id: int
    username: str
    display_name: str
    admin: bool
    active: bool
    modified_at: str
    remote: bool = False

    @classmethod
    def of(cls, user: records.User) -> User:
        return cls(
            id=user.id,
            username=user.username,
            display_name=user.display_name,
            admin=user.admin,
            active=user.active,
            modified_at=time(user.modified_at),
        )


class LoginRequest(Wire):
    username: str = ""
    password: str = ""
    is_hashed: bool | None = None


class Nonce(Wire):
    """Ours: a number that is used once."""

    nonce: str


class Credential(Wire):
    """Ours: what munge vouches for."""

    credential: str


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
    display_name: Given | None = None
    active: bool | None = None
    admin: bool | None = None
    password: str | None = None
    is_hashed: bool | None = None
