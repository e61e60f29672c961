"""Who may do what.

One master serves one user, its owner. Who reads the owner's token file is the owner; clients that cannot read it log in with
the owner's name and either the token or a password and get a token of their own. A run's token is good for that run alone:
its doorbell, its signals, and reading its own trial, experiment and checkpoints.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dethpc.client.proof import proof
from dethpc.domain.facts import Run
from dethpc.domain.records import Token, TokenKind, User
from dethpc.errors import MasterError, NotFound, Refused, Unauthorized
from dethpc.rundir.home import Home
from dethpc.rundir.token import damaged as damaged_token
from dethpc.rundir.token import read as read_token
from dethpc.state import queries

if TYPE_CHECKING:
    from dethpc.master.durable.records import Records
    from dethpc.state.store import SqlStore

SESSION_SECONDS = 30 * 24 * 3600.0
KEPT_SECONDS = 30 * 24 * 3600.0
"""How long an expired token stays in lists."""
_CLIENT_SALT = "GubPEmmotfiK9TMD6Zdw"  # what Determined's clients mix into a password before they send it
_RUN_PREFIX = "run:"
_REMEMBERED = 4096  # run tokens seen valid; each is asked of the database again after _MEMORY_SECONDS
_MEMORY_SECONDS = 30.0


@dataclass(frozen=True)
class Principal:
    """Who sent a request: the owner, or one run."""

    owner: str
    run_id: str | None = None
    experiment_id: int | None = None
    trial_id: int | None = None

    @property
    def is_owner(self) -> bool:
        return self.run_id is None


class Forbidden(MasterError):
    """The token is good, but not for this."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 403)


def mint_run_token(run_id: str) -> tuple[str, str]:
    """A new token for a run, and the digest to keep as ``Run.token_sha256``. The token names its run, so that checking it
    takes one look-up by key."""
    token = f"{_RUN_PREFIX}{run_id}:{secrets.token_urlsafe(32)}"
    return token, digest(token)


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def salted(password: str) -> str:
    """What Determined's clients send in the place of a password: "" for none."""
    return hashlib.sha512((_CLIENT_SALT + password).encode()).hexdigest() if password else ""


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
        self._seen: dict[str, tuple[float, Principal]] = {}
        self._one_login = threading.Lock()  # argon2 is costly by intention; guesses must queue

    @property
    def user(self) -> User:
        """The owner's record."""
        return self._records.find(User, username=self.owner)[0]

    # --- tokens

    def principal(self, token: str) -> Principal:
        """May read the database. Raises: Unauthorized."""
        known = self.remembered(token)
        if known is not None:
            return known
        if token.startswith(_RUN_PREFIX):
            return self._run(token)
        if token and self._is_session(digest(token)):
            return Principal(self.owner)
        raise Unauthorized("the token is missing, wrong or expired", 401)

    def remembered(self, token: str) -> Principal | None:
        """As ``principal``, without the database: None means ask."""
        if hmac.compare_digest(token.encode(), self._token.encode()):
            return Principal(self.owner)
        known = self._seen.get(digest(token)) if token.startswith(_RUN_PREFIX) else None
        return known[1] if known is not None and time.monotonic() - known[0] < _MEMORY_SECONDS else None

    def _run(self, token: str) -> Principal:
        key = digest(token)
        run = self._find_run(token[len(_RUN_PREFIX) :].partition(":")[0])
        if run is None or not hmac.compare_digest(run.token_sha256, key):
            raise Unauthorized("the run's token is wrong", 401)
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

    def _is_session(self, sha256: str) -> bool:
        return any(token.good(time.time()) for token in self._records.find(Token, sha256=sha256))

    def logout(self, token: str) -> None:
        """End a session. The owner's token file stays what it is."""
        for session in self._records.find(Token, sha256=digest(token)):
            if session.kind is TokenKind.SESSION:
                self._records.drop(session)
            else:
                self._records.change(Token, session.id, to=lambda token: replace(token, revoked=True))

    def make_token(self, kind: TokenKind, lifespan: float | None, description: str = "") -> tuple[str, Token]:
        """A new token of the owner: what to send, and what is kept of it. ``lifespan`` in seconds; None: for ever."""
        token, now = secrets.token_urlsafe(32), time.time()
        for old in self._records.find(Token, kind=kind):
            if old.expires_at is not None and old.expires_at < now - KEPT_SECONDS:
                self._records.drop(old)
        kept = self._records.add(
            Token,
            user_id=self.user.id,
            kind=kind,
            sha256=digest(token),
            created_at=now,
            expires_at=None if lifespan is None else now + lifespan,
            description=description,
        )
        return token, kept

    def proof(self, nonce: str, address: tuple[str, int]) -> str:
        """What shows a client that this is the owner's master. Raises ValueError when ``nonce`` is no such number."""
        return proof(self._token, nonce, address)

    # --- logins

    def login(self, username: str, password: str, *, hashed: bool) -> str:
        """A new session's token. ``hashed``: the client has put its salt and hash on the password already.

        Raises: Forbidden, with one message whatever was wrong.
        """
        given = password if hashed else salted(password)
        with self._one_login:
            known = username == self.owner and given != ""
            by_token = hmac.compare_digest(given.encode(), salted(self._token).encode())
            if not known or not (by_token or self._is_password(given)):
                raise Forbidden("invalid credentials")
        return self.make_token(TokenKind.SESSION, SESSION_SECONDS)[0]

    def _is_password(self, given: str) -> bool:
        from argon2 import PasswordHasher
        from argon2.exceptions import Argon2Error, InvalidHashError

        kept = self.user.password
        if not kept:
            return False
        try:
            return PasswordHasher().verify(kept, given)
        except (Argon2Error, InvalidHashError):
            return False

    def set_password(self, password: str, *, hashed: bool) -> None:
        """Raises: Refused when it is empty."""
        from argon2 import PasswordHasher

        given = password if hashed else salted(password)
        if not given:
            raise Refused("a password cannot be empty")
        with self._one_login:
            hashed_again = PasswordHasher().hash(given)
            now = time.time()
            self._records.change(
                User, self.user.id, to=lambda user: replace(user, password=hashed_again, modified_at=now)
            )


def _owner_token(path: Path) -> str:
    """The token in ``path``, made on first use. Of two processes that start at once both end with the same one.

    Raises RunDirError, OSError.
    """
    if found := read_token(path):
        os.chmod(path, 0o600)
        return found
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
