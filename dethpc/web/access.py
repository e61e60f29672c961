"""The caller of a page and its rights: the interface to the master's page sessions, and the addresses of a request."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

from starlette.requests import Request

from dethpc.client.session import Session
from dethpc.domain.roles import Role

PROOF = "proof"
"""The field of a form that holds a session's proof; as a header: ``X-Dethpc-Proof``."""

CONFIRM = "confirm-by"
"""The field of a form that holds a password or a code of ``det ui``."""

_FORWARDED = ("x-forwarded-host", "x-forwarded-for", "forwarded")


_READS = re.compile(r"/api/v1/(preview-hp-search|experiments/\d+/file|experiments-search|runs|(roles|groups)/search.*)")
"""Paths whose POST changes nothing."""


class May(IntEnum):
    """What a request may do. The cookie alone reads."""

    READ = 0
    ACT = 1
    RUN = 2  # what runs code or hands out access


def is_read(method: str, path: str) -> bool:
    """Whether a request to the REST API changes nothing."""
    return method in ("GET", "HEAD") or (method == "POST" and _READS.fullmatch(path) is not None)


class Login(Protocol):
    """A session of the pages."""

    @property
    def host(self) -> str:
        """The only host name under which its cookie counts."""

    @property
    def user(self) -> int:
        """Whose it is: what is made for one user is shown to no other."""

    @property
    def role(self) -> Role:
        """What the user may do in some workspace: pages offer no more."""

    @property
    def role_in_all(self) -> Role:
        """What they may do everywhere, and with what lies in no workspace."""


@dataclass(frozen=True, slots=True)
class Begun:
    """``cookie`` goes to the browser, ``proof`` into the storage of the page's origin."""

    cookie: str
    proof: str


class Sessions(Protocol):
    """See ``dethpc.master.http.page_sessions.PageSessions``. Each method may be called from any thread and may block."""

    @property
    def local(self) -> str:
        """The host name of the pages for a browser that comes by loopback, through a tunnel or on this machine."""

    @property
    def site(self) -> str:
        """The host name of the pages for every other browser; "" where the site has given them none."""

    def redeem(self, code: str, peer: str, program: str) -> Any:
        """What ``begin`` takes, for a one-time code. Raises Unauthorized."""

    def log_in(self, username: str, password: str, peer: str, program: str) -> Any:
        """What ``begin`` takes. Raises Unauthorized, MasterError."""

    def transfer(self, entry: Any) -> str:
        """A code for the same entry, to come in by under another host name."""

    def begin(self, entry: Any, host: str) -> Begun: ...

    def may(self, login: Any, proof: str) -> May: ...

    def confirm(self, login: Any, secret: str, peer: str) -> None:
        """By a password or a one-time code. Raises Unauthorized, MasterError."""

    def grant(self, login: Any, may: May) -> object:
        """What an in-process request shows in the place of a token."""

    def end(self, login: Any) -> None: ...

    def renewal(self, login: Any, address: tuple[str, int]) -> Mapping[str, str]: ...

    def successor(self, name: str, nonce: str, address: tuple[str, int], home: str) -> Mapping[str, str]: ...


@dataclass
class Caller:
    """The browser that asks. ``here``: scheme, host name and port as it knows them.
    ``home``: the host name of the pages, "" where one stays under the name that one came by; ``mount``: their path there."""

    sessions: Sessions
    login: Any
    may: May
    here: tuple[str, str, str]
    home: str
    mount: str
    peer: str
    program: str
    open: Callable[[May], Session]
    begun: Begun | None = None  # to be told to the browser
    ended: bool = False


def where(request: Request) -> tuple[str, str, str]:
    """Scheme, host name and port (with its colon, or "") under which the browser asks."""
    forwarded = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip()
    host = request.headers.get("x-forwarded-host", "").partition(",")[0] or request.headers.get("host", "")
    return forwarded or request.url.scheme, *split(host)


def split(host: str) -> tuple[str, str]:
    """The name in a header ``Host``, and its port with the colon, or ""."""
    name, colon, port = host.strip().lower().rpartition(":")
    return (name, colon + port) if colon and port.isdigit() else (host.strip().lower(), "")


def home(request: Request, sessions: Sessions) -> str:
    """The host name under which the pages are to be opened; "" behind a portal, and where the host's name is the only one."""
    if not request.scope["server"][1] or any(name in request.headers for name in _FORWARDED):
        return ""  # a Unix socket or a reverse proxy: other names might not lead there
    return sessions.local if is_loopback(where(request)[1]) else sessions.site


def is_loopback(name: str) -> bool:
    """Whether a host name leads a browser to its own machine."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def proof_of(request: Request, form: Mapping[str, str]) -> str:
    return request.headers.get("x-dethpc-proof", "") or form.get(PROOF, "")
