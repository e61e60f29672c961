"""Requests whose answers are read like those of the package ``requests``, on top of dethpc's own session."""

from __future__ import annotations

import copy
import json as _json
from typing import Any, Dict, Iterator, Optional, TypeVar, Union

from dethpc.client import address
from dethpc.client.session import Session as ClientSession
from dethpc.common.api.certs import Cert

Self = TypeVar("Self", bound="BaseSession")


class Response:
    """The master's answer; one that is an error was raised instead."""

    status_code = 200
    ok = True
    reason = "OK"

    def __init__(self, content: bytes) -> None:
        self.content = content

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")

    def json(self) -> Any:
        return _json.loads(self.content)

    def iter_lines(self, chunk_size: int = 0) -> Iterator[bytes]:
        return iter(self.content.splitlines())

    def raise_for_status(self) -> None:
        pass


class BaseSession:
    """Requests to one master. Any call raises what ``determined.common.api.errors`` names."""

    def __init__(self, master: str, cert: Optional[Cert], token: Optional[str], max_retries: Any) -> None:
        self.master = master
        self.cert = cert
        self._retries = _count(max_retries)
        self._token = token
        self._client = self._connect()

    def _connect(self) -> ClientSession:
        trust = (self.cert._file, self.cert.name) if self.cert else (None, None)
        return ClientSession(self.master, self._token, retries=self._retries, trust=trust)

    def get(
        self,
        path: str,
        *,
        params: Optional[Dict[str, Any]] = None,
        headers: Optional[Dict[str, Any]] = None,
        timeout: Optional[int] = None,
        stream: bool = False,
    ) -> Response:
        return self._do_request("GET", path, params=params, timeout=timeout)

    def delete(
        self,
        path: str,
        *,
        params: Optional[Dict[str, Any]] = None,
        headers: Optional[Dict[str, Any]] = None,
        timeout: Optional[int] = None,
    ) -> Response:
        return self._do_request("DELETE", path, params=params, timeout=timeout)

    def post(
        self,
        path: str,
        *,
        params: Optional[Dict[str, Any]] = None,
        json: Any = None,
        data: Optional[str] = None,
        headers: Optional[Dict[str, Any]] = None,
        timeout: Optional[int] = None,
    ) -> Response:
        return self._do_request("POST", path, params=params, json=json, data=data, timeout=timeout)

    def patch(
        self,
        path: str,
        *,
        params: Optional[Dict[str, Any]] = None,
        json: Any = None,
        data: Optional[str] = None,
        headers: Optional[Dict[str, Any]] = None,
        timeout: Optional[int] = None,
    ) -> Response:
        return self._do_request("PATCH", path, params=params, json=json, data=data, timeout=timeout)

    def put(
        self,
        path: str,
        *,
        params: Optional[Dict[str, Any]] = None,
        json: Any = None,
        data: Optional[str] = None,
        headers: Optional[Dict[str, Any]] = None,
        timeout: Optional[int] = None,
    ) -> Response:
        return self._do_request("PUT", path, params=params, json=json, data=data, timeout=timeout)

    def _do_request(
        self,
        method: str,
        path: str,
        *,
        params: Optional[Dict[str, Any]],
        json: Any = None,
        data: Optional[str] = None,
        timeout: Optional[int],
    ) -> Response:
        """``data``: JSON that is text already. No ``headers``: all that the master looks at comes from the session."""
        if json is not None and data is not None:
            raise ValueError("give json or data, not both")
        body = _json.loads(data) if data is not None else json
        return Response(
            self._client.exchange(method, f"/{path.lstrip('/')}", params=params, json=body, timeout=timeout)
        )

    def with_retry(self: Self, max_retries: Any) -> Self:
        """The same session with other retries: a number of them, or a ``urllib3.Retry``."""
        other = copy.copy(self)
        other._retries = _count(max_retries)
        other._client = other._connect()
        return other

    def close(self) -> None:
        self._client.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        self.close()


class UnauthSession(BaseSession):
    """Without a token: for logging in, and for what the master tells everybody."""

    def __init__(self, master: str, cert: Optional[Cert], max_retries: Any = 5) -> None:
        super().__init__(_checked(master), cert, None, max_retries)


class Session(BaseSession):
    """With a user's token."""

    def __init__(self, master: str, username: str, token: str, cert: Optional[Cert], max_retries: Any = 5) -> None:
        super().__init__(_checked(master), cert, token, max_retries)
        self.username = username

    @property
    def token(self) -> Optional[str]:
        return self._token


class TaskSession(Session):
    """With a run's token."""


AnySession = Union[BaseSession, ClientSession]


def client_session(session: AnySession) -> ClientSession:
    """The client's session below a session of either kind: the SDK's objects hold one of the client's."""
    return session._client if isinstance(session, BaseSession) else session


def _count(retries: Any) -> int:
    total = getattr(retries, "total", retries)
    return 5 if total is None else int(total)


def _checked(master: str) -> str:
    if master != address.canonical(master):
        raise RuntimeError(f"{master} lacks a scheme or a port: pass canonicalize_master_url({master!r})")
    return master
