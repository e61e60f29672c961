"""Logging in with a name and a password, as Determined's clients do it."""

from __future__ import annotations

import hashlib
from typing import Any, Dict, Optional

from dethpc.client.address import auth_json, owner_token
from dethpc.client.session import Session
from dethpc.client.transport import HttpTransport
from dethpc.rundir.files import read_object, write_json

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
    owner = owner_token(url) or (own if (own := owner_token(None)) == password else None)
    session = Session(HttpTransport(url, owner, cert=cert, cert_name=cert_name))
    try:
        token: str = session.post("/api/v1/auth/login", body)["token"]
    finally:
        session.close()
    return token


def remember(url: str, user: str, token: str) -> None:
    """Keep the token where Determined's clients look for it, too; that user is the active one there. Raises OSError."""
    path = auth_json()
    held: Dict[str, Any] = read_object(path)
    masters: Dict[str, Any] = dict(held.get("masters") or {})
    entry: Dict[str, Any] = dict(masters.get(url) or {})
    masters[url] = {**entry, "active_user": user, "tokens": {**(entry.get("tokens") or {}), user: token}}
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_json(path, {"version": 2, **held, "masters": masters})
    path.chmod(0o600)
