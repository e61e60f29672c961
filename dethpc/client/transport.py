"""Transports of requests to the master: ``Transport`` is the interface, ``HttpTransport`` uses the network, ``in_process`` a call.

TLS is imported only for addresses that begin with https.
"""

from __future__ import annotations

import socket
import threading
from typing import Callable, Iterator, Mapping, Optional, Protocol, Union

from dethpc.client import http1
from dethpc.client.address import MasterFinder, canonical, certificate, socket_of
from dethpc.client.proof import OwnerToken, ProvedToken, in_time, is_proved
from dethpc.errors import MasterUnreachable, NotTheMaster

_AT_ONCE = 1 << 16  # bytes of a body that are read at once
_A_PIECE = 1 << 18  # bytes of a body that are sent at once where somebody watches
OnSent = Callable[[int, int], None]
"""Hears how many bytes of a request's body were sent, of how many."""
_AWAY = (502, 503, 504)  # what a proxy answers while no master is behind it


class NoAnswer(Exception):
    """There is no answer, or only a part of one. ``sent``: the whole request went out, so that the master may have acted on it.
    ``final``: the next try would end as this one did."""

    def __init__(self, cause: BaseException, *, sent: bool, final: bool = False) -> None:
        super().__init__(str(cause) or type(cause).__name__)
        self.sent, self.final = sent, final


class Response(Protocol):
    """An answer whose body is still to come. Read it to its end by one of ``read`` and ``chunks``, or close it."""

    status: int
    location: str
    """Where a redirection leads, else ""."""

    def read(self) -> bytes:
        """The whole body. Raises NoAnswer."""

    def chunks(self, timeout: Optional[float]) -> Iterator[bytes]:
        """The body as it arrives. ``timeout``: seconds to wait for the next bytes, None for any length. Raises NoAnswer."""

    def close(self) -> None:
        """Give up what was not read."""


class Transport(Protocol):
    """Carries requests to one master. Any thread may use it."""

    @property
    def url(self) -> str:
        """The master's address, for messages. Raises MasterUnreachable when none is known."""

    def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Optional[bytes],
        timeout: float,
        on_sent: Optional[OnSent] = None,
    ) -> Response:
        """One request, once. ``target`` is the path with its query, quoted; ``timeout`` in seconds covers connecting and each wait
        for bytes up to the answer's head, and in ``read``.

        Raises NoAnswer, MasterUnreachable when no address is known, and NotTheMaster when the server is not who it should be.
        """

    def close(self) -> None:
        """Let go of what this thread keeps for the next request. The transport stays usable."""


class HttpTransport:
    """HTTP/1.1. Each thread keeps one connection open between its requests.

    On the master's machine its user's programs connect by its Unix socket, where nobody else can listen.
    ``token``: with one, any other connection is used only after its server has proved to be the master that it is for. To a run,
    a master that does not is one that does not answer: the real one may come back at any time.
    Over TLS a MasterFinder's master, and the home's own, must show the certificate that ``master.json`` names; any other one that
    is verified by ``cert``, a file of certificates or "noverify" (default: ``DET_MASTER_CERT_FILE``, else the system's), for its
    host or for ``cert_name`` (default: ``DET_MASTER_CERT_NAME``). With a MasterFinder address and certificate are read again after
    each failure, and while none is known.
    """

    def __init__(
        self,
        master: Union[str, MasterFinder],
        token: Optional[ProvedToken] = None,
        *,
        cert: Optional[str] = None,
        cert_name: Optional[str] = None,
    ) -> None:
        self._finder = master if isinstance(master, MasterFinder) else None
        self._fixed = canonical(master) if isinstance(master, str) else None
        self._token = token
        self._cert, self._cert_name = cert, cert_name
        self._kept = threading.local()  # .connection to .url, between two requests of a thread

    @property
    def url(self) -> str:
        url = (self._finder.url or self._finder.refresh()) if self._finder else self._fixed
        if not url:
            raise MasterUnreachable("no master is known: set DET_MASTER, or start one with `det master up`")
        return url

    def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Optional[bytes],
        timeout: float,
        on_sent: Optional[OnSent] = None,
    ) -> HttpResponse:
        url, sent = self.url, False
        fields, pieces = dict(headers), body if body is None or on_sent is None else _watched(body, on_sent)
        if body is not None:
            fields["Content-Length"] = str(len(body))
        pooled = self._take(url)
        try:
            connection = pooled or self._connect_locally(url, timeout) or self._connect(url, timeout)
            try:
                connection.sock.settimeout(timeout)
                connection.request(method, _prefix(url) + target, fields, pieces)
                sent = True
                answer = connection.answer()
            except BaseException:
                connection.close()
                raise
        except OSError as error:
            self._look_again()
            if self._fixed and isinstance(error, ConnectionResetError) and _speaks_tls(url):
                raise MasterUnreachable(f"the server at {url} speaks TLS: its address begins with https://") from None
            # A network between may have forgotten a connection that was kept: a new one may be answered.
            raise NoAnswer(error, sent=sent) if pooled else self.no_answer(error, sent=sent) from None
        if answer.status in _AWAY:
            self._look_again()
        return HttpResponse(self, url, connection, answer)

    def dial(self, timeout: float) -> socket.socket:
        """A new connection, for a protocol other than HTTP's requests and answers. Raises NoAnswer, MasterUnreachable,
        NotTheMaster."""
        url = self.url
        try:
            return (self._connect_locally(url, timeout) or self._connect(url, timeout)).detach()
        except OSError as error:
            self._look_again()
            raise self.no_answer(error, sent=False) from None

    def no_answer(self, error: OSError, *, sent: bool) -> NoAnswer:
        """A server that was silent for all its time is not asked again. But what a MasterFinder's master was may be back, or
        elsewhere, in a moment."""
        return NoAnswer(
            error, sent=sent, final=self._finder is None and isinstance(error, (http1.NotHttp, socket.timeout))
        )

    def keep(self, url: str, connection: http1.Connection) -> None:
        """The connection is free for this thread's next request."""
        self.close()
        self._kept.connection, self._kept.url = connection, url

    def close(self) -> None:
        connection: Optional[http1.Connection] = getattr(self._kept, "connection", None)
        self._kept.connection = None
        if connection is not None:
            connection.close()

    def _take(self, url: str) -> Optional[http1.Connection]:
        """This thread's connection, unless the master's address has changed or the other side has hung up meanwhile."""
        connection: Optional[http1.Connection] = getattr(self._kept, "connection", None)
        if connection is None:
            return None
        if self._kept.url != url or not connection.idle:
            self.close()
            return None
        self._kept.connection = None
        return connection

    def _look_again(self) -> None:
        if self._finder:
            self._finder.refresh()

    def _connect_locally(self, url: str, timeout: float) -> Optional[http1.Connection]:
        """By the master's Unix socket, where only this user's master can listen; None where it has none on this machine, or nobody
        answers there."""
        from urllib.parse import urlsplit

        if self._finder:
            seen_url, _, path = self._finder.seen
            path = path if seen_url == url else None
        else:
            path = socket_of(url)
        if path is None:
            return None
        parts = urlsplit(url)
        try:
            return http1.connect_locally(path, str(parts.hostname), parts.port or 80, timeout)
        except OSError:
            return None

    def _connect(self, url: str, timeout: float) -> http1.Connection:
        from urllib.parse import urlsplit

        parts = urlsplit(url)
        host = str(parts.hostname)
        connection = http1.connect(host, parts.port or 80, timeout)
        try:
            if parts.scheme == "https" or self._token is not None:
                with in_time(connection):
                    if parts.scheme == "https":
                        self._wrap(connection, url, host)
                    if self._token is not None and not is_proved(connection, _prefix(url), self._token):
                        raise self._unproved(url)
        except BaseException:
            connection.close()
            raise
        return connection

    def _wrap(self, connection: http1.Connection, url: str, host: str) -> None:
        """Speak TLS over the connection. Raises Unauthorized, OSError."""
        try:
            from dethpc.client import tls
        except ImportError as error:
            raise OSError(f"this Python speaks no TLS: {error}") from None
        if self._finder:
            seen_url, pin, _ = self._finder.seen
            if seen_url != url:
                raise OSError("the master has moved meanwhile")
        else:
            pin = None if self._cert else certificate(url)
        try:
            tls.wrap(connection, host, tls.Trust(pin, self._cert, self._cert_name))
        except tls.Distrust as error:
            if self._finder:  # the real one may have moved, or come back at any time
                raise OSError(f"what listens there {error}") from None
            raise NotTheMaster(f"the server at {url} {error}") from None

    def _unproved(self, url: str) -> Exception:
        self._look_again()
        if not isinstance(self._token, OwnerToken) or self.url != url:
            return NoAnswer(ConnectionError("the server there does not prove to be the master"), sent=False)
        return NotTheMaster(
            f"the server at {url} does not prove to be your master, so it gets no token; if it is one of an earlier "
            "release, end it (det master down) and try again"
        )


class HttpResponse:
    """An answer of HttpTransport: once its body is read, the connection goes back to be used again."""

    def __init__(self, transport: HttpTransport, url: str, connection: http1.Connection, answer: http1.Answer) -> None:
        self.status, self.location = answer.status, answer.location
        self._transport, self._url, self._connection, self._answer = transport, url, connection, answer

    def read(self) -> bytes:
        try:
            content = self._answer.read()
        except BaseException as error:
            raise self._broken(error) from None
        self._ended()
        return content

    def chunks(self, timeout: Optional[float]) -> Iterator[bytes]:
        try:
            self._connection.sock.settimeout(timeout)
            while more := self._answer.read1(_AT_ONCE):
                yield more
        except BaseException as error:
            raise self._broken(error) from None
        self._ended()

    def close(self) -> None:
        self._connection.close()

    def _ended(self) -> None:
        if self._answer.will_close:
            self.close()
        else:
            self._transport.keep(self._url, self._connection)

    def _broken(self, error: BaseException) -> BaseException:
        self.close()
        return self._transport.no_answer(error, sent=True) if isinstance(error, OSError) else error


def _watched(body: bytes, on_sent: OnSent) -> Iterator[memoryview]:
    """The body in pieces, of each of which is told when it was sent."""
    for start in range(0, len(body), _A_PIECE):
        yield memoryview(body)[start : start + _A_PIECE]
        on_sent(min(len(body), start + _A_PIECE), len(body))


def _prefix(url: str) -> str:
    """The path that the master's address ends in, behind a proxy for example."""
    from urllib.parse import urlsplit

    return urlsplit(url).path


def _speaks_tls(url: str) -> bool:
    """Whether a server that ended a plain connection without a word wants TLS."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme != "http":
        return False
    from dethpc.client import tls

    return tls.speaks_tls(str(parts.hostname), int(parts.port or 0))
