"""The client's HTTP/1.1, over bytes that come in pieces of any size: what is well formed it reads as the standard library does, and
what is not it refuses in its own words."""

from __future__ import annotations

import http.client
import io
import socket
import threading
from functools import partial
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dethpc.client import http1
from dethpc.client.http1 import Connection, Disconnected, HttpError, NotHttp


class Wire:
    """A socket whose other end has said ``said`` and hung up; it arrives in pieces of ``piece`` bytes."""

    def __init__(self, said: bytes, piece: int = 1 << 20) -> None:
        self.said, self._piece = said, piece
        self.sent = b""
        self.taken = 0

    def recv(self, most: int) -> bytes:
        more = self.said[self.taken : self.taken + min(most, self._piece)]
        self.taken += len(more)
        return more

    def sendall(self, data: bytes) -> None:
        self.sent += bytes(data)

    def close(self) -> None:
        pass


def over(said: bytes, piece: int = 1 << 20) -> tuple[Connection, Wire]:
    wire = Wire(said, piece)
    return Connection(cast(socket.socket, wire), "login1:8080"), wire


def got(said: bytes, method: str = "GET", piece: int = 1 << 20) -> bytes:
    connection, _ = over(said, piece)
    connection.request(method, "/x", {})
    return connection.answer().read()


class Asked(NamedTuple):
    """A request, and an answer to it that is well formed."""

    method: str
    answer: bytes
    last: bool  # the connection ends with it


_token = st.text("abcXYZ019!#$%&'*+-.^_`|~", min_size=1, max_size=8)
_value = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=20)
_fields = st.lists(st.tuples(_token.map("X-{}".format), _value), max_size=4)


def _written(fields: list[tuple[str, str]], draw: st.DrawFn) -> bytes:
    gap = draw(st.sampled_from([" ", "", " \t"]))  # behind the value the standard library takes one for a part of it
    return b"".join(f"{name}:{gap}{value}\r\n".encode("latin-1") for name, value in fields)


@st.composite
def asked(draw: st.DrawFn) -> Asked:
    method = draw(st.sampled_from(["GET", "POST", "HEAD"]))
    status = draw(st.sampled_from([200, 200, 201, 204, 304, 404, 503]))
    version = draw(st.sampled_from(["1.1", "1.1", "1.0"]))
    fields = draw(_fields)
    if option := draw(st.sampled_from(["", "", "close", "keep-alive", "Keep-Alive", "x, Close"])):
        fields.append(("Connection", option))
    # Chunks that a 204 or 304 tells of (it must not) the standard library waits for.
    ways = ["length", "end"] if version == "1.0" or status in (204, 304) else ["length", "chunks", "end"]
    way, body = draw(st.sampled_from(ways)), draw(st.binary(max_size=300))
    without = method == "HEAD" or status in (204, 304)
    content = b"" if without else body
    if way == "length":
        fields.append((draw(st.sampled_from(["Content-Length", "content-length"])), str(len(body))))
    elif way == "chunks":
        fields.append(("Transfer-Encoding", draw(st.sampled_from(["chunked", "Chunked"]))))
        content = b"" if without else _in_chunks(draw, body)
    fields = draw(st.permutations(fields))
    reason = draw(st.sampled_from([" OK", " ", "", " Not quite \xe9"]))
    before = b"HTTP/1.1 100 Continue\r\nX-A: 1\r\n\r\n" * draw(st.integers(0, 2))
    head = f"HTTP/{version} {status}{reason}\r\n".encode("latin-1") + _written(fields, draw)
    kept = "keep-alive" in option.lower() if version == "1.0" else "close" not in option.lower()
    return Asked(method, before + head + b"\r\n" + content, not kept or (way == "end" and not without))


def _in_chunks(draw: st.DrawFn, body: bytes) -> bytes:
    written, at = b"", 0
    while at < len(body):
        end = draw(st.integers(at + 1, len(body)))
        size = draw(st.sampled_from(["{:x}", "{:X}", "00{:x}", "{:x};a=b", '{:x} ; c="d"'])).format(end - at)
        written += size.encode() + b"\r\n" + body[at:end] + b"\r\n"
        at = end
    trailer = _written(draw(_fields), draw)
    return written + b"0\r\n" + trailer + b"\r\n"


class Kept(io.BytesIO):
    """What the standard library reads one answer after the other from: it closes its file after each."""

    def close(self) -> None:
        pass

    def makefile(self, mode: str) -> Kept:
        return self


@settings(deadline=None)
@given(st.lists(asked(), min_size=1, max_size=4), st.integers(1, 40), st.integers(1, 64), st.booleans())
def test_what_is_well_formed_is_read_as_the_standard_library_reads_it(
    exchanges: list[Asked], piece: int, most: int, at_once: bool
) -> None:
    end = next((n + 1 for n, each in enumerate(exchanges) if each.last), len(exchanges))
    connection, wire = over(b"", piece)
    theirs = Kept(b"".join(each.answer for each in exchanges[:end]))
    for each in exchanges[:end]:
        wire.said += each.answer  # not before it is asked for
        connection.request(each.method, "/x", {})
        answer = connection.answer()
        body = answer.read() if at_once else b"".join(iter(partial(answer.read1, most), b""))
        reference = http.client.HTTPResponse(cast(Any, theirs), method=each.method)
        reference.begin()
        assert (answer.status, body, answer.will_close) == (reference.status, reference.read(), reference.will_close)
        assert answer.ended and answer.read1(1) == b"" and wire.taken == theirs.tell()


def test_white_space_around_a_value_is_none_of_it() -> None:
    assert (
        got(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: \tchunked \t\r\nConnection:close \r\n\r\n1\r\na\r\n0\r\n\r\n")
        == b"a"
    )


def test_preliminary_answers_are_passed_over() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"
    assert got(early + b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", piece=1) == b"a"


@pytest.mark.parametrize("piece", [1, 1 << 20])
@pytest.mark.parametrize(
    "said",
    [
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n0123456789",
        "HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\naa",
        "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\na",
        f"HTTP/1.1 200 OK\r\nContent-Length: {'9' * 5000}\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\na",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\n Content-Length: 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\na",
        "HTTP/1.1 200 OK\nContent-Length: 1\n\na",
        "HTTP/1.1 200 OK\r\nX: a\rContent-Length: 5\r\n\r\na",
        "HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nab\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nab\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n 2\r\nab\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nab\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + "f" * 17 + "\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: a",
        "HTTP/2 200\r\n\r\n",
        "HTTP/1.12 200 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 -20 OK\r\n\r\n",
        "HTTP/1.1 \xb2\xb2\xb2 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "http/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n" * 33,
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        "SSH-2.0-OpenSSH_9.6\r\n",
        "\x15\x03\x01\x00\x02\x02\x46",
        "HTTP/1.1 200 OK\r\nContent-Le",
    ],
)
def test_what_could_be_read_in_two_ways_or_is_broken_is_refused(said: str, piece: int) -> None:
    with pytest.raises(HttpError):
        got(said.encode("latin-1"), piece=piece)


def test_an_answer_without_a_body_ends_with_its_head_whatever_length_it_names() -> None:
    for method, status in (("HEAD", 200), ("GET", 204), ("GET", 304)):
        for framing in ("Content-Length: 10", "Transfer-Encoding: chunked", "X: y"):
            connection, _ = over(f"HTTP/1.1 {status} OK\r\n{framing}\r\n\r\n".encode())
            connection.request(method, "/x", {})
            answer = connection.answer()
            assert answer.ended and not answer.will_close and answer.read() == b""


def test_who_hangs_up_without_a_word_is_told_from_who_says_nonsense() -> None:
    with pytest.raises(Disconnected) as caught:
        got(b"")
    assert isinstance(caught.value, ConnectionResetError)
    with pytest.raises(HttpError) as caught:
        got(b"H")
    assert not isinstance(caught.value, Disconnected)


class Waits(Wire):
    """Says something and waits to hear more; to wait for it in turn would be for ever."""

    def recv(self, most: int) -> bytes:
        assert self.taken < len(self.said), "both wait"
        return super().recv(most)


@pytest.mark.parametrize("piece", [1, 1 << 20])
@pytest.mark.parametrize("said", [b"220 mail ESMTP\r\n", b"220 mail", b"\n", b"HTTP/2 ", b"HTTP/1.x 200 OK\r\n"])
def test_who_greets_and_waits_is_no_web_server_and_is_not_waited_for(said: bytes, piece: int) -> None:
    connection = Connection(cast(socket.socket, Waits(said, piece)), "login1:8080")
    connection.request("GET", "/x", {})
    with pytest.raises(NotHttp, match="the answer begins with '.*': is this a web server?"):
        connection.answer()


@pytest.mark.parametrize(
    "begins, goes_on",
    [
        (b"HTTP/1.1 ", b"x"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
        (b"HTTP/1.1 103 Early Hints\r\n", b"X: y\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n"),
    ],
)
def test_a_head_a_size_and_a_trailer_without_end_are_not_held(begins: bytes, goes_on: bytes) -> None:
    connection, wire = over(begins + goes_on * (1 << 20), piece=1000)
    connection.request("GET", "/x", {})
    with pytest.raises(HttpError, match="longer"):
        connection.answer().read()
    assert wire.taken < 3 * (1 << 16)


def test_no_more_of_a_body_is_read_than_was_wanted() -> None:
    for framing, body in (("Content-Length: 10000000", b"x" * 10_000_000), ("X: y", b"x" * 10_000_000)):
        connection, wire = over(f"HTTP/1.1 200 OK\r\n{framing}\r\n\r\n".encode() + body)
        connection.request("GET", "/x", {})
        answer = connection.answer()
        assert answer.read(1000) == b"x" * 1000 and not answer.ended and wire.taken <= 1 << 16


def test_what_nobody_has_asked_for_ends_the_connection() -> None:
    """Else it would be taken for the answer to the next request."""
    connection, _ = over(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabHTTP/1.1 200 OK\r\n\r\n")
    connection.request("GET", "/x", {})
    assert connection.answer().read() == b"a"
    assert not connection.idle
    with pytest.raises(HttpError, match="goes on beyond its end"):
        connection.request("GET", "/y", {})


def test_a_second_request_waits_for_the_answer_to_the_first() -> None:
    connection, wire = over(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
    connection.request("GET", "/x", {})
    connection.answer().read(2)
    sent = wire.sent
    with pytest.raises(HttpError, match="not read"):
        connection.request("GET", "/y", {})
    assert wire.sent == sent and not connection.idle


def test_a_request_is_what_the_standard_library_sends() -> None:
    for method, body in (("GET", None), ("POST", None), ("POST", b"{}"), ("PUT", b""), ("DELETE", None)):
        connection, wire = over(b"")
        connection.request(method, "/a?b=c", {"Accept": "x", "X-Y": "caf\xe9 d"}, body)
        theirs, reference = http.client.HTTPConnection("login1", 8080), Wire(b"")
        theirs.sock = cast(Any, reference)
        theirs.request(method, "/a?b=c", body, {"Accept": "x", "X-Y": "caf\xe9 d"})
        assert sorted(wire.sent.split(b"\r\n")) == sorted(reference.sent.split(b"\r\n")), method
        assert wire.sent.partition(b"\r\n")[0] == reference.sent.partition(b"\r\n")[0]


def test_a_body_in_pieces_goes_out_piece_by_piece() -> None:
    connection, wire = over(b"")
    connection.request("POST", "/x", {"Content-Length": "4"}, iter([b"ab", memoryview(b"cd")]))
    assert wire.sent.endswith(b"Content-Length: 4\r\n\r\nabcd")


@pytest.mark.parametrize(
    "method, target, headers",
    [
        ("GET", "/a b", {}),
        ("GET", "/a\r\nX: y", {}),
        ("GET", "/\xe9", {}),
        ("GET", "", {}),
        ("GET /", "/", {}),
        ("GET", "/", {"X": "a\r\nY: b"}),
        ("GET", "/", {"X": "a\nb"}),
        ("GET", "/", {"X\r\nY": "b"}),
        ("GET", "/", {"X:": "b"}),
        ("GET", "/", {"X": "\u20ac"}),
    ],
)
def test_nothing_is_smuggled_into_a_request(method: str, target: str, headers: dict[str, str]) -> None:
    connection, wire = over(b"")
    with pytest.raises(HttpError):
        connection.request(method, target, headers)
    assert wire.sent == b""


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(1, 50), st.sampled_from(["GET", "HEAD"]))
@example(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 1, "GET")
def test_in_which_pieces_bytes_come_makes_no_difference(said: bytes, piece: int, method: str) -> None:
    def outcome(piece: int) -> object:
        try:
            return got(said, method, piece)
        except NotHttp as error:  # who is refused at once has said more or less by then
            return type(error)
        except HttpError as error:
            return str(error)

    assert outcome(piece) == outcome(1 << 20)


@pytest.mark.parametrize(
    "host, port, authority",
    [("localhost", None, "localhost:{}"), ("127.0.0.1", None, "127.0.0.1:{}"), ("::1", None, "[::1]:{}")],
)
def test_a_server_is_named_as_it_is_reached(host: str, port: None, authority: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server(("::1" if ":" in host else "127.0.0.1", 0), family=family) as server:
        there = server.getsockname()[1]
        heard: list[bytes] = []

        def serve() -> None:
            with server.accept()[0] as client:
                heard.append(client.recv(1 << 16))
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                client.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        connection = http1.connect(host, there, 30.0)
        assert connection.idle and connection.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        connection.request("GET", "/x", {})
        assert not connection.idle and connection.answer().read() == b"ok" and connection.idle
        connection.close()
        assert not connection.idle
        thread.join()
    assert f"Host: {authority.format(there)}\r\n".encode() in heard[0]


def test_a_name_that_no_machine_can_have_is_an_error_of_the_network() -> None:
    for name in ("a..b", "\xe9..x", "x" * 300 + "\xe9", ""):
        if name:
            with pytest.raises(OSError):
                http1.connect(name, 1, 1.0)
