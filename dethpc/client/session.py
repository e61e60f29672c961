"""HTTP with JSON to the master, on ``http.client`` alone: importing it costs nothing, a first request a few milliseconds."""

from __future__ import annotations

import json as _json
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Iterator, Mapping, NoReturn, Optional, Sequence, Tuple, Union

from dethpc.client.address import MasterFinder, OwnerToken, canonical
from dethpc.client.proof import PATH, proof, same
from dethpc.errors import (
    ConfigError,
    MasterError,
    MasterUnreachable,
    NotFound,
    NotSupportedYet,
    Problem,
    Refused,
    Unauthorized,
)

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse

Params = Mapping[str, Any]

_IDEMPOTENT = ("GET", "PUT", "DELETE", "HEAD")


class Session:
    """Requests to one master with one token.

    Any thread may use it; each keeps one connection open. ``timeout`` is in seconds and covers connecting and every wait for
    bytes. A call that the master cannot have acted on (no connection, or broken while sending) is tried again up to
    ``retries`` times with growing pauses; any other only if it is idempotent (GET, PUT, DELETE, or ``idempotent=True``).
    The ``token``, if it is an OwnerToken, goes over no connection whose server has not proved to be the owner's master.
    ``cert``: a file of certificates to trust, or "noverify"; default: ``DET_MASTER_CERT_FILE``, else the system's.

    Every call raises MasterUnreachable (no answer), Unauthorized (401, 403), NotFound (404), ConfigError (the answer lists
    problems), Refused (other 4xx), NotSupportedYet (501), MasterError (anything else).
    """

    def __init__(
        self,
        master: Union[str, MasterFinder],
        token: Optional[str] = None,
        *,
        timeout: float = 30.0,
        retries: int = 3,
        cert: Optional[str] = None,
    ) -> None:
        self._finder = master if isinstance(master, MasterFinder) else None
        self._fixed = canonical(master) if isinstance(master, str) else None
        self._token = token
        self._timeout = timeout
        self._retries = retries
        self._cert = cert
        self._local = threading.local()

    @property
    def url(self) -> str:
        """Raises MasterUnreachable when no address is known."""
        url = self._finder.url if self._finder else self._fixed
        if not url:
            raise MasterUnreachable("no master is known: set DET_MASTER, or start one with `det master up`")
        return url

    def get(self, path: str, params: Optional[Params] = None, *, timeout: Optional[float] = None) -> Any:
        return self.request("GET", path, params=params, timeout=timeout)

    def post(
        self,
        path: str,
        json: Any = None,
        *,
        params: Optional[Params] = None,
        timeout: Optional[float] = None,
        idempotent: bool = False,
    ) -> Any:
        return self.request("POST", path, params=params, json=json, timeout=timeout, idempotent=idempotent)

    def put(self, path: str, json: Any = None, *, params: Optional[Params] = None) -> Any:
        return self.request("PUT", path, params=params, json=json)

    def patch(self, path: str, json: Any = None, *, params: Optional[Params] = None) -> Any:
        return self.request("PATCH", path, params=params, json=json)

    def delete(self, path: str, json: Any = None, *, params: Optional[Params] = None) -> Any:
        return self.request("DELETE", path, params=params, json=json)

    def raw(self, path: str, params: Optional[Params] = None, *, timeout: Optional[float] = None) -> bytes:
        """GET whatever is there, undecoded: archives and other files."""
        return self._answer("GET", path, params, None, timeout, True)

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Optional[Params] = None,
        json: Any = None,
        timeout: Optional[float] = None,
        idempotent: bool = False,
    ) -> Any:
        """The decoded JSON of the answer; None when the answer is empty."""
        body = self._answer(method, path, params, json, timeout, idempotent or method in _IDEMPOTENT)
        if not body:
            return None
        try:
            return _json.loads(body)
        except ValueError:
            raise MasterError(f"{self.url}{path} did not answer with JSON; is this a dethpc master?", 200) from None

    def stream(self, path: str, params: Optional[Params] = None, *, timeout: Optional[float] = None) -> Iterator[Any]:
        """The objects of a newline-delimited answer, as they arrive; the connection closes with the iterator.

        An object ``{"result": x}`` is yielded as ``x`` and an object ``{"error": ...}`` is raised. ``timeout`` is the longest
        wait for the next bytes, None for any length: a log that is followed may be silent for hours.
        """
        try:
            connection = self._connect(None)
            sock = connection.sock  # http.client lets go of it when the server says that it will close
        except (OSError, _http_exception()) as error:
            raise self._unreachable(error) from None
        try:
            self._send(connection, "GET", _target(self.url, path, params), None)
            answer = connection.getresponse()
            sock.settimeout(timeout)
            if answer.status >= 400:
                _fail(answer.status, answer.read(), path)
            for line in _lines(answer):
                if not line.strip():
                    continue
                item = _json.loads(line)
                if isinstance(item, dict) and list(item) == ["error"]:
                    _fail(_http_status(item["error"]), line, path)
                yield item["result"] if isinstance(item, dict) and list(item) == ["result"] else item
        except (OSError, _http_exception()) as error:
            raise self._unreachable(error) from None
        finally:
            connection.close()

    def close(self) -> None:
        """Close this thread's connection. The session stays usable."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
        self._local.connection = None

    # --- one exchange -----------------------------------------------------------------------------------------------

    def _answer(
        self, method: str, path: str, params: Optional[Params], json: Any, timeout: Optional[float], again: bool
    ) -> bytes:
        body = None if json is None else _json.dumps(json, separators=(",", ":")).encode()
        tries = 0
        while True:
            whole = False  # has the master been given the whole request? Only then can it have acted on it.
            try:
                connection = self._kept(timeout)
                self._send(connection, method, _target(self.url, path, params), body)
                whole = True
                answer = connection.getresponse()
                content = answer.read()
                if answer.will_close:
                    self.close()
                if answer.status < 400:
                    return content
                if answer.status not in (502, 503, 504) or not again:
                    _fail(answer.status, content, path)
                failure = MasterUnreachable(f"{self.url} answers {answer.status}", answer.status)
            except (OSError, _http_exception()) as error:
                self.close()
                failure = self._unreachable(error)
            if tries >= self._retries or (whole and not again):
                raise failure from None
            time.sleep(min(5.0, 0.1 * 4**tries) * (0.5 + os.urandom(1)[0] / 255))
            tries += 1
            if self._finder:
                self._finder.refresh()

    def _send(self, connection: HTTPConnection, method: str, target: str, body: Optional[bytes]) -> None:
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, target, body, headers)

    def _kept(self, timeout: Optional[float]) -> HTTPConnection:
        """This thread's connection, made anew when the address changed or the other side has hung up meanwhile."""
        connection: Optional[HTTPConnection] = getattr(self._local, "connection", None)
        if connection is not None and (self._local.url != self.url or _hung_up(connection)):
            self.close()
            connection = None
        if connection is None:
            connection = self._connect(timeout)
            self._local.connection, self._local.url = connection, self.url
        if connection.sock is not None:
            connection.sock.settimeout(timeout or self._timeout)
        return connection

    def _connect(self, timeout: Optional[float]) -> HTTPConnection:
        import socket
        from http.client import HTTPConnection, HTTPSConnection
        from urllib.parse import urlsplit

        parts = urlsplit(self.url)
        seconds = timeout or self._timeout
        host, port = str(parts.hostname), parts.port
        if parts.scheme == "https":
            connection: HTTPConnection = HTTPSConnection(host, port, timeout=seconds, context=_tls(self._cert))
        else:
            connection = HTTPConnection(host, port, timeout=seconds)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
        connection.auto_open = 0  # a connection that is lost is not replaced by one that has proved nothing
        if isinstance(self._token, OwnerToken):
            try:
                self._demand_proof(connection, self._token)
            except BaseException:
                connection.close()
                raise
        return connection

    def _demand_proof(self, connection: HTTPConnection, token: OwnerToken) -> None:
        """Raises Unauthorized when the server is not the owner's master."""
        nonce = os.urandom(32).hex()
        wanted = proof(token, nonce, connection.sock.getpeername()[:2])
        connection.request("GET", _target(self.url, PATH, {"nonce": nonce}), headers={"Accept": "application/json"})
        answer = connection.getresponse()
        content = answer.read(1 << 16)
        try:
            given = _json.loads(content)["proof"] if answer.status == 200 else None
        except (ValueError, KeyError, TypeError):
            given = None
        if answer.will_close or not answer.isclosed() or not same(wanted, given):
            raise Unauthorized(
                f"the server at {self.url} does not prove to be your master, so it gets no token; if it is one of an earlier "
                "release, end it (det master down) and try again",
                answer.status,
            )

    def _unreachable(self, error: Exception) -> MasterUnreachable:
        return MasterUnreachable(f"the master at {self.url} does not answer: {error or type(error).__name__}")


def _lines(answer: HTTPResponse) -> Iterator[bytes]:
    """Lines of the answer's body. Unlike the answer's own iterator it does not take a connection that broke for the end.

    Raises http.client.IncompleteRead.
    """
    rest = b""
    while True:
        more = answer.read1(1 << 16)
        if not more:
            break
        *whole, rest = (rest + more).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _target(url: str, path: str, params: Optional[Params]) -> str:
    from urllib.parse import quote, urlencode, urlsplit

    prefix = urlsplit(url).path
    query = ""
    if params:
        flat = {name: _text(value) for name, value in params.items() if value is not None}
        query = "?" + urlencode(flat, doseq=True, quote_via=quote) if flat else ""
    return f"{prefix}{path}{query}"


def _text(value: Any) -> Union[str, Sequence[str]]:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return [str(_text(item)) for item in value]
    return str(value)


def _hung_up(connection: HTTPConnection) -> bool:
    """Bytes (or the end) waiting on an idle connection mean that the server closed it: a POST must not be risked on it."""
    import select

    if connection.sock is None:
        return True
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _http_exception() -> type[Exception]:
    from http.client import HTTPException

    return HTTPException


def _tls(cert: Optional[str]) -> Any:
    import ssl

    cert = cert or os.environ.get("DET_MASTER_CERT_FILE")
    if cert and cert.lower() == "noverify":
        return ssl._create_unverified_context()
    return ssl.create_default_context(cafile=cert or None)


# --- errors --------------------------------------------------------------------------------------------------------------


def _http_status(error: Any) -> int:
    """The HTTP status of an error inside a stream, from Determined's gRPC code."""
    code = error.get("code", 13) if isinstance(error, dict) else 13
    return {3: 400, 5: 404, 6: 409, 7: 403, 9: 412, 12: 501, 14: 503, 16: 401}.get(code, 500)


def _message(body: bytes) -> Tuple[str, Sequence[Any]]:
    try:
        content = _json.loads(body)
        error = content["error"]
    except (ValueError, KeyError, TypeError):
        return body[:500].decode(errors="replace").strip(), ()
    if not isinstance(error, dict):
        return str(content.get("message") or error), ()
    problems = error.get("problems") or content.get("problems") or ()
    return str(error.get("error") or error.get("message") or error.get("reason") or ""), problems


def _fail(status: int, body: bytes, path: str) -> NoReturn:
    message, problems = _message(body)
    message = message or f"the master answers {status} to {path}"
    if problems:
        raise ConfigError([_problem(item) for item in problems])
    if status in (401, 403):
        raise Unauthorized(message, status)
    if status == 404:
        raise NotFound(message)
    if status == 501:
        raise NotSupportedYet(message)
    if status in (502, 503, 504):
        raise MasterUnreachable(message, status)
    if 400 <= status < 500:
        raise Refused(message)
    raise MasterError(message, status)


def _problem(item: Mapping[str, Any]) -> Problem:
    return Problem(
        str(item.get("field", "")),
        str(item.get("found", "")),
        str(item.get("allowed", "")),
        file=item.get("file"),
        line=item.get("line"),
        hint=item.get("hint"),
    )
