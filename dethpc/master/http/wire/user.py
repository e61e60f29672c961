"""Users and logins on the wire."""

from __future__ import annotations

from dethpc.domain import records
from dethpc.master.http.models import Given, Pagination, Wire, time, time_or_none


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


class Login(Wire):
    """Ours: a login that is good. ``program``: what the program that logged in called itself, "" when it did not."""

    id: int
    created_at: str
    expiry: str | None
    program: str
    current: bool

    @classmethod
    def of(cls, token: records.Token, *, current: bool) -> Login:
        return cls(
            id=token.id,
            created_at=time(token.created_at),
            expiry=time_or_none(token.expires_at),
            program=token.description,
            current=current,
        )


class Logins(Wire):
    sessions: list[Login]


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


class OneTimeCode(Wire):
    """Ours: logs a browser in, once. ``host``: the host name of the pages by loopback; ``site_host``: by the network, where the
    site has given them one."""

    code: str
    host: str
    site_host: str
