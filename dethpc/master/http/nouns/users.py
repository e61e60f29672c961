"""Routes of logins, users and access tokens."""

from __future__ import annotations

import re
import time as clock
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import Body, Depends, Request

from dethpc.config.wording import show
from dethpc.domain import records
from dethpc.domain.records import ProjectVisit, RoleAssignment, Token, TokenKind, UserSetting
from dethpc.domain.records import User as UserRecord
from dethpc.domain.roles import Role
from dethpc.errors import AlreadyExists, NotFound, Refused
from dethpc.master.durable.records import Records
from dethpc.master.experiments import filing
from dethpc.master.http.access import (
    AnyUser,
    Owner,
    Peer,
    TheAuth,
    TheOrder,
    ThePage,
    TheRecords,
    ViewerSomewhere,
    VisibleRecords,
    page_grant,
)
from dethpc.master.http.auth import Forbidden, Principal
from dethpc.master.http.codes import digest
from dethpc.master.http.models import Given, Pagination, Wire, time, time_or_none
from dethpc.master.http.router import new_router


class AgentUserGroup(Wire):
    """A Unix user and group. Jobs run as the owner of the master all the same."""

    agent_uid: int | None = None
    agent_user: str | None = None
    agent_gid: int | None = None
    agent_group: str | None = None

    @classmethod
    def of(cls, link: dict[str, Any] | None) -> AgentUserGroup | None:
        return None if link is None else cls(**link)

    @property
    def link(self) -> dict[str, Any] | None:
        """As records have it; None: nothing is linked."""
        return self.model_dump(exclude_none=True) or None


class User(Wire):
    id: int
    username: str
    display_name: str
    admin: bool
    active: bool
    modified_at: str
    remote: bool = False
    agent_user_group: AgentUserGroup | None = None

    @classmethod
    def of(cls, user: records.User) -> User:
        return cls(
            id=user.id,
            username=user.username,
            display_name=user.display_name,
            admin=user.admin,
            active=user.active,
            modified_at=time(user.modified_at),
            agent_user_group=AgentUserGroup.of(user.agent),
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
    remote: bool | None = None
    agent_user_group: AgentUserGroup | None = None


class NewUser(Wire):
    class Fields(Wire):
        username: str = ""
        display_name: Given | None = None
        admin: bool = False
        active: bool = True
        agent_user_group: AgentUserGroup | None = None

    user: Fields = Fields()
    password: str | None = None
    is_hashed: bool | None = None


class Setting(Wire):
    key: Given
    value: Given | None = None
    storage_path: Given | None = None


class Settings(Wire):
    settings: list[Setting] = []


class Activity(Wire):
    activity_type: str = ""
    entity_type: str = ""
    entity_id: int = 0


class UsersPatch(Wire):
    user_ids: list[int] = []
    activate: bool = True


class UserResult(Wire):
    id: int
    error: str


class UsersPatched(Wire):
    results: list[UserResult]


class OneTimeCode(Wire):
    """Ours: logs a browser in, once. ``host``: the host name of the pages by loopback; ``site_host``: by the network, where the
    site has given them one."""

    code: str
    host: str
    site_host: str


router = new_router(prefix="/api/v1", tags=["users"])

MOST_SETTINGS = 1000
"""Of one user."""

LONGEST_SETTING = 100_000
"""Characters."""


@router.post("/auth/login")
def login(request: LoginRequest, sent: Request, auth: TheAuth, records: TheRecords, peer: Peer) -> LoginAnswer:
    """Name and password of a user; the text of the token file is always good as the owner's password. Answers 429 at once, with
    ``Retry-After``, when others log in, and after several failures."""
    token = auth.login(
        request.username, request.password, hashed=bool(request.is_hashed), peer=peer, program=_program(sent)
    )
    return LoginAnswer(token=token, user=User.of(records.get(UserRecord, auth.principal(token).user_id)))


@router.post("/auth/code")
def make_code(auth: TheAuth, who: AnyUser, peer: Peer) -> OneTimeCode:
    """A code for one login of a browser, within five minutes, and the host names under which the pages are to be opened. On
    this machine the code is good for the user who asked, and for nobody else."""
    return OneTimeCode(code=auth.codes.make(peer, who.user_id), host=auth.pages.local, site_host=auth.pages.site)


def _program(request: Request) -> str:
    return request.headers.get("user-agent", "")[:300]


@router.get("/auth/sessions")
def logins(request: Request, records: TheRecords, who: AnyUser) -> Logins:
    """The user's logins that are good, the latest first."""
    now, asks, page = clock.time(), digest(request.state.token), page_grant(request)
    rows = [
        token for kind in _LOGINS for token in records.find(Token, kind=kind, user_id=who.user_id) if token.good(now)
    ]
    rows.sort(key=lambda token: token.id, reverse=True)
    current = {token.id for token in rows if token.sha256 == asks or (page is not None and token.id == page.row)}
    return Logins(sessions=[Login.of(token, current=token.id in current) for token in rows])


_LOGINS = (TokenKind.SESSION, TokenKind.PAGES)


@router.delete("/auth/sessions/{session_id}")
def end_login(session_id: int, records: TheRecords, who: AnyUser) -> dict[str, Any]:
    """End one login of the user; an admin may end anybody's. Access tokens and the token file are none, although they have numbers
    among them."""
    token = records.get(Token, session_id)
    if token.kind not in _LOGINS or not is_theirs(who, token.user_id):
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
def logout(request: Request, auth: TheAuth, who: AnyUser, everywhere: bool = False) -> dict[str, Any]:
    """End the login or access token that asks; with ``everywhere``, all of the user. The token file stays good."""
    if everywhere:
        auth.end_all(who.user_id)
    else:
        auth.logout(request.state.token)
    return {}


@router.get("/auth/user", name="current_user")
@router.get("/me")
def me(records: TheRecords, who: AnyUser) -> UserAnswer:
    return UserAnswer(user=User.of(records.get(UserRecord, who.user_id)))


def is_theirs(who: Principal, user_id: int) -> bool:
    """Whether what belongs to this user is for them to see and to change."""
    return who.role is Role.ADMIN or who.user_id == user_id


@dataclass(frozen=True, slots=True)
class UserQuery:
    """``name``: part of the user's name or of the one that is shown, in any case."""

    name: str = ""
    active: bool | None = None
    admin: bool | None = None

    def matches(self, user: User) -> bool:
        is_named = any(self.name.lower() in name.lower() for name in (user.username, user.display_name))
        return is_named and self.active in (None, user.active) and self.admin in (None, user.admin)


@router.get("/users")
def users(
    records: TheRecords,
    who: ViewerSomewhere,
    sorting: TheOrder,
    paging: ThePage,
    query: Annotated[UserQuery, Depends()],
) -> Users:
    matches = [user for record in records.find(UserRecord) if query.matches(user := User.of(record))]
    key = _SORTED_BY.get(sorting.sort_by.removeprefix("SORT_BY_"), "id")
    matches.sort(key=lambda user: (getattr(user, key), user.id), reverse=sorting.descending)
    shown, pagination = paging.of(matches)
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
def create_user(request: NewUser, records: TheRecords, auth: TheAuth, who: Owner) -> UserAnswer:
    """One who is no admin is a viewer at first. Whatever users may do, jobs run as the owner of the master."""
    username, now = _username(request.user.username), clock.time()
    auth.check_password(request.password or "", hashed=bool(request.is_hashed))
    with records.exclusive():
        _check_display_name(request.user.display_name, records, username)
        _refuse_name_in_use(records, username)
        user = records.add(
            UserRecord,
            username=username,
            display_name=request.user.display_name or "",
            admin=request.user.admin,
            active=request.user.active,
            created_at=now,
            modified_at=now,
            agent=None if request.user.agent_user_group is None else request.user.agent_user_group.link,
        )
        if not user.admin:
            records.put(RoleAssignment(user.id, 0, Role.VIEWER, now))
    if request.password:
        auth.set_password(request.password, hashed=bool(request.is_hashed), user_id=user.id)
    return UserAnswer(user=User.of(records.get(UserRecord, user.id)))


@router.get("/users/setting")
def settings(records: TheRecords, who: AnyUser) -> Settings:
    """What clients keep for the user who asks."""
    rows = records.find(UserSetting, user_id=who.user_id)
    return Settings(settings=[Setting(key=row.key, value=row.value, storage_path=row.storage_path) for row in rows])


@router.post("/users/setting")
def keep_settings(request: Settings, records: TheRecords, who: AnyUser) -> dict[str, Any]:
    """Each takes the place of the one with its key and path. Raises Refused for more than there is room for."""
    with records.exclusive():
        keys = {(row.storage_path, row.key) for row in records.find(UserSetting, user_id=who.user_id)}
        rows = [UserSetting(who.user_id, one.storage_path or "", one.key, one.value or "") for one in request.settings]
        if len(keys | {(row.storage_path, row.key) for row in rows}) > MOST_SETTINGS:
            raise Refused(f"a user has at most {MOST_SETTINGS} settings")
        if any(len(row.value) > LONGEST_SETTING or len(row.key) + len(row.storage_path) > 500 for row in rows):
            raise Refused(f"a setting has at most {LONGEST_SETTING:,} characters, and its path and key at most 500")
        for row in rows:
            records.put(row)
    return {}


@router.post("/users/setting/reset")
def reset_settings(records: TheRecords, who: AnyUser) -> dict[str, Any]:
    with records.exclusive():
        for row in records.find(UserSetting, user_id=who.user_id):
            records.drop(row)
    return {}


@router.post("/users/activity")
def note_activity(
    request: Activity, records: TheRecords, visible: VisibleRecords, who: ViewerSomewhere
) -> dict[str, Any]:
    """That the user has looked at a project: it comes first in the list of their active ones."""
    if request.entity_type == "ENTITY_TYPE_PROJECT":
        row = filing.project(visible, request.entity_id)
        records.put(ProjectVisit(who.user_id, row.id, clock.time()))
    return {}


@router.get("/users/{user_id}")
def get_user(user_id: int, records: TheRecords, who: ViewerSomewhere) -> UserAnswer:
    return UserAnswer(user=User.of(records.get(UserRecord, user_id)))


@router.get("/users/{username}/by-username")
def get_user_by_name(username: str, records: TheRecords, who: ViewerSomewhere) -> UserAnswer:
    for user in records.find(UserRecord, username=username):
        return UserAnswer(user=User.of(user))
    raise NotFound(f"user {username!r} not found")


@router.patch("/users/{user_id}")
def change_user(user_id: int, request: UserPatch, records: TheRecords, auth: TheAuth, who: AnyUser) -> UserAnswer:
    """Users change their own password and display name, admins everything of anybody. The owner stays the owner: an active admin
    under the name of the Unix user who runs the master."""
    may_change(who, user_id)
    user = records.get(UserRecord, user_id)
    renamed = request.username not in (None, user.username)
    if user.id == auth.user.id and (renamed or request.active is False or request.admin is False):
        raise Refused("the owner of a master is who runs it: only the password and the display name can be changed")
    if renamed or request.model_fields_set & {"active", "admin", "agent_user_group"}:
        who.must_be(Role.ADMIN)
    if request.remote:
        raise Refused("there is no identity provider: users have passwords and access tokens, and none is remote")
    if request.password is not None:
        auth.check_password(request.password, hashed=bool(request.is_hashed))
    fields = request.model_dump(include={"display_name", "active", "admin"}, exclude_none=True)
    if (agent := request.agent_user_group) is not None:
        fields["agent"] = agent.link
    with records.exclusive():
        _check_display_name(request.display_name, records, fields.get("username", user.username))
        if renamed:
            fields["username"] = _username(request.username)
            _refuse_name_in_use(records, fields["username"], user_id)
        if fields:
            records.change(UserRecord, user_id, to=lambda user: replace(user, **fields, modified_at=clock.time()))
        if user.admin and request.admin is False and not records.find(RoleAssignment, user_id=user_id):
            records.put(RoleAssignment(user_id, 0, Role.VIEWER, clock.time()))
    if request.password is not None:
        auth.set_password(request.password, hashed=bool(request.is_hashed), user_id=user_id)
    if request.active is False:
        auth.end_all(user_id)
    return UserAnswer(user=User.of(records.get(UserRecord, user_id)))


@router.patch("/users")
def change_users(request: UsersPatch, records: TheRecords, auth: TheAuth, who: Owner) -> UsersPatched:
    """Activate or deactivate several. What is wrong with one stands in its result."""

    def problem(user_id: int) -> str:
        try:
            change_user(user_id, UserPatch(active=request.activate), records, auth, who)
        except (NotFound, Refused) as error:
            return str(error)
        return ""

    return UsersPatched(results=[UserResult(id=user_id, error=problem(user_id)) for user_id in request.user_ids])


@router.post("/users/{user_id}/password")
def set_password(
    user_id: int, password: Annotated[str, Body()], records: TheRecords, auth: TheAuth, who: AnyUser
) -> UserAnswer:
    may_change(who, user_id)
    user = records.get(UserRecord, user_id)
    auth.set_password(password, hashed=False, user_id=user.id)
    return UserAnswer(user=User.of(user))


def may_change(who: Principal, user_id: int) -> None:
    """Raises Forbidden."""
    if not is_theirs(who, user_id):
        raise Forbidden("only an admin of this master can change other users")


def _refuse_name_in_use(records: Records, username: str, user_id: int = 0) -> None:
    """Raises AlreadyExists where another user has the name, in any case."""
    for user in records.find(UserRecord):
        if user.username.lower() == username.lower() and user.id != user_id:
            raise AlreadyExists(f"user {user.username!r} already exists")


def _check_display_name(name: str | None, records: Records, username: str) -> None:
    """Raises Refused; so for the name of another user, for whom this one would be taken."""
    others = {ADMIN, *(user.username.lower() for user in records.find(UserRecord))} - {username.lower()}
    if name and name.strip().lower() in others:
        raise Refused(f"{name!r} is the name of another user, so it cannot be shown as that of {username!r}")
    if name and (len(name) > LONGEST_NAME or not name.isprintable()):
        raise Refused(
            f"a display name has at most {LONGEST_NAME} characters, all of which can be seen, not {show(name)[:80]}"
        )


LONGEST_NAME = 100
"""Characters of a display name."""

ADMIN = "admin"
"""Whose name nobody else is shown by, whether there is a user of that name or not."""


def _username(name: str | None) -> str:
    """Raises Refused for what is no name of a user."""
    if not name or not re.fullmatch(r"[\w.@+-]{1,100}", name):
        raise Refused(f"a username has letters, digits and . _ - @ +, at most 100 of them, not {show(name or '')}")
    return name
