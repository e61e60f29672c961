"""HTTP/1.1 requests to one master: ``http.client`` over a connection that the caller opens, wraps in TLS, authenticates and keeps.

Every failure is raised as OSError, whatever the library raises.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
from typing import Iterable, Iterator, Mapping, Optional, Union

Body = Union[None, bytes, Iterable[Union[bytes, memoryview]]]

_AT_ONCE = 1 << 16  # bytes of a body that are read at once


class HttpError(ConnectionError):
    """What came is no answer, more than anyone should send, or ended too soon. The connection is of no more use."""


class NotHttp(HttpError):
    """The answer begins as none of a web server does, so that asking again is pointless."""


class Disconnected(HttpError, ConnectionResetError):
    """The other end hung up before the first byte of an answer."""


class Connection:
    """Over ``sock``, which is connected, to ``host`` and ``port``. Of one thread.

    ``sock`` may be replaced (by one that speaks TLS) before the first request. Its time-out covers each wait for bytes. All that is
    raised is OSError, of which HttpError is one; after it the connection can only be closed.
    """

    def __init__(self, sock: socket.socket, host: str, port: int = http.client.HTTP_PORT) -> None:
        self._http = http.client.HTTPConnection(host, port)
        self._http.auto_open = 0
        self.sock = sock

    @property
    def idle(self) -> bool:
        """Whether a request may be risked. Bytes, or the end, that nobody has asked for mean that the server has closed it."""
        import select

        decrypted = getattr(self.sock, "pending", int)()  # a socket that speaks TLS has read these already
        if decrypted or self.sock.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return not poll.poll(0)

    def request(self, method: str, target: str, headers: Mapping[str, str], body: Body = None) -> None:
        """Send one. ``target``: the path with its query, quoted. With a body in pieces ``headers`` have its Content-Length."""
        self._http.sock = self.sock
        with _as_os_errors(self.sock):
            self._http.request(method, target, body, dict(headers))

    def answer(self) -> Answer:
        """The head of what the server says to the request."""
        with _as_os_errors(self.sock):
            return Answer(self.sock, self._http.getresponse())

    def detach(self) -> socket.socket:
        """The socket, which is the caller's from now on."""
        sock, self.sock = self.sock, socket.socket()
        self._http.sock = None
        return sock

    def close(self) -> None:
        self._http.close()
        self.sock.close()

    def __del__(self) -> None:
        """It is kept for a next request that may never come: its last user's end is its own, without a ResourceWarning."""
        self.sock.close()


class Answer:
    """Status and body. ``location``: where a redirection leads, else "". ``will_close``: the connection is good for no other
    request."""

    def __init__(self, sock: socket.socket, response: http.client.HTTPResponse) -> None:
        if response.status == 101:
            raise HttpError("the server changes the protocol, which nobody has asked for")
        self.status = response.status
        self.location = response.getheader("Location") or ""
        self.will_close = response.will_close
        self._sock, self._response = sock, response
        self._close_at_end()

    @property
    def ended(self) -> bool:
        """The body is read."""
        return self._response.isclosed()

    def read(self, most: Optional[int] = None) -> bytes:
        """The body, or its first ``most`` bytes."""
        whole = bytearray()
        while more := self.read1(_AT_ONCE if most is None else most - len(whole)):
            whole += more
        return bytes(whole)

    def read1(self, most: int) -> bytes:
        """What comes next of the body, as soon as it comes, up to ``most`` bytes; none at the end."""
        if self.ended or most <= 0:
            return b""
        with _as_os_errors(self._sock):
            more = self._response.read1(min(most, _AT_ONCE))
        if not more and self._response.length:
            raise HttpError("the answer breaks off")
        self._close_at_end()
        return more

    def _close_at_end(self) -> None:
        """``read1`` leaves an answer open that has a length and is read to it: no other request could follow."""
        if self._response.length == 0 and not self._response.chunked:
            self._response.close()


@contextlib.contextmanager
def _as_os_errors(sock: socket.socket) -> Iterator[None]:
    try:
        yield
    except socket.timeout:
        raise socket.timeout(f"it has said nothing for {sock.gettimeout():g} s") from None
    except http.client.RemoteDisconnected:
        raise Disconnected("the server hung up without an answer") from None
    except (http.client.BadStatusLine, http.client.UnknownProtocol) as error:
        raise NotHttp(f"the answer begins with {str(error).strip()[:80]!r}: is this a web server?") from None
    except http.client.IncompleteRead:
        raise HttpError("the answer breaks off") from None
    except (http.client.HTTPException, ValueError) as error:
        raise HttpError(f"this cannot be asked, or is no answer: {str(error)[:200] or type(error).__name__}") from None


def connect_locally(path: str, host: str, port: int, timeout: float) -> Connection:
    """To the Unix socket at ``path``. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(timeout)
        sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return Connection(sock, host, port)


def connect(host: str, port: int, timeout: float) -> Connection:
    """Raises OSError."""
    try:
        name = host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        raise HttpError(f"no machine can be called {host}") from None
    # As bytes, because a text makes the resolver load the tables of international names.
    sock = socket.create_connection((name.encode(), port), timeout)  # type: ignore[arg-type]
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
        return Connection(sock, name.partition("%")[0], port)
    except BaseException:
        sock.close()
        raise
