"""Routes of logins, users and access tokens. So far only the master's owner can log in."""

from __future__ import annotations

import re
import time as clock
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Body, Query, Request

from dethpc.domain import records
from dethpc.domain.records import Token, TokenKind
from dethpc.domain.records import User as UserRecord
from dethpc.errors import NotFound, NotSupportedYet, Refused
from dethpc.master.http.access import (
    Limit,
    Offset,
    OrderBy,
    Owner,
    Peer,
    SortBy,
    TheAuth,
    TheRecords,
    page_grant,
)
from dethpc.master.http.codes import digest
from dethpc.master.http.models import Given, Pagination, Wire, paged, time, time_or_none
from dethpc.master.http.router import new_router


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


class TokenInfo(Wire):
    id: int
    user_id: int
    token_type: str
    created_at: str
    expiry: str | None
    description: str
    revoked: bool

    @classmethod
    def of(cls, token: records.Token) -> TokenInfo:
        return cls(
            id=token.id,
            user_id=token.user_id,
            token_type=f"TOKEN_TYPE_{token.kind.value}",
            created_at=time(token.created_at),
            expiry=time_or_none(token.expires_at),
            description=token.description,
            revoked=token.revoked,
        )


class Tokens(Wire):
    token_info: list[TokenInfo]
    pagination: Pagination


class TokenAnswer(Wire):
    token_info: TokenInfo


class NewToken(Wire):
    """``lifespan``: such as "48h"; "-1" for ever, none: 30 days."""

    user_id: int | None = None
    lifespan: str | None = None
    description: Given | None = None


class MadeToken(Wire):
    """The only answer that holds the token itself."""

    token: str
    token_id: int


class TokenPatch(Wire):
    description: Given | None = None
    set_revoked: bool | None = None


router = new_router(prefix="/api/v1", tags=["users"])


@router.post("/auth/login")
def login(request: LoginRequest, sent: Request, auth: TheAuth, peer: Peer) -> LoginAnswer:
    """Name and password of the owner; the text of the token file is always good as the password. Answers 429 at once, with
    ``Retry-After``, when others log in, and after several failures."""
    token = auth.login(
        request.username, request.password, hashed=bool(request.is_hashed), peer=peer, program=_program(sent)
    )
    return LoginAnswer(token=token, user=User.of(auth.user))


@router.post("/auth/code")
def make_code(auth: TheAuth, who: Owner, peer: Peer) -> OneTimeCode:
    """A code for one login of a browser, within five minutes, and the host names under which the pages are to be opened. On
    this machine the code is good for the user who asked, and for nobody else."""
    return OneTimeCode(code=auth.codes.make(peer), host=auth.pages.local, site_host=auth.pages.site)


def _program(request: Request) -> str:
    return request.headers.get("user-agent", "")[:300]


@router.get("/auth/sessions")
def logins(request: Request, records: TheRecords, who: Owner) -> Logins:
    """Logins that are good, the latest first."""
    now, asks, page = clock.time(), digest(request.state.token), page_grant(request)
    rows = [token for kind in _LOGINS for token in records.find(Token, kind=kind) if token.good(now)]
    rows.sort(key=lambda token: token.id, reverse=True)
    current = {token.id for token in rows if token.sha256 == asks or (page is not None and token.id == page.row)}
    return Logins(sessions=[Login.of(token, current=token.id in current) for token in rows])


_LOGINS = (TokenKind.SESSION, TokenKind.PAGES)


@router.delete("/auth/sessions/{session_id}")
def end_login(session_id: int, records: TheRecords, who: Owner) -> dict[str, Any]:
    """End one login. Access tokens and the token file are none, although they have numbers among them."""
    if records.get(Token, session_id).kind not in _LOGINS:
        raise NotFound(f"login {session_id} not found")
    records.change(Token, session_id, to=lambda token: replace(token, revoked=True))
    return {}


@router.get("/auth/proof")
def proof(nonce: str, request: Request, auth: TheAuth, run: str = "") -> Proof:
    """Shows a client that has the owner's token, or that of a run, that this server knows it, before the client sends it."""
    try:
        return Proof(proof=auth.proof(nonce, request.scope["server"], run))
    except ValueError as error:
        raise Refused(str(error)) from None


@router.post("/auth/logout")
def logout(request: Request, auth: TheAuth, who: Owner, everywhere: bool = False) -> dict[str, Any]:
    """End the login or access token that asks; with ``everywhere``, all of them. The token file stays good."""
    if everywhere:
        auth.end_all()
    else:
        auth.logout(request.state.token)
    return {}


@router.get("/auth/user", name="current_user")
@router.get("/me")
def me(auth: TheAuth, who: Owner) -> UserAnswer:
    return UserAnswer(user=User.of(auth.user))


@router.get("/users")
def users(
    records: TheRecords,
    who: Owner,
    name: str = "",
    active: bool | None = None,
    admin: bool | None = None,
    sort_by: SortBy = "",
    order_by: OrderBy = "",
    limit: Limit = 0,
    offset: Offset = 0,
) -> Users:
    """``name``: part of the user's name or of the one that is shown, in any case."""
    matches = [
        user
        for user in (User.of(record) for record in records.find(UserRecord))
        if (name.lower() in user.username.lower() or name.lower() in user.display_name.lower())
        and active in (None, user.active)
        and admin in (None, user.admin)
    ]
    key = _SORTED_BY.get(sort_by.removeprefix("SORT_BY_"), "id")
    matches.sort(key=lambda user: (getattr(user, key), user.id), reverse=order_by == "ORDER_BY_DESC")
    shown, pagination = paged(matches, offset, limit)
    return Users(users=shown, pagination=pagination)


_SORTED_BY = {
    "DISPLAY_NAME": "display_name",
    "USER_NAME": "username",
    "NAME": "display_name",
    "ADMIN": "admin",
    "ACTIVE": "active",
    "MODIFIED_TIME": "modified_at",
    "REMOTE": "remote",
}


@router.post("/users")
def create_user(who: Owner) -> None:
    raise NotSupportedYet("a master serves one user; sharing it between users is not supported yet")


@router.get("/users/setting")
def settings(who: Owner) -> dict[str, list[Any]]:
    """None are kept yet."""
    return {"settings": []}


@router.get("/users/{user_id}")
def get_user(user_id: int, records: TheRecords, who: Owner) -> UserAnswer:
    return UserAnswer(user=User.of(records.get(UserRecord, user_id)))


@router.get("/users/{username}/by-username")
def get_user_by_name(username: str, records: TheRecords, who: Owner) -> UserAnswer:
    for user in records.find(UserRecord, username=username):
        return UserAnswer(user=User.of(user))
    raise NotFound(f"user {username!r} not found")


@router.patch("/users/{user_id}")
def change_user(user_id: int, request: UserPatch, records: TheRecords, auth: TheAuth, who: Owner) -> UserAnswer:
    """Password and display name can be changed: the owner is who runs the master."""
    user = records.get(UserRecord, user_id)
    if request.username not in (None, user.username) or request.active is False or request.admin is False:
        raise Refused("the owner of a master is who runs it: only the password and the display name can be changed")
    if request.display_name is not None:
        shown = request.display_name
        records.change(UserRecord, user_id, to=lambda user: replace(user, display_name=shown, modified_at=clock.time()))
    if request.password is not None:
        auth.set_password(request.password, hashed=bool(request.is_hashed))
    return UserAnswer(user=User.of(records.get(UserRecord, user_id)))


@router.post("/users/{user_id}/password")
def set_password(
    user_id: int, password: Annotated[str, Body()], records: TheRecords, auth: TheAuth, who: Owner
) -> UserAnswer:
    user = records.get(UserRecord, user_id)
    auth.set_password(password, hashed=False)
    return UserAnswer(user=User.of(user))


token_routes = new_router(prefix="/api/v1/tokens", tags=["tokens"])

LIFESPAN = 30 * 24 * 3600.0
"""Seconds for which a token is good when nobody says otherwise."""

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}


@token_routes.get("")
def tokens(
    records: TheRecords,
    who: Owner,
    token_ids: Annotated[list[int] | None, Query(alias="tokenIds")] = None,
    username: str | None = None,
    show_inactive: Annotated[bool, Query(alias="showInactive")] = False,
    sort_by: SortBy = "",
    order_by: OrderBy = "",
    limit: Limit = 0,
    offset: Offset = 0,
) -> Tokens:
    """Access tokens that are good; with ``showInactive``, or by id, those that are revoked or have expired, too."""
    now = clock.time()
    owners = None if not username else {user.id for user in records.find(UserRecord, username=username)}
    matches = [
        token
        for token in records.find(Token, kind=TokenKind.ACCESS)
        if (token.id in token_ids if token_ids else show_inactive or token.good(now))
        and (owners is None or token.user_id in owners)
    ]
    key = _TOKENS_SORTED_BY.get(sort_by.removeprefix("SORT_BY_").lower(), "id")
    matches.sort(key=lambda token: (getattr(token, key) is None, getattr(token, key), token.id))
    if order_by == "ORDER_BY_DESC":
        matches.reverse()
    page, pagination = paged([TokenInfo.of(token) for token in matches], offset, limit)
    return Tokens(token_info=page, pagination=pagination)


_TOKENS_SORTED_BY = {
    "user_id": "user_id",
    "expiry": "expires_at",
    "created_at": "created_at",
    "token_type": "kind",
    "revoked": "revoked",
    "description": "description",
}


@token_routes.post("")
def create(request: NewToken, records: TheRecords, auth: TheAuth, who: Owner) -> MadeToken:
    """Nobody can see the token again: only its digest is kept."""
    if request.user_id is not None:
        records.get(UserRecord, request.user_id)
    token, record = auth.make_token(TokenKind.ACCESS, _lifespan(request.lifespan), request.description or "")
    return MadeToken(token=token, token_id=record.id)


@token_routes.patch("/{token_id}")
def change(token_id: int, request: TokenPatch, records: TheRecords, who: Owner) -> TokenAnswer:
    """A token that was revoked stays so. Logins and the token file are none of these, although they have numbers among them."""
    if records.get(Token, token_id).kind is not TokenKind.ACCESS:
        raise NotFound(f"access token {token_id} not found")

    def changed(token: Token) -> Token:
        description = token.description if request.description is None else request.description
        return replace(token, description=description, revoked=token.revoked or bool(request.set_revoked))

    return TokenAnswer(token_info=TokenInfo.of(records.change(Token, token_id, to=changed)))


def _lifespan(text: str | None) -> float | None:
    """Seconds; None: for ever. Raises: Refused."""
    if not text:
        return LIFESPAN
    if text == "-1":
        return None
    parts = re.findall(r"(\d+(?:\.\d+)?)([hms])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text or not any(float(n) for n, _ in parts):
        raise Refused(
            f'the lifespan {text!r} is invalid: give hours, such as "48h", or "-1" for a token that never expires'
        )
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
