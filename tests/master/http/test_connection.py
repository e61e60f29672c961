"""What goes over a connection, and in how many pieces."""

from __future__ import annotations

import h11
import pytest

from dethpc.master.http.connection import Wire


def asked(method: str = "GET") -> Wire:
    """A connection on which a request has come."""
    wire = Wire()
    wire.receive_data(f"{method} / HTTP/1.1\r\nHost: master\r\n\r\n".encode())
    assert isinstance(wire.next_event(), h11.Request)
    return wire


def test_the_head_of_an_answer_with_a_length_goes_with_its_body() -> None:
    wire = asked()
    assert wire.send(h11.Response(status_code=200, headers=[("Content-Length", "2")])) == b""
    sent = wire.send(h11.Data(data=b"{}"))
    assert sent is not None and sent.startswith(b"HTTP/1.1 200 ") and sent.endswith(b"\r\n\r\n{}")
    assert wire.send(h11.EndOfMessage()) == b""


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_an_answer_without_a_body_is_whole(method: str) -> None:
    wire = asked(method)
    length = "7" if method == "HEAD" else "0"
    wire.send(h11.Response(status_code=200, headers=[("content-length", length)]))
    sent = wire.send(h11.Data(data=b""))
    assert sent is not None and sent.endswith(f"content-length: {length}\r\n\r\n".encode())


def test_the_head_of_a_stream_does_not_wait_for_what_may_come_much_later() -> None:
    wire = asked()
    sent = wire.send(h11.Response(status_code=200, headers=[("content-type", "text/event-stream")]))
    assert sent is not None and sent.startswith(b"HTTP/1.1 200 ")
    sent = wire.send(h11.Data(data=b"line\n"))
    assert sent is not None and sent.startswith(b"5\r\nline")


def test_a_head_that_was_held_back_is_not_part_of_the_next_answer() -> None:
    wire = asked()
    wire.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
    wire.send(h11.Data(data=b""))
    wire.send(h11.EndOfMessage())
    while not isinstance(wire.next_event(), h11.EndOfMessage):
        pass
    wire.start_next_cycle()
    wire.receive_data(b"GET / HTTP/1.1\r\nHost: master\r\n\r\n")
    assert isinstance(wire.next_event(), h11.Request)
    sent = wire.send(h11.Response(status_code=204, headers=[]))
    assert sent is not None and sent.count(b"HTTP/1.1") == 1
