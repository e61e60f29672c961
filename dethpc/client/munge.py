"""Login by munge, where a site wants it (``master.auth: munge``): the owner's key comes from the master, not from a file.

Client and master each show the other a credential, by which munge vouches for the Unix user who made it. The client's repeats the
master's nonce and names the server at the other end of this very connection; the master's repeats the client's nonce and holds the
key. munge encrypts both, and only the one Unix user can decode them, once on each machine. So a stranger in the master's place
can neither read a credential nor use it elsewhere, and cannot answer it.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from dethpc.client.proof import OwnerToken, in_time, shown_by, whereabouts
from dethpc.errors import Unauthorized

if TYPE_CHECKING:
    from dethpc.client.http1 import Connection

PATH = "/api/v1/auth/munge"
SECONDS = 60
"""How long a credential and a nonce are good. Clocks of two machines may differ by that much."""
_TIMEOUT = 20.0
_TRIES, _REST_SECONDS = 20, 0.25


class Untrusted(Exception):
    """munge does not work here, or does not vouch for a credential; says why."""


class Vouched(NamedTuple):
    """Who made a credential, and what is in it."""

    uid: int
    payload: str


class Munge:
    """The commands ``munge`` and ``unmunge``. ``socket``: that of the munged to ask; "" for munge's own."""

    def __init__(self, socket: str = "") -> None:
        self._options = [f"--socket={socket}"] if socket else []

    def encode(self, payload: str, uid: int) -> str:
        """A credential that only ``uid`` can decode. Raises: Untrusted."""
        argv = ["munge", f"--restrict-uid={uid}", f"--ttl={SECONDS}", *self._options]
        return _run(argv, payload).strip()

    def decode(self, credential: str) -> Vouched:
        """Raises: Untrusted when it is false, altered, expired, for another user, or was decoded before."""
        printed = _run(["unmunge", "--keys=STATUS,UID", *self._options], credential)
        head, _, payload = printed.partition("\n\n")
        uid = re.search(r"^UID:.*\((\d+)\)$", head, re.MULTILINE)
        if uid is None:
            raise Untrusted(f"unmunge answered {head[:100]!r}")
        return Vouched(int(uid[1]), payload)


def question(theirs: str, mine: str, where: str) -> str:
    """What the client's credential says, with the master's nonce and its own."""
    return f"dethpc: I am your owner\n{theirs}\n{mine}\n{where}"


def answer(theirs: str, mine: str, where: str) -> str:
    """What the master's credential begins with; the owner's key follows. The nonces as seen by the client."""
    return f"dethpc: I am your master\n{theirs}\n{mine}\n{where}\n"


def owner_token(connection: Connection, prefix: str, munge: Munge) -> OwnerToken:
    """The owner's key, from the server at the other end of a connection that is open. ``prefix``: as in ``is_proved``.

    Raises: Unauthorized when the server is not the owner's master, or when munge does not work here; OSError when the
    connection breaks.
    """
    me, mine = os.geteuid(), os.urandom(32).hex()
    with in_time(connection):
        where = whereabouts(connection.sock.getpeername()[:2], shown_by(connection.sock))
        theirs = str(_ask(connection, "GET", prefix + PATH, None).get("nonce"))
        if not re.fullmatch("[0-9a-f-]{1,200}", theirs):
            raise Unauthorized("what listens there is not your master: it answers without a nonce")
        try:
            credential = munge.encode(question(theirs, mine, where), me)
            given = _ask(connection, "POST", prefix + PATH, {"credential": credential}).get("credential")
            vouched = munge.decode(str(given or ""))
        except Untrusted as error:
            raise Unauthorized(f"the login by munge failed: {error}") from None
    begins = answer(theirs, mine, where)
    if vouched.uid != me or not vouched.payload.startswith(begins):
        raise Unauthorized(
            f"what listens there is not your master: it runs as user {vouched.uid}, or answers somebody else"
        )
    return OwnerToken(vouched.payload[len(begins) :])


def _ask(connection: Connection, method: str, path: str, body: Any) -> dict[str, Any]:
    import json

    for retries in reversed(range(_TRIES)):
        payload = None if body is None else json.dumps(body).encode()
        connection.request(method, path, {"Content-Type": "application/json"}, payload)
        answer = connection.answer()
        content = answer.read(1 << 16)
        if answer.status != 429 or not retries:  # others log in just now
            break
        time.sleep(_REST_SECONDS)
    try:
        reply = json.loads(content)
    except (ValueError, RecursionError):
        reply = {}
    if not isinstance(reply, dict):
        reply = {}
    if answer.status != 200:
        error = reply.get("error")
        message = error.get("error") if isinstance(error, dict) else None
        raise Unauthorized(f"the login by munge was refused: {message or f'status {answer.status}'}")
    return reply


def _run(argv: list[str], text: str) -> str:
    try:
        done = subprocess.run(
            argv, input=text, capture_output=True, text=True, timeout=_TIMEOUT, errors="replace", check=False
        )
    except FileNotFoundError:
        raise Untrusted(f"there is no command {argv[0]} here: munge comes with Slurm") from None
    except subprocess.TimeoutExpired:
        raise Untrusted(f"{argv[0]} gave no answer in {_TIMEOUT:g} s: is munged running?") from None
    if done.returncode != 0:
        status = re.match(r"STATUS: *(.*)", done.stdout)
        raise Untrusted(
            status[1] if status else done.stderr.strip() or f"{argv[0]} failed with exit code {done.returncode}"
        )
    return done.stdout
