"""The HMAC proof by which a server shows that it is the master, before a client sends its token (the owner's or a run's).

Both sides have a key: the owner's token itself, and of a run's token the digest, which is all that the master keeps. The client
sends a random number and gets back its HMAC under the key, together with the address of this very connection: a stranger who took
the port of a master that died cannot compute it, and cannot fetch it from the real master either, which only ever signs its own
addresses. Loopback is an address on every machine, so there the machine is named, too. Over TLS the certificate takes the address's
place.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Iterator, Optional, Tuple

if TYPE_CHECKING:
    import socket

    from dethpc.client.http1 import Connection

PATH = "/api/v1/auth/proof"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
SECONDS = 15.0
"""How long a server may take for its proof: a stranger could keep a job's thread busy for ever."""


class ProvedToken(str):
    """A token that a Session gives only to a server that has proved to know ``key``. ``run``: whose it is, "" for the owner."""

    @property
    def key(self) -> str:
        return str(self)

    @property
    def run(self) -> str:
        return ""


class OwnerToken(ProvedToken):
    """The key to the owner's master."""


class RunToken(ProvedToken):
    """A run's word to the master, ``run:RUN:SECRET``. It names the run, so that checking it takes one look-up by key."""

    PREFIX = "run:"

    @property
    def key(self) -> str:
        import hashlib

        return hashlib.sha256(self.encode()).hexdigest()

    @property
    def run(self) -> str:
        return self[len(self.PREFIX) :].partition(":")[0]


def proved_token(token: Optional[str]) -> Optional[ProvedToken]:
    """``token`` where a server must prove itself before it is given it; None where there is none, or the token is a login's."""
    if isinstance(token, ProvedToken):
        return token
    return RunToken(token) if token and token.startswith(RunToken.PREFIX) else None


def proof(key: str, nonce: str, address: Tuple[str, int], certificate: str = "") -> str:
    """The answer to ``nonce`` on a connection to ``address``, the server's IP address and port. Raises ValueError.

    Client and server each work it out where they are. ``certificate``: over TLS, the SHA-256 of what the server shows. It says more
    than the address, which may then be another on the way: nobody else can have its key.
    """
    import hmac

    if not re.fullmatch(r"[0-9a-f]{64}", nonce):
        raise ValueError("a nonce is 64 hexadecimal digits")
    message = f"dethpc master\n{nonce}\n{_whereabouts(address, certificate)}"
    return hmac.digest(key.encode(), message.encode(), "sha256").hex()


def _whereabouts(address: Tuple[str, int], certificate: str = "") -> str:
    """What tells the server at the other end of a connection from all others; as ``proof`` has it."""
    host, port = address[0].replace("::ffff:", ""), address[1]
    machine = boot_id() if host == "::1" or host.startswith("127.") else ""
    return f"certificate {certificate}" if certificate else f"{host}\n{port}\n{machine}"


@contextmanager
def in_time(connection: Connection) -> Iterator[None]:
    """Within, the connection breaks after ``SECONDS``.

    A time-out would not end an answer that comes byte by byte, or preliminary ones (100) without end. Raises the error of one, too.
    """
    import socket
    import threading

    over = threading.Event()

    def end() -> None:
        over.set()
        _shut(connection)

    limit = threading.Timer(SECONDS, end)
    limit.daemon = True
    limit.start()
    try:
        yield
    except OSError:
        if over.is_set():
            raise socket.timeout(f"it has not shown within {SECONDS:g} s that it is the master") from None
        raise
    finally:
        limit.cancel()


def is_proved(connection: Connection, prefix: str, token: ProvedToken) -> bool:
    """Whether the server at the other end knows the token's key; ``prefix`` is the path that the master's address ends in.

    Raises OSError when the connection breaks.
    """
    import json

    nonce = os.urandom(32).hex()
    expected = proof(token.key, nonce, connection.sock.getpeername()[:2], shown_by(connection.sock))
    whose = f"&run={token.run}" if token.run else ""
    connection.request("GET", f"{prefix}{PATH}?nonce={nonce}{whose}", {"Accept": "application/json"})
    answer = connection.answer()
    content = answer.read(1 << 16)
    try:
        given = json.loads(content)["proof"] if answer.status == 200 else None
    except (ValueError, KeyError, TypeError, RecursionError):
        given = None
    return not answer.will_close and answer.ended and same(expected, given)


def shown_by(sock: socket.socket) -> str:
    """The SHA-256 of the certificate at the other end; "" without TLS."""
    if not hasattr(sock, "getpeercert"):
        return ""
    from dethpc.client.tls import fingerprint

    return fingerprint(sock)


def _shut(connection: Connection) -> None:
    import contextlib
    import socket

    with contextlib.suppress(OSError, AttributeError):  # it may be closed
        socket.socket.shutdown(
            connection.sock, socket.SHUT_RDWR
        )  # TLS's own would alter what another thread reads from


def boot_id() -> str:
    """What tells this machine from all others; "" where the kernel has no such thing."""
    try:
        with open(BOOT_ID) as file:
            return file.read().strip()
    except OSError:
        return ""


def same(one: str, other: object) -> bool:
    """Whether two proofs are equal, in the same time for all that are not."""
    import hmac

    return isinstance(other, str) and hmac.compare_digest(one.encode(), other.encode("utf-8", "replace"))
