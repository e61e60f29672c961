"""HTTP/1.1 (RFC 9112) as a client of one master speaks it: a connection, and one request after the other over it.

``http.client`` takes a fifth of a ``det`` command's time to import, with the parser of e-mail and TLS, which it brings. This one is
strict where that is lenient. An answer whose end could be understood in two ways is none, because what follows would be taken for
the answer to another request; and nobody can make who listens hold more than ``_HEAD`` bytes of anything but a body.
"""

from __future__ import annotations

import socket
from typing import Iterable, List, Mapping, Optional, Tuple, Union

Body = Union[None, bytes, Iterable[Union[bytes, memoryview]]]

_BEGINS = b"HTTP/1."  # how every answer does
_HEAD = 1 << 16  # bytes of a status line and the header, and of a trailer
_CHUNK_LINE = 1 << 12  # bytes of a chunk's size, with its extensions
_PRELIMINARY = 32  # answers of 1xx before the one that counts
_AT_ONCE = 1 << 16  # bytes that are taken from the socket at once, and up to which a body goes along with the head

_DIGITS = b"0123456789"
_HEX = _DIGITS + b"abcdefABCDEF"
_TOKEN = _DIGITS + b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ!#$%&'*+-.^_`|~"
_CONTROLS = bytes({*range(32), 127} - {9})


class HttpError(ConnectionError):
    """What came is no answer, more than anyone should send, or ended too soon. The connection is of no more use."""


class NotHttp(HttpError):
    """The answer begins as none of a web server does, so that asking again is pointless."""


class Disconnected(HttpError, ConnectionResetError):
    """The other end hung up before the first byte of an answer."""


class Connection:
    """Over ``sock``, which is connected, to the server that ``authority`` names. Of one thread.

    ``sock`` may be replaced (by one that speaks TLS) before the first request. Its time-out covers each wait for bytes. All that is
    raised is OSError, of which HttpError is one; after it the connection can only be closed.
    """

    def __init__(self, sock: socket.socket, authority: str) -> None:
        self.sock = sock
        self._authority = authority
        self._held = bytearray()  # what has come and was not taken
        self._awaited = ""  # the method of the request whose answer is still to be read

    @property
    def idle(self) -> bool:
        """Whether a request may be risked. Bytes, or the end, that nobody has asked for mean that the server has closed it."""
        import select

        decrypted = getattr(self.sock, "pending", int)()  # a socket that speaks TLS has read these already
        if self._awaited or self._held or decrypted or self.sock.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return not poll.poll(0)

    def request(self, method: str, target: str, headers: Mapping[str, str], body: Body = None) -> None:
        """Send one. ``target``: the path with its query, quoted. With a body in pieces ``headers`` have its Content-Length."""
        if self._awaited or self._held:
            raise HttpError("the answer to the request before is not read, or goes on beyond its end")
        fields = {"Host": self._authority, "Accept-Encoding": "identity", **headers}
        if body is None or isinstance(body, bytes):
            if body is not None or method in ("POST", "PUT", "PATCH"):
                fields["Content-Length"] = str(len(body or b""))
        head = _head_of(method, target, fields)
        self._awaited = method
        if isinstance(body, bytes) and len(body) <= _AT_ONCE:
            head, body = head + body, None
        self.sock.sendall(head)
        for piece in (body,) if isinstance(body, bytes) else body or ():
            self.sock.sendall(piece)

    def answer(self) -> Answer:
        """The head of what the server says to the request."""
        for _ in range(_PRELIMINARY):
            if not self._held and not self._receive():
                raise Disconnected("the server hung up without an answer")
            first = self._first_line()
            version, status = _status_of(first)
            fields = [_field_of(line) for line in self.lines(_HEAD - len(first) - 2)]
            if status == 101:
                raise HttpError("the server changes the protocol, which nobody has asked for")
            if status >= 200:
                return Answer(self, self._awaited, version, status, fields)
        raise HttpError("the server does not get beyond preliminary answers")

    def close(self) -> None:
        self._held.clear()
        self.sock.close()

    def __del__(self) -> None:
        """It is kept for a next request that may never come: its last user's end is its own, without a ResourceWarning."""
        self.sock.close()

    # --- for an answer --------------------------------------------------------------------------------------------------

    def lines(self, most: int) -> List[bytes]:
        """The lines up to an empty one, which take no more than ``most`` bytes."""
        found: List[bytes] = []
        while line := self.line(most):
            found.append(line)
            most -= len(line) + 2
        return found

    def line(self, most: int) -> bytes:
        """The next line, without the CRLF that ends it."""
        seen = 0
        while (end := self._held.find(b"\n", seen)) < 0:
            seen = len(self._held)
            if seen > most:
                break
            if not self._receive():
                raise HttpError("the answer breaks off")
        if end < 0 or end + 1 > most:
            raise HttpError("the answer has a line or a head that is longer than any should be")
        line = bytes(self._held[: end - 1]) if end else b""
        if not end or self._held[end - 1] != 13 or line.translate(None, _CONTROLS) != line:
            raise HttpError("the answer has a line that does not end with CRLF, or control characters in one")
        del self._held[: end + 1]
        return line

    def take(self, most: int) -> bytes:
        """At least one byte, at most ``most``; none at the end."""
        if not self._held:
            return self._some(min(most, _AT_ONCE))
        taken = bytes(self._held[:most])
        del self._held[:most]
        return taken

    def answered(self) -> None:
        """The answer is read to its end, so that the next request may go."""
        self._awaited = ""

    def _first_line(self) -> bytes:
        """Of an answer. One that cannot become HTTP is not waited for: a server of mail greets, and then it waits as well."""
        while (begun := bytes(self._held[: len(_BEGINS)])) == _BEGINS[: len(begun)] != _BEGINS and self._receive():
            pass
        if begun != _BEGINS[: len(begun)]:
            raise _not_http(bytes(self._held).splitlines()[0])
        return self.line(_HEAD)

    def _receive(self) -> bool:
        more = self._some(_AT_ONCE)
        self._held += more
        return bool(more)

    def _some(self, most: int) -> bytes:
        try:
            return self.sock.recv(most)
        except socket.timeout:
            raise socket.timeout(f"it has said nothing for {self.sock.gettimeout():g} s") from None


class Answer:
    """Status and body. ``location``: where a redirection leads, else "". ``ended``: the body is read. ``will_close``: the
    connection is good for no other request."""

    def __init__(
        self, connection: Connection, method: str, version: bytes, status: int, fields: List[Tuple[bytes, bytes]]
    ) -> None:
        self.status = status
        self.location = next((value.decode("ascii", "replace") for name, value in fields if name == b"location"), "")
        self.ended = False
        self._connection = connection
        self._chunked, self._left = _framing(version, fields)
        self._in_chunk = False  # the CRLF after its bytes is still to come
        said = b",".join(value for name, value in fields if name == b"connection").lower().split(b",")
        options = {option.strip() for option in said}
        self.will_close = b"close" in options or (version == b"HTTP/1.0" and b"keep-alive" not in options)
        if method == "HEAD" or status in (204, 304):
            self._chunked, self._left = False, 0
        if self._left is None:
            self.will_close = True
        elif self._left == 0 and not self._chunked:
            self._end()

    def read(self, most: Optional[int] = None) -> bytes:
        """The body, or its first ``most`` bytes."""
        whole = bytearray()
        while more := self.read1(_AT_ONCE if most is None else most - len(whole)):
            whole += more
        return bytes(whole)

    def read1(self, most: int) -> bytes:
        """What comes next of the body, as soon as it comes, up to ``most`` bytes; none at the end."""
        if self.ended or most <= 0 or (self._chunked and self._left == 0 and not self._next_chunk()):
            return b""
        more = self._connection.take(most if self._left is None else min(most, self._left))
        if self._left is None:
            if not more:
                self._end()
            return more
        if not more:
            raise HttpError("the answer breaks off")
        self._left -= len(more)
        if not self._left and not self._chunked:
            self._end()
        return more

    def _next_chunk(self) -> bool:
        """Whether there is one; the trailer behind the last is read and left alone."""
        if self._in_chunk and self._connection.line(2):
            raise HttpError("a chunk of the answer is longer than it says")
        size = self._connection.line(_CHUNK_LINE).partition(b";")[0].rstrip(b" \t")
        if not 0 < len(size) <= 16 or size.translate(None, _HEX):
            raise HttpError("the answer has a chunk without a size")
        self._in_chunk, self._left = True, int(size, 16)
        if not self._left:
            for line in self._connection.lines(_HEAD):
                _field_of(line)
            self._end()
        return bool(self._left)

    def _end(self) -> None:
        self.ended = True
        self._connection.answered()


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
    except BaseException:
        sock.close()
        raise
    plain = f"[{name.partition('%')[0]}]" if ":" in name else name
    return Connection(sock, plain if port == 80 else f"{plain}:{port}")


def _head_of(method: str, target: str, fields: Mapping[str, str]) -> bytes:
    try:
        words = method.encode("ascii"), target.encode("ascii")
        lines = [(name.encode("ascii"), value.encode("latin-1")) for name, value in fields.items()]
    except UnicodeEncodeError as error:
        raise HttpError(f"a request cannot have {error.object[error.start : error.end]!r} in it") from None
    first = b" ".join(words) + b" HTTP/1.1"
    if any(not word or word.translate(None, _CONTROLS + b"\t ") != word for word in words):
        raise HttpError(f"this is no address to ask for: {target!r}")
    for name, value in lines:
        if not name or name.translate(None, _TOKEN) or value.translate(None, _CONTROLS) != value:
            raise HttpError(f"a request cannot have control characters in {name.decode()}")
    return b"\r\n".join([first, *(b"%b: %b" % line for line in lines), b"", b""])


def _status_of(line: bytes) -> Tuple[bytes, int]:
    """The version and the status."""
    version, _, rest = line.partition(b" ")
    status = rest.partition(b" ")[0]
    if version not in (b"HTTP/1.1", b"HTTP/1.0") or len(status) != 3 or not status.isdigit() or status < b"100":
        raise _not_http(line)
    return version, int(status)


def _not_http(begun: bytes) -> NotHttp:
    return NotHttp(f"the answer begins with {begun[:80].decode('latin-1')!r}: is this a web server?")


def _field_of(line: bytes) -> Tuple[bytes, bytes]:
    """Its name in lower case, and its value."""
    name, colon, value = line.partition(b":")
    if not colon or not name or name.translate(None, _TOKEN):
        raise HttpError(f"the answer has {line[:80].decode('latin-1')!r} in its header")
    return name.lower(), value.strip(b" \t")


def _framing(version: bytes, fields: List[Tuple[bytes, bytes]]) -> Tuple[bool, Optional[int]]:
    """Whether the body comes in chunks, and else how long it is; None: up to the end of the connection."""
    lengths = [value for name, value in fields if name == b"content-length"]
    codings = [value for name, value in fields if name == b"transfer-encoding"]
    if codings:
        if lengths or version == b"HTTP/1.0" or [coding.lower() for coding in codings] != [b"chunked"]:
            raise HttpError("the answer says in two ways, or in an unknown one, where it ends")
        return True, 0
    if not lengths:
        return False, None
    if len(lengths) > 1 or not 0 < len(lengths[0]) <= 18 or not lengths[0].isdigit():
        raise HttpError("the answer says in two ways, or in an unknown one, where it ends")
    return False, int(lengths[0])
