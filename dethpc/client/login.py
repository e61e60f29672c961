"""Logging in with a name and a password, as Determined's clients do it."""

from __future__ import annotations

import hashlib
from typing import Optional

from dethpc.client.address import owner_token
from dethpc.client.session import Session
from dethpc.client.transport import HttpTransport

_SALT = "GubPEmmotfiK9TMD6Zdw"  # what Determined's clients mix into a password before they send it


def hashed(password: str) -> str:
    """What is sent of a password."""
    return hashlib.sha512((_SALT + password).encode()).hexdigest() if password else ""


def login(url: str, user: str, password: str, *, cert: Optional[str] = None, cert_name: Optional[str] = None) -> str:
    """A token. Where you have the token file of the master at ``url``, its server must prove that it is that master before it gets
    the password, as it must before it gets the file's token. ``cert``, ``cert_name``: see Session.

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
