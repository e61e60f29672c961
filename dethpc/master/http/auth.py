"""Who may do what.

One master serves one user, its owner. Who reads the owner's token file is the owner; clients that cannot read it log in with
the owner's name and either the token or a password and get a token of their own. A run's token is good for that run alone:
its doorbell, its signals, and reading its own trial, experiment and checkpoints.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from dethpc.client.proof import proof
from dethpc.domain.facts import Run
from dethpc.errors import MasterError, NotFound, Refused, Unauthorized
from dethpc.rundir.files import write_json
from dethpc.state import queries, tables

if TYPE_CHECKING:
    from dethpc.state.store import SqlStore

SESSION_SECONDS = 30 * 24 * 3600.0
_CLIENT_SALT = "GubPEmmotfiK9TMD6Zdw"  # what Determined's clients mix into a password before they send it
_RUN_PREFIX = "run:"
_REMEMBERED = 4096  # run tokens seen valid; each is asked of the database again after _MEMORY_SECONDS
_MEMORY_SECONDS = 30.0
_tokens = tables.metadata.tables["tokens"]


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

    def __init__(self, home: Path, owner: str, store: SqlStore) -> None:
        """Creates the owner's token file where there is none. Raises: OSError."""
        self.owner = owner
        self._store = store
        self._token = _owner_token(home / "token")
        self._passwords = home / "passwords.json"
        self._seen: dict[str, tuple[float, Principal]] = {}
        self._one_login = threading.Lock()  # argon2 is costly by intention; guesses must queue

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
        principal = Principal(self.owner, run.id, run.experiment_id, run.trial_id)
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen[key] = (time.monotonic(), principal)
        return principal

    def _find_run(self, run_id: str) -> Run | None:
        with self._store.read() as connection, contextlib.suppress(NotFound):
            return queries.run(connection, run_id)
        return None

    def _is_session(self, sha256: str) -> bool:
        query = select(_tokens.c.expires_at, _tokens.c.revoked).where(_tokens.c.sha256 == sha256)
        with self._store.read() as connection:
            row = connection.execute(query).first()
        return row is not None and not row.revoked and (row.expires_at is None or row.expires_at > time.time())

    def logout(self, token: str) -> None:
        """End a session. The owner's token file stays what it is."""
        sha256 = digest(token)
        with self._store.read() as connection:
            known = connection.scalar(select(_tokens.c.sha256).where(_tokens.c.sha256 == sha256))
        if known is not None:
            self._store.write(
                lambda connection: connection.execute(
                    _tokens.update().where(_tokens.c.sha256 == sha256).values(revoked=True)
                )
            )

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
        return self._new_session()

    def _new_session(self) -> str:
        token, now = secrets.token_urlsafe(32), time.time()
        row = {
            "sha256": digest(token),
            "name": "login",
            "owner": self.owner,
            "created_at": now,
            "expires_at": now + SESSION_SECONDS,
            "revoked": False,
        }

        def put(connection: Any) -> None:
            connection.execute(_tokens.delete().where(_tokens.c.expires_at < now))
            connection.execute(_tokens.insert(), row)

        self._store.write(put)
        return token

    def _is_password(self, given: str) -> bool:
        from argon2 import PasswordHasher
        from argon2.exceptions import Argon2Error, InvalidHashError

        kept = self._kept_passwords().get(self.owner)
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
            write_json(self._passwords, {**self._kept_passwords(), self.owner: PasswordHasher().hash(given)})

    def _kept_passwords(self) -> dict[str, str]:
        try:
            kept = json.loads(self._passwords.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return kept if isinstance(kept, dict) else {}


def _owner_token(path: Path) -> str:
    """The token in ``path``, made on first use. Of two processes that start at once both end with the same one."""
    with contextlib.suppress(FileNotFoundError):
        token = path.read_text().strip()
        if token:
            os.chmod(path, 0o600)
            return token
    staged = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(fd, "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if path.exists() and not path.read_text().strip():
            os.replace(staged, path)
        else:
            with contextlib.suppress(FileExistsError):
                os.link(staged, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(staged)
    return path.read_text().strip()
