"""Logging in."""

from __future__ import annotations

import os
from typing import Optional

from dethpc.client.login import Trust, hashed, token_at
from dethpc.client.login import login as _login
from dethpc.common.api._session import Session, TaskSession
from dethpc.common.api.certs import Cert
from dethpc.common.api.errors import UnauthenticatedException

salt_and_hash = hashed


def login(master_address: str, username: str, password: str, cert: Optional[Cert] = None) -> Session:
    """A session with a new token. Nothing of it is remembered in files. Raises UnauthenticatedException, ForbiddenException."""
    trusted, name = _trust(cert)
    token = _login(master_address, username, password, cert=trusted, cert_name=name)
    return Session(master_address, username, token, cert)


def login_with_cache(
    master_address: str,
    requested_user: Optional[str] = None,
    password: Optional[str] = None,
    cert: Optional[Cert] = None,
) -> Session:
    """A session of ``requested_user``, else of the user that ``DET_USER`` names, else as ``det`` has it without either.

    With ``password`` it logs in. Without, the token is that of ``det``: of a login that was remembered, or ``DET_USER_TOKEN``, or a
    new one by ``DET_PASS``; both of these are those of ``DET_USER``. Raises UnauthenticatedException where there is none.
    """
    user = requested_user or os.environ.get("DET_USER")
    if user and password is not None:
        return login(master_address, user, password, cert)
    token = token_at(master_address, user, _trust(cert))
    if token is None:
        raise UnauthenticatedException(
            f"not logged in at {master_address}: `det user login`, or give user and password", 401
        )
    session = Session(master_address, user or "", token, cert)
    if not user:
        session.username = session.get("/api/v1/me").json()["user"]["username"]
    return session


def _trust(cert: Optional[Cert]) -> Trust:
    return (cert._file, cert.name) if cert else (None, None)


def login_from_task(master_address: str, cert: Optional[Cert]) -> TaskSession:
    """A session for training code on the cluster, with its run's token. Raises ValueError elsewhere."""
    from dethpc.core._info import get_cluster_info

    info = get_cluster_info()
    if info is None:
        raise ValueError("a run's token is known to training code on the cluster alone")
    return TaskSession(master_address, os.environ.get("DET_USER", ""), info.session_token, cert)
