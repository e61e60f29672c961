"""Logging in with a name and a password, as Determined's clients do it."""

from __future__ import annotations

import hashlib

from dethpc.client.session import Session

_SALT = "GubPEmmotfiK9TMD6Zdw"  # what Determined's clients mix into a password before they send it


def login(session: Session, user: str, password: str) -> str:
    """A token. Raises Unauthorized when name or password is wrong."""
    hashed = hashlib.sha512((_SALT + password).encode()).hexdigest() if password else ""
    body = {"username": user, "password": hashed, "isHashed": True}
    token: str = session.post("/api/v1/auth/login", body)["token"]
    return token
