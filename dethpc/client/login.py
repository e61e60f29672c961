"""Logging in with a name and a password, as Determined's clients do it."""

from __future__ import annotations

import hashlib
import os
from typing import Any, Dict, Optional, Tuple

from dethpc.client import address
from dethpc.client.session import Session
from dethpc.client.transport import HttpTransport
from dethpc.errors import MasterUnreachable, UnauthenticatedException, Unauthorized
from dethpc.rundir.files import read_object, write_json

Trust = Tuple[Optional[str], Optional[str]]

_SALT = "GubPEmmotfiK9TMD6Zdw"  # what Determined's clients mix into a password before they send it


def hashed(password: str) -> str:
    """What is sent of a password."""
    return hashlib.sha512((_SALT + password).encode()).hexdigest() if password else ""


def login(url: str, user: str, password: str, *, cert: Optional[str] = None, cert_name: Optional[str] = None) -> str:
    """A token. Where you have the token file of the master at ``url``, its server must prove that it is that master before it gets
    the password, as it must before it gets the file's token. ``cert``, ``cert_name``: see HttpTransport.

    Raises Unauthorized when name or password is wrong, or the server does not prove itself.
    """
    body = {"username": user, "password": hashed(password), "isHashed": True}
    # A password that is the file's content goes to nobody else either, whatever the address.
    owner = address.owner_token(url) or (own if (own := address.owner_token(None)) == password else None)
    session = Session(HttpTransport(url, owner, cert=cert, cert_name=cert_name))
    try:
        token: str = session.post("/api/v1/auth/login", body)["token"]
    finally:
        session.close()
    return token


def token_at(url: Optional[str], user: Optional[str] = None, trust: Trust = (None, None)) -> Optional[str]:
    """The token of ``user``, else of the user that DET_USER names, else ``address.token``. ``url``: None for the home's own master
    before its first start. ``trust``: as ``cert`` and ``cert_name`` of HttpTransport.

    Raises UnauthenticatedException where that user has no login, MasterUnreachable where there is no master to have one at.
    """
    name = user or os.environ.get("DET_USER")
    return _token_of(name, url, trust) if name else address.token(url)


def _token_of(user: str, url: Optional[str], trust: Trust) -> Optional[str]:
    """Of ``user`` alone, not of whoever has logged in last. DET_USER_TOKEN and DET_PASS are those of DET_USER; without it
    DET_USER_TOKEN is the Unix user's. With DET_PASS a token is made where there is none that is good.

    Raises UnauthenticatedException, MasterUnreachable.
    """
    name = os.environ.get("DET_USER")
    environment_token = os.environ.get("DET_USER_TOKEN") if name in (None, "", user) else None
    own = user == _unix_user()
    if own and (key := environment_token or address.owner_token(url)):
        return key
    password = os.environ.get("DET_PASS") if name == user else None
    if name == user and not password and environment_token:
        return environment_token
    if url is None:
        raise MasterUnreachable("no master is known: set DET_MASTER, or start one with `det master up`")
    stored = address.stored_login(url, user)
    if password and not (stored and _is_good(url, stored, trust)):
        stored = login(url, user, password, cert=trust[0], cert_name=trust[1])
        remember(url, user, stored)
    if stored is None and (not own or address.stored_login(url) is not None):
        message = f"there is no login of user {user!r} at {url}; log in first: det -m {url} user login {user}"
        raise UnauthenticatedException(message, 401)
    return stored


def _unix_user() -> str:
    import getpass  # late, as every command imports this module and few ask who runs it

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container that has no name for the user
        return str(os.getuid())


def _is_good(url: str, token: str, trust: Trust) -> bool:
    session = Session(url, token, trust=trust)
    try:
        session.get("/api/v1/me")
    except Unauthorized:
        return False
    finally:
        session.close()
    return True


def remember(url: str, user: str, token: str) -> None:
    """Keep the token where Determined's clients look for it, too; that user is the active one there. Raises OSError."""
    path = address.auth_json()
    held: Dict[str, Any] = read_object(path)
    masters: Dict[str, Any] = dict(held.get("masters") or {})
    entry: Dict[str, Any] = dict(masters.get(url) or {})
    masters[url] = {**entry, "active_user": user, "tokens": {**(entry.get("tokens") or {}), user: token}}
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_json(path, {"version": 2, **held, "masters": masters})
    path.chmod(0o600)
