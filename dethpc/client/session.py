"""JSON requests to the master: one method for each HTTP method, with retries where they are safe, and failures as exceptions."""

from __future__ import annotations

import json as _json
import os
import socket
import time
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterator,
    Mapping,
    NamedTuple,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
    TypedDict,
    TypeVar,
    Union,
)

from dethpc.client.address import MasterFinder
from dethpc.client.proof import OwnerToken, proved_token
from dethpc.client.transport import HttpTransport, NoAnswer, OnSent, Response, Transport
from dethpc.domain.ids import AttemptId
from dethpc.errors import (
    APIException,
    ConfigError,
    DethpcError,
    ForbiddenException,
    MasterError,
    MasterNotFoundException,
    MasterUnreachable,
    NotFoundException,
    NotSupportedYet,
    NotTheMaster,
    Problem,
    Refused,
    RunOver,
    UnauthenticatedException,
    path_of,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
Params = Mapping[str, Any]
Json = Dict[str, Any]
"""An object of the REST API."""


class _Request(NamedTuple):
    method: str
    path: str
    params: Optional[Params] = None
    json: Any = None
    timeout: Optional[float] = None
    again: bool = True  # the master may act on it twice
    on_sent: Optional[OnSent] = None
    fields: Mapping[str, str] = {}  # of the header, beside the usual ones


class Options(TypedDict, total=False):
    """How a request is sent. ``timeout``: the session's, unless given. ``idempotent``: it may be sent again. ``on_sent`` is called
    with the progress of a large body."""

    timeout: Optional[float]
    idempotent: bool
    on_sent: Optional[OnSent]


_IDEMPOTENT = ("GET", "PUT", "DELETE", "HEAD")


class Session:
    """Requests to one master with one token.

    ``master``: its URL, a MasterFinder, or a Transport of any kind. Any thread may use a session. ``timeout`` is in seconds and
    covers connecting and every wait for bytes. A call that the master cannot have acted on (no connection, or broken while
    sending) is tried again up to ``retries`` times with growing pauses; any other only if it is idempotent (GET, PUT, DELETE,
    or ``idempotent=True``). Over HTTP a ``token`` that is an OwnerToken or a run's goes over no connection whose server has not
    proved to be the master that it is for. ``trust``: the ``cert`` and the ``cert_name`` of HttpTransport. Where the address is
    not ``certain`` to be a master's, an empty answer is believed once the server has named its version: some servers say {} to
    everything, which would read as empty lists and as orders that were carried out.

    Every call raises MasterUnreachable (no answer; with a run's token also: no proof), Unauthorized (401, 403), NotFound (404),
    RunOver (410), ConfigError (the answer lists problems), Refused (other 4xx), NotSupportedYet (501), MasterError (anything else).
    Each is a BadRequestException, too, and what the master answered an APIException, for scripts that catch Determined's.
    """

    def __init__(
        self,
        master: Union[str, MasterFinder, Transport],
        token: Optional[str] = None,
        *,
        timeout: float = 30.0,
        retries: int = 3,
        trust: Tuple[Optional[str], Optional[str]] = (None, None),
        certain: bool = True,
    ) -> None:
        if isinstance(master, (str, MasterFinder)):
            cert, cert_name = trust
            self._transport: Transport = HttpTransport(master, proved_token(token), cert=cert, cert_name=cert_name)
        else:
            self._transport = master
        self._token = token
        self._timeout = timeout
        self._retries = retries
        self._certain = certain
        # What the master said of itself (GET /api/v1/master), where that was asked already.
        self.about: Optional[Any] = None

    @property
    def is_owners(self) -> bool:
        """Whether its token is the file of the master's owner, who is user 1."""
        return isinstance(self._token, OwnerToken)

    @property
    def url(self) -> str:
        """Raises MasterUnreachable when no address is known."""
        return self._transport.url

    def get(self, path: str, params: Optional[Params] = None, *, timeout: Optional[float] = None) -> Any:
        return self.request("GET", path, params=params, timeout=timeout)

    def post(
        self,
        path: str,
        json: Any = None,
        *,
        params: Optional[Params] = None,
        **options: Unpack[Options],
    ) -> Any:
        """``json``: bytes go as they are, as text."""
        return self.request("POST", path, params=params, json=json, **options)

    def put(self, path: str, json: Any = None, *, params: Optional[Params] = None) -> Any:
        return self.request("PUT", path, params=params, json=json)

    def patch(self, path: str, json: Any = None, *, params: Optional[Params] = None) -> Any:
        return self.request("PATCH", path, params=params, json=json)

    def delete(self, path: str, json: Any = None, *, params: Optional[Params] = None) -> Any:
        return self.request("DELETE", path, params=params, json=json)

    def raw(
        self,
        path: str,
        params: Optional[Params] = None,
        *,
        timeout: Optional[float] = None,
        fields: Optional[Mapping[str, str]] = None,
    ) -> bytes:
        """GET whatever is there, undecoded: archives and other files. ``fields``: of the header, beside the usual ones."""
        return self._exchange(
            _Request("GET", path, params, timeout=timeout, fields=fields or {}), _whole, self._retries
        )

    def exchange(
        self,
        method: str,
        path: str,
        *,
        params: Optional[Params] = None,
        json: Any = None,
        **options: Unpack[Options],
    ) -> bytes:
        """The answer undecoded."""
        again = options.get("idempotent", False) or method in _IDEMPOTENT
        request = _Request(method, path, params, json, options.get("timeout"), again, options.get("on_sent"))
        return self._exchange(request, _whole, self._retries)

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Optional[Params] = None,
        json: Any = None,
        **options: Unpack[Options],
    ) -> Any:
        """The object that the answer is in JSON."""
        body = self.exchange(method, path, params=params, json=json, **options)
        answer = self._decoded(body, path)
        if not isinstance(answer, dict):
            raise self._no_master(path)
        if not answer and not self._certain:
            self._make_certain()
        return answer

    def stream(self, path: str, params: Optional[Params] = None, *, timeout: Optional[float] = None) -> Iterator[Any]:
        """The objects of a newline-delimited answer, as they arrive; the iterator gives up what is left when it is closed.

        An object ``{"result": x}`` is yielded as ``x`` and an object ``{"error": ...}`` is raised. ``timeout`` is the longest
        wait for the next bytes, None for any length: a log that is followed may be silent for hours.
        """
        # Once more at most: the connection that was kept may have ended just now. Who follows a log has a patience of its own.
        answer = self._exchange(_Request("GET", path, params), _unread, min(1, self._retries))
        empty = True
        try:
            for line in _lines(answer.chunks(timeout)):
                if not line.strip():
                    continue
                item = self._decoded(line, path)
                empty = empty and not item
                if isinstance(item, dict) and list(item) == ["error"]:
                    _fail(_http_status(item["error"]), line, self.url + path)
                yield item["result"] if isinstance(item, dict) and list(item) == ["result"] else item
        except NoAnswer as error:
            raise self._unreachable(error) from None
        except BaseException:
            answer.close()
            raise
        if empty and not self._certain:
            self._make_certain()

    def chunks(self, path: str, params: Optional[Params] = None) -> Iterator[bytes]:
        """The body of an answer that is no JSON, as it arrives; one that breaks off raises."""
        answer = self._exchange(_Request("GET", path, params), _unread, self._retries)
        try:
            yield from answer.chunks(self._timeout)
        except NoAnswer as error:
            raise self._unreachable(error) from None
        except BaseException:
            answer.close()
            raise

    def dial(self) -> Tuple[socket.socket, Mapping[str, str]]:
        """A connection to the master that no request has used, and the header fields of a request on it. Raises
        MasterUnreachable, MasterError."""
        if not isinstance(self._transport, HttpTransport):
            raise NotSupportedYet("there is no network between this session and its master")
        try:
            return self._transport.dial(self._timeout), self._headers(None)
        except NoAnswer as error:
            raise self._unreachable(error) from None

    def close(self) -> None:
        """Close what this thread keeps open. The session stays usable."""
        self._transport.close()

    # --- one exchange -----------------------------------------------------------------------------------------------

    def _exchange(self, request: _Request, take: Callable[[Response], T], retries: int) -> T:
        """What ``take`` makes of the answer. A failure while it does counts as a failure of the request."""
        method, path, params, json, timeout, again, on_sent, fields = request
        body = json if json is None or isinstance(json, bytes) else _json.dumps(json, separators=(",", ":")).encode()
        target, headers = path + _query(params), {**self._headers(json), **fields}
        tries = 0
        while True:
            final = False
            try:
                answer = self._transport.send(method, target, headers, body, timeout or self._timeout, on_sent)
                if answer.status < 300:
                    return take(answer)
                if answer.status < 400:
                    answer.close()
                    raise self._redirected(answer, target)
                content = answer.read()
                if answer.status not in (502, 503, 504) or not again:
                    _fail(answer.status, content, self.url + path)
                message = _message(content)[0] or _strange(answer.status, self.url + path)
                failure, sent = MasterNotFoundException(message, answer.status), True
            except NoAnswer as error:
                failure, sent, final = self._unreachable(error), error.sent, error.final
            if final or tries >= retries or (sent and not again):
                raise failure from None
            time.sleep(min(5.0, 0.1 * 4**tries) * (0.5 + os.urandom(1)[0] / 255))
            tries += 1

    def _headers(self, body: Any) -> Mapping[str, str]:
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers["Content-Type"] = "text/plain" if isinstance(body, bytes) else "application/json"
        return headers

    def _decoded(self, text: bytes, path: str) -> Any:
        try:
            return _json.loads(text)
        except (ValueError, RecursionError):
            raise self._no_master(path) from None

    def _make_certain(self) -> None:
        self._certain = True  # before the question, whose own answer may be empty
        self.about = self.identity()

    def identity(self) -> Any:
        """What the master says of itself. Raises MasterError, also where another server answers in JSON."""
        about = self.about or self.get("/api/v1/master")
        if not about.get("version"):
            raise self._no_master("")
        return about

    def _no_master(self, path: str) -> MasterError:
        return MasterError(f"{self.url}{path} did not answer as a dethpc master does", 200)

    def _redirected(self, answer: Response, target: str) -> MasterError:
        from dethpc.domain.secrets import hide_passwords

        where = hide_passwords(answer.location)
        if where.startswith(("http://", "https://")):
            home = where[: -len(target)] if where.endswith(target) else where
            return MasterError(f"{self.url} redirects to {home}; use that address", answer.status)
        return MasterError(f"{self.url} redirects to {where or 'nowhere'}; is this a dethpc master?", answer.status)

    def _unreachable(self, error: NoAnswer) -> MasterNotFoundException:
        return MasterNotFoundException(f"the master at {self.url} does not answer: {error}")


def _whole(answer: Response) -> bytes:
    return answer.read()


def _unread(answer: Response) -> Response:
    return answer


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for more in chunks:
        *whole, rest = (rest + more).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _query(params: Optional[Params]) -> str:
    from urllib.parse import quote, urlencode

    flat = {name: _text(value) for name, value in (params or {}).items() if value is not None}
    return "?" + urlencode(flat, doseq=True, errors="replace", quote_via=quote) if flat else ""


def _text(value: Any) -> Union[str, Sequence[str]]:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return [str(_text(item)) for item in value]
    return str(value)


# --- errors --------------------------------------------------------------------------------------------------------------


def _http_status(error: Any) -> int:
    """The HTTP status of an error inside a stream, from Determined's gRPC code."""
    code = error.get("code", error.get("grpcCode")) if isinstance(error, dict) else None
    return {3: 400, 5: 404, 6: 409, 7: 403, 9: 412, 12: 501, 14: 503, 16: 401}.get(code or 13, 500)


def _strange(status: int, url: str) -> str:
    return f"{url} answers {status}; is this a dethpc master?"


def _message(body: bytes) -> Tuple[str, Sequence[Any]]:
    """What a master says of an error, and its problems; "" where no master speaks."""
    try:
        content = _json.loads(body)
        error = content["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "", ()  # a page of another server, or a proxy's
    if not isinstance(error, dict):
        return str(content.get("message") or error), ()
    problems = error.get("problems") or content.get("problems") or ()
    return str(error.get("error") or error.get("message") or error.get("reason") or ""), problems


class _Misconfigured(APIException, ConfigError):
    status_code = 400


class _Refused(APIException, Refused):
    pass


class _NotSupported(APIException, NotSupportedYet):
    status_code = 501


class _RunOver(APIException, RunOver):
    status_code = 410


class _Failed(APIException, MasterError):
    pass


def _fail(status: int, body: bytes, url: str) -> NoReturn:
    message, problems = _message(body)
    message = message or _strange(status, url)
    if problems:
        raise _Misconfigured([_problem(item) for item in problems])
    if status == 401:
        raise UnauthenticatedException(message, status)
    if status == 403:
        raise ForbiddenException(message, status)
    if status == 404:
        raise NotFoundException(message)
    if status == 410:
        raise _RunOver(message, status)
    if status == 501:
        raise _NotSupported(message)
    if status in (502, 503, 504):
        raise MasterNotFoundException(message, status)
    error: APIException = _Refused(message) if 400 <= status < 500 else _Failed(message, status)
    error.status_code = status
    raise error


def _problem(item: Mapping[str, Any]) -> Problem:
    path, value, allowed = path_of(str(item.get("field", ""))), str(item.get("found", "")), str(item.get("allowed", ""))
    if "message" in item:
        problem = Problem(path, str(item["message"]), item.get("hint"), found=value, allowed=allowed)
    else:  # a master of an earlier release
        problem = Problem.of_value(path, value, allowed, item.get("hint"))
    return problem.at(item.get("file"), item.get("line"))


PATIENCE = 60.0
"""Seconds without the master."""


def patiently(ask: Callable[[], T], patience: float = PATIENCE) -> T:
    """What ``ask`` returns, asked again while the master is away. After ``patience`` seconds raises what it then raises."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return ask()
        except (MasterUnreachable, NotTheMaster):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def notify(session: Session, attempt: AttemptId) -> bool:
    """A run tells the master that the directory of an attempt has something new, which it then reads. False: the master did not
    receive it. It finds out by itself a little later."""
    try:
        session.post(f"/api/v1/runs/{attempt.run}/attempts/{attempt.number}/events", {"lines": []}, idempotent=True)
    except (DethpcError, OSError, ValueError):
        return False
    finally:
        session.close()
    return True
