"""Logins and users. One user may log in so far: the master's owner."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Body, Request

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
from dethpc.master.http.models import paged
from dethpc.master.http.router import new_router
from dethpc.master.http.wire.user import (
    Credential,
    Login,
    LoginAnswer,
    LoginRequest,
    Logins,
    Nonce,
    OneTimeCode,
    Proof,
    User,
    UserAnswer,
    UserPatch,
    Users,
)

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
    now, asks, page = time.time(), digest(request.state.token), page_grant(request)
    found = [token for kind in _LOGINS for token in records.find(Token, kind=kind) if token.good(now)]
    found.sort(key=lambda token: token.id, reverse=True)
    current = {token.id for token in found if token.sha256 == asks or (page is not None and token.id == page.row)}
    return Logins(sessions=[Login.of(token, current=token.id in current) for token in found])


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


@router.get("/auth/munge")
def nonce(auth: TheAuth) -> Nonce:
    """Where the site wants logins by munge: what the client's credential must repeat."""
    return Nonce(nonce=auth.munge.nonce())


@router.post("/auth/munge")
def login_by_munge(given: Credential, request: Request, auth: TheAuth) -> Credential:
    """The owner's key, in a credential that only the owner can decode."""
    return Credential(credential=auth.munge.answer(given.credential, auth.whereabouts(request.scope["server"])))


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
    found = [
        user
        for user in (User.of(record) for record in records.find(UserRecord))
        if (name.lower() in user.username.lower() or name.lower() in user.display_name.lower())
        and active in (None, user.active)
        and admin in (None, user.admin)
    ]
    key = _SORTED_BY.get(sort_by.removeprefix("SORT_BY_"), "id")
    found.sort(key=lambda user: (getattr(user, key), user.id), reverse=order_by == "ORDER_BY_DESC")
    shown, pagination = paged(found, offset, limit)
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
        records.change(UserRecord, user_id, to=lambda user: replace(user, display_name=shown, modified_at=time.time()))
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
