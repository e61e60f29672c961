"""Sessions of the web pages. The REST API accepts no session as a token.

A session has a cookie, which allows only reads and only under one host name, and a proof, which the page keeps in the storage of
its origin and sends with every request that changes something. Both end with this process, so a process that takes over its port
receives nothing that is still valid. The host name has a random label, so that a page on another port cannot make the browser send
the cookie to this master.

An open page renews its session with the next master. It holds a key in memory, asks the server for a proof of that key, and gets
in the same response, which no other client can read, the code and the host name to log in with. The key is derived from
the owner's token; it is neither in the database nor in the browser's storage. DESIGN D29, D34.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs, urlsplit

from dethpc.domain.records import Token, TokenKind, User
from dethpc.domain.roles import Role
from dethpc.errors import Unauthorized
from dethpc.master.http.codes import digest
from dethpc.web.access import Begun, May, is_loopback, is_read

if TYPE_CHECKING:
    from dethpc.master.durable.records import Records
    from dethpc.master.http.auth import Auth, Principal

FRESH = 15 * 60.0
"""Seconds after a password or a code in which a session may do what runs code."""

LONGEST = 30 * 24 * 3600.0
"""Seconds in which a login may be renewed."""

_MOST = 1000  # sessions at a time; the oldest go first
_ARRIVAL = 300.0  # seconds from a login until its cookie is set

_CREATE = ("POST", "/api/v1/experiments")
"""Its route asks what the page may do, because validating an experiment changes nothing."""

_RUNS = re.compile(
    r"(POST /api/v1/(auth/code|tokens|users.*|experiments/continue|generic-tasks|commands|notebooks|shells|tensorboards))"
    r"|(POST /api/v1/tasks/[^/]+/proxy-tickets)"
    r"|((POST|PATCH|PUT|DELETE) /api/v1/(users|groups|roles).*)"
)
"""What runs code or hands out access."""


class Entry(NamedTuple):
    """A login that has no cookie yet. ``row``: its record. ``proved_at``: by ``time.monotonic``, when the password or the code was
    shown; None: never."""

    row: int
    proved_at: float | None


@dataclass(slots=True)
class PageSession:
    """``proof``: its digest. ``principal``: whose it is, with the roles of the last look."""

    row: int
    name: str
    host: str
    proof: str
    proved_at: float | None
    principal: Principal

    @property
    def user(self) -> int:
        return self.principal.user_id

    @property
    def role(self) -> Role:
        """The highest, be it that of a single workspace: there, its buttons work."""
        return max(self.principal.role, *self.principal.workspaces.values(), Role.NONE)

    @property
    def role_in_all(self) -> Role:
        return self.principal.role


@dataclass(frozen=True, slots=True)
class Grant:
    """What a page's request to the API of this process shows in the place of a token: no request from outside can."""

    principal: Principal
    row: int
    may: May

    def allows(self, method: str, path: str) -> bool:
        if is_read(method, path) or (method, path) == _CREATE:
            return True
        return self.may >= (May.RUN if _RUNS.fullmatch(f"{method} {path}") else May.ACT)


class PageSessions:
    """Any thread may call it. Methods that look up records may read the database."""

    def __init__(self, auth: Auth, records: Records, key: str) -> None:
        """``key``: the owner's token."""
        self._auth, self._records, self._key = auth, records, key.encode()
        self._lock = threading.Lock()
        self._sessions: dict[str, PageSession] = {}  # by the digest of the cookie
        self.label = secrets.token_hex(16)
        self._site: str | None = None

    @property
    def local(self) -> str:
        return self._site if self._site is not None and is_loopback(self._site) else f"{self.label}.localhost"

    @property
    def site(self) -> str:
        return "" if self._site is None or is_loopback(self._site) else self._site.replace("*", self.label, 1)

    def name_host(self, pattern: str | None) -> None:
        """``pattern``: a host name of the site for the pages, in which the first ``*`` stands for the label."""
        self._site = pattern

    # --- getting in

    def redeem(self, code: str, peer: str, program: str) -> Entry:
        """Raises Unauthorized."""
        content: Entry | int | None = self._auth.codes.redeem(code, peer)
        return content if isinstance(content, Entry) else self._enter(program, content)

    def log_in(self, username: str, password: str, peer: str, program: str) -> Entry:
        """Raises Unauthorized, TooManyLogins."""
        with self._auth.identified(username, password, hashed=False, peer=peer) as user:
            return self._enter(program, user.id)

    def transfer(self, entry: Entry) -> str:
        return self._auth.codes.make(content=entry)

    def begin(self, entry: Entry, host: str) -> Begun:
        """Raises Unauthorized when the login was ended meanwhile."""
        until = time.time() + LONGEST
        row = self._good(entry.row)
        if entry.proved_at is not None:  # one that is renewed ends when it would have ended
            self._records.change(Token, row.id, to=lambda token: replace(token, expires_at=until))
        begun = Begun(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        name = self._name(row.id, row.created_at)
        session = PageSession(row.id, name, host, digest(begun.proof), entry.proved_at, self._principal(row))
        with self._lock:
            while len(self._sessions) >= _MOST:
                self._sessions.pop(next(iter(self._sessions)))
            self._sessions[digest(begun.cookie)] = session
        return begun

    def _enter(self, program: str, user_id: int | None) -> Entry:
        # The record is made while the password cannot change, and lasts once the browser has arrived under the pages' host name.
        _, record = self._auth.make_token(TokenKind.PAGES, _ARRIVAL, program, user_id)
        return Entry(record.id, time.monotonic())

    def _good(self, row: int) -> Token:
        tokens = self._records.find(Token, id=row)
        if not tokens or tokens[0].kind is not TokenKind.PAGES or not tokens[0].good(time.time()):
            raise Unauthorized("this login was ended: log in again", 401)
        return tokens[0]

    def _principal(self, row: Token) -> Principal:
        """With the roles that its user has now. Raises Unauthorized for one who was deactivated."""
        return self._auth.principal_of(self._records.get(User, row.user_id))

    # --- what a request may do

    def find(self, cookie: str, host: str) -> PageSession | None:
        """That of a browser which shows ``cookie`` under the host name ``host``."""
        session = self._sessions.get(digest(cookie)) if cookie else None
        if session is None or session.host != host:
            return None
        try:
            session.principal = self._principal(self._good(session.row))
        except Unauthorized:
            return None
        return session

    def may(self, login: PageSession, proof: str) -> May:
        if not proof or not hmac.compare_digest(digest(proof), login.proof):
            return May.READ
        fresh = login.proved_at is not None and time.monotonic() - login.proved_at < FRESH
        return May.RUN if fresh else May.ACT

    def confirm(self, login: PageSession, secret: str, peer: str) -> None:
        """``secret``: a password, a one-time code, or the link with it. Raises Unauthorized, TooManyLogins."""
        secret = secret.strip()
        code = parse_qs(urlsplit(secret).query).get("code", [""])[-1] if "://" in secret else secret
        try:
            content = self._auth.codes.redeem(code, peer)
            if isinstance(content, Entry) or (content or self._auth.user.id) != login.user:
                raise Unauthorized("this code is for coming in alone; det ui prints another one", 401)
        except Unauthorized:
            if "://" in secret:
                raise
            with self._auth.identified(login.principal.username, secret, hashed=False, peer=peer):
                pass
        login.proved_at = time.monotonic()

    def grant(self, login: PageSession, may: May) -> Grant:
        return Grant(login.principal, login.row, may)

    def end(self, login: PageSession) -> None:
        with self._lock:
            self._sessions = {key: session for key, session in self._sessions.items() if session.row != login.row}
        for row in self._records.find(Token, id=login.row):
            self._auth.note_end(row.user_id)
            self._records.drop(row)

    # --- going on with the next master

    def renewal(self, login: PageSession, address: tuple[str, int]) -> Mapping[str, str]:
        """What a page keeps in memory. ``server``: what the next master's socket must be, too, or another server relays."""
        return {"name": login.name, "key": self._renewal_key(login.name).hex(), "server": _server(address)}

    def successor(self, name: str, nonce: str, address: tuple[str, int], home: str) -> Mapping[str, str]:
        """The answer to a page that asks whether this is its master or the next one, where it goes on under the host name ``home``.
        Who does not know the session's key can neither read nor make it.

        Raises Unauthorized when the session was ended, ValueError when ``nonce`` is no such number.
        """
        if not re.fullmatch(r"[0-9a-f]{64}", nonce):
            raise ValueError("a nonce is 64 hexadecimal digits")
        row = self._good(int(name.partition(".")[0])) if re.fullmatch(r"[0-9]{1,15}\.[0-9a-f]{64}", name) else None
        if row is None or not hmac.compare_digest(self._name(row.id, row.created_at), name):
            raise Unauthorized("this login was ended: log in again", 401)
        message = {"server": _server(address)}
        if not any(session.row == row.id for session in list(self._sessions.values())):
            message |= {"code": self.transfer(Entry(row.id, None)), "host": home}
        return _sealed(self._renewal_key(name), nonce, json.dumps(message).encode())

    def _name(self, row: int, created_at: float) -> str:
        """Of a session, for its renewal. Numbers of records may come back: the time tells them apart."""
        return f"{row}.{hmac.digest(self._key, f'page session {row} {created_at!r}'.encode(), 'sha256').hex()}"

    def _renewal_key(self, name: str) -> bytes:
        return hmac.digest(self._key, f"page renewal {name}".encode(), "sha256")


def _server(address: tuple[str, int]) -> str:
    """The master listens on every address of loopback, so that nobody else can under the same port."""
    host = address[0].replace("::ffff:", "")
    return f"{'loopback' if host == '::1' or host.startswith('127.') else host} {address[1]}"


def _sealed(key: bytes, nonce: str, message: bytes) -> Mapping[str, str]:
    """``message``, to be read by who has ``key`` alone, as the answer to ``nonce``: AES-256-GCM, in hexadecimal digits."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # here: few pages ask, and it is large

    iv = secrets.token_bytes(12)
    return {"iv": iv.hex(), "sealed": AESGCM(key).encrypt(iv, message, nonce.encode()).hex()}
