"""Logins and users. There is one user: the master's owner."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Request

from dethpc.errors import NotFound, NotSupportedYet, Refused
from dethpc.master.http.auth import Principal
from dethpc.master.http.routes.access import Limit, Offset, Owner, TheMaster
from dethpc.master.http.wire.base import paged
from dethpc.master.http.wire.user import LoginAnswer, LoginRequest, Proof, User, UserAnswer, UserPatch, Users

router = APIRouter(prefix="/api/v1", tags=["users"])


def _user(name: str) -> User:
    return User(username=name, display_name=name)


def _known(who: Principal, known: bool) -> User:
    if not known:
        raise NotFound("user not found")
    return _user(who.owner)


@router.post("/auth/login")
def login(request: LoginRequest, master: TheMaster) -> LoginAnswer:
    """Name and password of the owner; the text of the token file is always good as the password."""
    token = master.auth.login(request.username, request.password, hashed=bool(request.is_hashed))
    return LoginAnswer(token=token, user=_user(master.auth.owner))


@router.get("/auth/proof")
def proof(nonce: str, request: Request, master: TheMaster) -> Proof:
    """Shows a client that has the owner's token that this server has it, too, before the client sends it."""
    try:
        return Proof(proof=master.auth.proof(nonce, request.scope["server"]))
    except ValueError as error:
        raise Refused(str(error)) from None


@router.post("/auth/logout")
def logout(request: Request, master: TheMaster, who: Owner) -> dict[str, Any]:
    master.auth.logout(request.state.token)
    return {}


@router.get("/auth/user", name="current_user")
@router.get("/me")
def me(who: Owner) -> UserAnswer:
    return UserAnswer(user=_user(who.owner))


@router.get("/users")
def users(who: Owner, limit: Limit = 0, offset: Offset = 0) -> Users:
    found, pagination = paged([_user(who.owner)], offset, limit)
    return Users(users=found, pagination=pagination)


@router.post("/users")
def create_user(who: Owner) -> None:
    raise NotSupportedYet("a master serves one user; sharing one between users is not supported yet")


@router.get("/users/setting")
def settings(who: Owner) -> dict[str, list[Any]]:
    """None are kept yet."""
    return {"settings": []}


@router.get("/users/{user_id}")
def get_user(user_id: int, who: Owner) -> UserAnswer:
    return UserAnswer(user=_known(who, user_id == 1))


@router.get("/users/{username}/by-username")
def get_user_by_name(username: str, who: Owner) -> UserAnswer:
    return UserAnswer(user=_known(who, username == who.owner))


@router.patch("/users/{user_id}")
def change_user(user_id: int, request: UserPatch, master: TheMaster, who: Owner) -> UserAnswer:
    """Only the password can be changed: the owner is who runs the master."""
    user = _known(who, user_id == 1)
    if request.username not in (None, who.owner) or request.active is False or request.admin is False:
        raise Refused("the owner of a master is who runs it: only the password can be changed")
    if request.display_name not in (None, who.owner):
        raise NotSupportedYet("display names are not supported yet")
    if request.password is not None:
        master.auth.set_password(request.password, hashed=bool(request.is_hashed))
    return UserAnswer(user=user)


@router.post("/users/{user_id}/password")
def set_password(user_id: int, password: Annotated[str, Body()], master: TheMaster, who: Owner) -> UserAnswer:
    user = _known(who, user_id == 1)
    master.auth.set_password(password, hashed=False)
    return UserAnswer(user=user)
