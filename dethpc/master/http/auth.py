"""Authentication, and what each token authorizes.

A client that can read the owner's token file acts as the owner, who is an admin; any other client logs in with a user's name and
password (the owner's token is one, too) and gets a token of its own, which allows what the roles of its user allow at the time of a
request. The token of a run is valid for that run alone, until shortly after its end: to post journal lines and signals, and to read
its own trial, experiment and checkpoints.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dethpc.client.proof import RunToken, proof
from dethpc.domain.facts import Run
from dethpc.domain.records import UNCATEGORIZED, Group, RoleAssignment, Token, TokenKind, User, Workspace, WorkspaceRole
from dethpc.domain.roles import NAMES, Role
from dethpc.domain.states import RunState
from dethpc.errors import MasterError, NotFound, Refused, RunOver, Unauthorized
from dethpc.master.http.codes import OneTimeCodes, digest
from dethpc.master.http.page_sessions import PageSessions
from dethpc.master.http.passwords import Passwords
from dethpc.rundir.home import Home
from dethpc.rundir.token import damaged as damaged_token
from dethpc.rundir.token import read as read_token
from dethpc.state import queries
from dethpc.state.queries.users import UserName

if TYPE_CHECKING:
    from dethpc.master.durable.records import Records
    from dethpc.master.http.tls import Tls
    from dethpc.state.store import SqlStore

SESSION_SECONDS = 30 * 24 * 3600.0
KEPT_SECONDS = 30 * 24 * 3600.0
"""How long an expired token stays in lists."""
_CLIENT_SALT = "GubPEmmotfiK9TMD6Zdw"  # what Determined's clients mix into a password before they send it
LEAST_PASSWORD = 8
"""Characters. Determined's own client asks for as many."""
RUN_GRACE_SECONDS = 300.0
"""How long a run's token is good after its end: for the last reports, and for an attempt that has not heard of it."""
_REMEMBERED = 4096  # run tokens seen valid; each is asked of the database again after _MEMORY_SECONDS
_MEMORY_SECONDS = 30.0


@dataclass(frozen=True)
class Principal:
    """Who sent a request: a user, or one run. ``owner``: the name of the user as whom jobs run."""

    owner: str
    run_id: str | None = None
    experiment_id: int | None = None
    trial_id: int | None = None
    user_id: int = 0
    username: str = ""
    display_name: str = ""
    role: Role = Role.NONE
    workspaces: Mapping[int, Role] = field(default_factory=dict)
    """The user's roles in single workspaces, by id. ``role`` holds for all of them."""
    workspace_name: Callable[[int], str] = field(default=lambda id: "", repr=False, compare=False)
    """By id; may read the database."""

    @property
    def is_run(self) -> bool:
        return self.run_id is not None

    @property
    def user(self) -> UserName:
        """As lists name them."""
        return UserName(self.user_id, self.username, self.display_name or self.username)

    def role_in(self, workspace_id: int) -> Role:
        return max(self.role, self.workspaces.get(workspace_id, Role.NONE))

    def role_in_all(self, workspaces: Iterable[int]) -> Role:
        """The least in any of them; where there is none, that in all workspaces."""
        return min((self.role_in(id) for id in workspaces), default=self.role)

    def workspaces_as(self, role: Role) -> frozenset[int] | None:
        """Those in which the user has at least this role; None: all. What a run may see is not a matter of roles."""
        if self.is_run or self.role >= role:
            return None
        return frozenset(id for id, own in self.workspaces.items() if own >= role)

    def must_be(self, role: Role, workspace_id: int = 0, *, somewhere: bool = False) -> None:
        """Raises Forbidden for a user who is less, in all workspaces or in this one, and advises the least role that suffices.
        ``somewhere``: that in one workspace does. What a run may do is not a matter of roles. May read the database."""
        if self.is_run or self.role_in(workspace_id) >= role:
            return
        name = "WorkspaceAdmin" if role is Role.ADMIN and (workspace_id or somewhere) else NAMES[role]
        where, option = "", ""
        if workspace_id:
            where, option = f" in {self._shown(workspace_id)}", f" --workspace-name {self._word(workspace_id)}"
        elif somewhere:
            where, option = " in a workspace", " --workspace-name NAME"
        elif self.workspaces:
            where = " in all workspaces"
        elsewhere = ", ".join(self._shown(id) for id in sorted(self.workspaces_as(role) or ()))
        there = f"; it holds in {elsewhere} alone" if elsewhere else ""
        if there and workspace_id == UNCATEGORIZED and self.role_in(workspace_id) is Role.NONE:
            there += ", which -w, or workspace and project in a configuration, can name"
        raise Forbidden(
            f"user {self.username!r} needs the role {name}{where} for this{there}. An admin can assign it: "
            f"det rbac assign-role {name} --username-to-assign {self.username}{option}"
        )

    def _name(self, workspace_id: int) -> str:
        """ "" where the user does not see it. Everybody knows Uncategorized, which is where things are by default."""
        seen = workspace_id == UNCATEGORIZED or self.role_in(workspace_id) >= Role.VIEWER
        return self.workspace_name(workspace_id) if seen else ""

    def _shown(self, workspace_id: int) -> str:
        name = self._name(workspace_id)
        return f"workspace {repr(name) if name else workspace_id}"

    def _word(self, workspace_id: int) -> str:
        """For a command line."""
        return shlex.quote(self._name(workspace_id) or str(workspace_id))


class Forbidden(MasterError):
    """The token is good, but not for this."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 403)


def mint_run_token(run_id: str) -> tuple[str, str]:
    """A new token for a run, and the digest to keep as ``Run.token_sha256``."""
    token = f"{RunToken.PREFIX}{run_id}:{secrets.token_urlsafe(32)}"
    return token, digest(token)


def salted(password: str) -> str:
    """What Determined's clients send in the place of a password: "" for none."""
    return hashlib.sha512((_CLIENT_SALT + password).encode()).hexdigest() if password else ""


_EVERYBODY = 0


class Auth:
    """Checks tokens and passwords. Every method may be called from any thread."""

    def __init__(self, home: Path, owner: str, store: SqlStore, records: Records) -> None:
        """Creates the owner's token file and record where there are none. Raises: RunDirError, OSError."""
        self.owner = owner
        self._store, self._records = store, records
        if not records.find(User, username=owner):
            now = time.time()
            records.add(User, username=owner, display_name=owner, created_at=now, modified_at=now)
        self._token = _owner_token(Home(home).token)
        self.tls: Tls | None = None  # what the server that asks speaks
        self._seen: dict[str, tuple[float, Principal]] = {}
        self._ends: dict[int, float] = {}  # by user: when some login of theirs last ended, by the monotonic clock
        self._passwords, self.codes = Passwords(), OneTimeCodes("det ui prints another one")
        self.pages = PageSessions(self, records, self._token)
        self._as_owner = self.principal_of(self.user)
        self._changing = threading.Lock()  # nobody logs in by a password that is being changed
        self._notice_new_token_file()

    def derived_key(self, use: str) -> bytes:
        """A key that lasts as long as the owner's token, and tells nothing of it."""
        return hmac.digest(self._token.encode(), f"dethpc {use}".encode(), "sha256")

    @property
    def user(self) -> User:
        """The owner's record."""
        return self._records.find(User, username=self.owner)[0]

    def principal_of(self, user: User) -> Principal:
        """May read the database. Raises Unauthorized for one who is not active."""
        if not user.active:
            raise Unauthorized(f"user {user.username!r} was deactivated", 401)
        role, workspaces = self._roles(user)
        return Principal(
            self.owner,
            user_id=user.id,
            username=user.username,
            display_name=user.display_name,
            role=role,
            workspaces=workspaces,
            workspace_name=self._workspace_name,
        )

    def _workspace_name(self, id: int) -> str:
        return next((row.name for row in self._records.find(Workspace, id=id)), "")

    def _roles(self, user: User) -> tuple[Role, dict[int, Role]]:
        """The one that holds for all workspaces, and those in single ones."""
        if user.admin or user.username == self.owner:
            return Role.ADMIN, {}
        groups = {group.id for group in self._records.find(Group, deleted=False) if user.id in group.members}

        def own(assignment: RoleAssignment | WorkspaceRole) -> bool:
            return assignment.user_id == user.id or assignment.group_id in groups

        role = max((Role(one.role) for one in self._records.find(RoleAssignment) if own(one)), default=Role.NONE)
        workspaces: dict[int, Role] = {}
        for one in filter(own, self._records.find(WorkspaceRole)):
            workspaces[one.workspace_id] = max(Role(one.role), workspaces.get(one.workspace_id, Role.NONE))
        return role, workspaces

    # --- tokens

    def principal(self, token: str) -> Principal:
        """May read the database. Raises: Unauthorized, RunOver."""
        principal = self.remembered(token)
        if principal is not None:
            return principal
        if token.startswith(RunToken.PREFIX):
            return self._run(token)
        for record in self._records.find(Token, sha256=digest(token)) if token else ():
            if record.kind is TokenKind.PAGES:
                break  # it is for pages alone
            if record.good(time.time()):
                return self.principal_of(self._records.get(User, record.user_id))
            if record.revoked:
                raise Unauthorized("this login or access token was ended: log in again, or make another token", 401)
        raise Unauthorized("the token is missing, wrong or expired", 401)

    def remembered(self, token: str) -> Principal | None:
        """As ``principal``, without the database: None means ask."""
        if hmac.compare_digest(token.encode(), self._token.encode()):
            return self._as_owner
        entry = self._seen.get(digest(token)) if token.startswith(RunToken.PREFIX) else None
        return entry[1] if entry is not None and time.monotonic() - entry[0] < _MEMORY_SECONDS else None

    def _run(self, token: str) -> Principal:
        key = digest(token)
        run = self._find_run(RunToken(token).run)
        if run is None or not hmac.compare_digest(run.token_sha256, key):
            raise Unauthorized("the run's token is wrong", 401)
        if run.state is RunState.ENDED and time.time() > (run.ended_at or 0.0) + RUN_GRACE_SECONDS:
            raise RunOver(f"run {run.id} has ended, and its token with it", 410)
        principal = Principal(self.owner, run.id, run.experiment_id, self._trial_of(run))
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen[key] = (time.monotonic(), principal)
        return principal

    def _trial_of(self, run: Run) -> int | None:
        with self._store.read() as connection:
            return queries.task(connection, run.task_id).trial_id

    def _find_run(self, run_id: str) -> Run | None:
        with self._store.read() as connection, contextlib.suppress(NotFound):
            return queries.run(connection, run_id)
        return None

    def last_end(self, user_id: int) -> float:
        """When a login of the user last ended here, by the monotonic clock: what was let in before by a login is let in no more."""
        return max(self._ends.get(user_id, 0.0), self._ends.get(_EVERYBODY, 0.0))

    def note_end(self, user_id: int | None) -> None:
        """A login of the user has ended; None: those of all users."""
        self._ends[_EVERYBODY if user_id is None else user_id] = time.monotonic()

    def logout(self, token: str) -> None:
        """End a session. The owner's token file stays what it is."""
        for session in self._records.find(Token, sha256=digest(token)):
            self.note_end(session.user_id)
            if session.kind is TokenKind.SESSION:
                self._records.drop(session)
            elif session.kind is TokenKind.ACCESS:
                self._records.change(Token, session.id, to=lambda token: replace(token, revoked=True))

    def end_all(self, user_id: int | None = None) -> None:
        """End every login and access token, or those of one user; what they were stays in lists. The owner's token file stays what
        it is."""
        self.note_end(user_id)
        for token in self._records.find(Token):
            if not token.revoked and token.kind is not TokenKind.OWNER and user_id in (None, token.user_id):
                self._records.change(Token, token.id, to=lambda token: replace(token, revoked=True))

    def _notice_new_token_file(self) -> None:
        """Who renews the token file wants to be rid of whoever knew the old one, and of what they made with it."""
        sha256 = digest(self._token)
        for before in self._records.find(Token, kind=TokenKind.OWNER):
            if before.sha256 == sha256:
                return
            self.end_all()
            self._records.drop(before)
        self._records.add(
            Token,
            user_id=self.user.id,
            kind=TokenKind.OWNER,
            sha256=sha256,
            created_at=time.time(),
            description="token file",
        )

    def make_token(
        self, kind: TokenKind, lifespan: float | None, description: str = "", user_id: int | None = None
    ) -> tuple[str, Token]:
        """A new token of a user, by default of the owner: what to send, and what is kept of it. ``lifespan`` in seconds; None: for
        ever."""
        token, now = secrets.token_urlsafe(32), time.time()
        for old in self._records.find(Token, kind=kind):
            if old.expires_at is not None and old.expires_at < now - KEPT_SECONDS:
                self._records.drop(old)
        record = self._records.add(
            Token,
            user_id=user_id or self.user.id,
            kind=kind,
            sha256=digest(token),
            created_at=now,
            expires_at=None if lifespan is None else now + lifespan,
            description=description,
        )
        return token, record

    def proof(self, nonce: str, address: tuple[str, int], run_id: str = "") -> str:
        """What shows a client that this is the owner's master, or a run that this is its master. Raises ValueError when ``nonce``
        is no such number."""
        shown = self.tls.shown if self.tls else ""
        return proof(self._run_key(run_id) if run_id else self._token, nonce, address, shown)

    def _run_key(self, run_id: str) -> str:
        """That of a run that does not exist is a random one: who may ask without a token learns nothing of which exist."""
        run = self._find_run(run_id) if re.fullmatch(r"[0-9a-f.]{1,60}", run_id) else None
        return run.token_sha256 if run is not None and run.token_sha256 else secrets.token_hex(32)

    # --- logins

    def login(self, username: str, password: str, *, hashed: bool, peer: str = "", program: str = "") -> str:
        """A new session's token, made by ``program``. See ``identified``."""
        with self.identified(username, password, hashed=hashed, peer=peer) as user:
            return self.make_token(TokenKind.SESSION, SESSION_SECONDS, program, user.id)[0]

    @contextlib.contextmanager
    def identified(self, username: str, password: str, *, hashed: bool, peer: str = "") -> Iterator[User]:
        """Within, the password is that of the user, who is active, and does not change. ``hashed``: the client has put its salt and
        hash on it already. ``peer``: who asks.

        Raises: Unauthorized, with one message whatever was wrong; Forbidden for who is not active; TooManyLogins.
        """
        salted_password = password if hashed else salted(password)
        for text in (username, salted_password):
            text.encode()  # what UTF-8 cannot spell is refused, not looked for
        record = next(iter(self._records.find(User, username=username)), None)
        user_exists = record is not None and salted_password != ""
        user = record if record is not None and user_exists else self.user  # a check that takes as long
        # Nobody guesses the token: who has it need not wait for those who guess.
        by_token = user_exists and user.username == self.owner
        if not (by_token and hmac.compare_digest(salted_password.encode(), salted(self._token).encode())):
            if not self._passwords.check(
                salted_password, user.password, user_exists=user_exists, peer=peer, name=username
            ):
                raise Unauthorized("invalid credentials", 401)
            if self._passwords.outdated(user.password):
                user = self._keep_password(salted_password, user.id)
        with self._changing:
            current = self._records.get(User, user.id)
            if current.password != user.password:
                raise Unauthorized("the password was changed meanwhile: log in again", 401)
            if not current.active:
                raise Forbidden(f"user is not active: an admin has deactivated {current.username!r}")
            yield current

    def set_password(self, password: str, *, hashed: bool, user_id: int | None = None) -> None:
        """Of a user, by default of the owner. Ends their every login and access token: whoever has one may have it by the old
        password.

        Raises: Refused when it is too short; of one that a client has hashed, nothing but that it is not empty can be seen.
        """
        if not password:
            raise Refused(f"the password is empty; it needs at least {LEAST_PASSWORD} characters")
        self.check_password(password, hashed=hashed)
        salted_password = password if hashed else salted(password)
        self.end_all(self._keep_password(salted_password, user_id).id)

    def check_password(self, password: str, *, hashed: bool) -> None:
        """Raises Refused for one that is too short. Without any ("") nobody can log in by one."""
        if password and not hashed and len(password) < LEAST_PASSWORD:
            raise Refused(
                f"the password has {len(password)} characters; it needs at least {LEAST_PASSWORD}, which strangers cannot guess"
            )

    def _keep_password(self, given: str, user_id: int | None = None) -> User:
        hashed_again, now = self._passwords.hash(given), time.time()
        with self._changing:
            return self._records.change(
                User, user_id or self.user.id, to=lambda user: replace(user, password=hashed_again, modified_at=now)
            )


def _owner_token(path: Path) -> str:
    """The token in ``path``, made on first use. Of two processes that start at once both end with the same one.

    Raises RunDirError, OSError.
    """
    if token := read_token(path):
        os.chmod(path, 0o600)
        return token
    staged = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(fd, "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if path.exists() and read_token(path) is None:
            os.replace(staged, path)
        else:
            with contextlib.suppress(FileExistsError):
                os.link(staged, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(staged)
    if (token := read_token(path)) is None:
        raise damaged_token(path)
    return token
