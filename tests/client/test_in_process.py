"""Calls into an ASGI application without a socket."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Callable, Iterator

import pytest

from dethpc.client.in_process import InProcess
from dethpc.client.session import Session
from dethpc.errors import MasterUnreachable, NotFound
from tests.waiting import LONG_ENOUGH


async def answer(send: Any, *pieces: bytes, status: int = 200) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body"})


@pytest.fixture
def session() -> Iterator[Callable[..., Session]]:
    made = []

    def make(app: Any, **options: Any) -> Session:
        made.append(Session(InProcess(app), "secret", retries=0, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_the_application_is_asked_as_over_http(session: Callable[..., Session]) -> None:
    asked: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.append((scope["method"], scope["path"], scope["query_string"], dict(scope["headers"])))
        asked.append(await receive())
        await answer(send, b'{"a":', b"1}")

    assert session(app).post("/b c".replace(" ", "%20"), {"x": 1}, params={"y": "ü"}) == {"a": 1}
    method, path, query, headers = asked[0]
    assert (method, path, query) == ("POST", "/b c", b"y=%C3%BC")
    assert headers[b"authorization"] == b"Bearer secret" and headers[b"content-type"] == b"application/json"
    assert asked[1] == {"type": "http.request", "body": b'{"x":1}', "more_body": False}


def test_an_error_of_the_application_is_the_clients_exception(session: Callable[..., Session]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await answer(send, b'{"error":{"code":5,"error":"no such thing"}}', status=404)

    with pytest.raises(NotFound, match="no such thing"):
        session(app).get("/x")


def test_an_application_that_fails_does_not_answer(session: Callable[..., Session]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/half":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] != "/nothing":
            raise ValueError("broken")

    for path, words in (("/x", "broken"), ("/half", "broken"), ("/nothing", "without a whole answer")):
        with pytest.raises(MasterUnreachable, match=words):
            session(app).get(path)


def test_a_silent_application_is_given_up_after_the_timeout(session: Callable[..., Session]) -> None:
    cancelled = threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()

    with pytest.raises(MasterUnreachable, match="nothing for 0.05 s"):
        session(app, timeout=0.05).get("/x")
    assert cancelled.wait(LONG_ENOUGH)


def test_a_stream_arrives_piece_by_piece_and_ends_in_the_application_when_it_is_left(
    session: Callable[..., Session],
) -> None:
    more, ended = threading.Semaphore(0), threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            number = 0
            while True:
                number += 1
                await send({"type": "http.response.body", "body": b'{"n":%d}\n' % number, "more_body": True})
                await asyncio.to_thread(more.acquire)
        finally:
            ended.set()

    stream = session(app).stream("/s")
    assert next(stream) == {"n": 1}
    more.release()
    assert next(stream) == {"n": 2}
    stream.close()  # type: ignore[attr-defined]
    assert ended.wait(LONG_ENOUGH)
    more.release()


def test_an_application_waits_for_a_reader_that_is_far_behind(session: Callable[..., Session]) -> None:
    sent = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(1000):
            await send({"type": "http.response.body", "body": b"%d\n" % number, "more_body": True})
            sent.append(number)
        await send({"type": "http.response.body"})

    stream = session(app).stream("/s")
    assert next(stream) == 0
    assert len(sent) < 100
    assert list(stream) == list(range(1, 1000))


def test_an_application_of_a_running_loop_is_called_there_and_never_from_it() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert asyncio.get_running_loop() is loop
        await answer(send, b"{}")

    async def main() -> None:
        session = Session(InProcess(app, asyncio.get_running_loop()))
        assert await asyncio.to_thread(session.get, "/x") == {}
        with pytest.raises(RuntimeError, match="make it in a thread"):
            session.get("/x")

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    with pytest.raises(MasterUnreachable):
        Session(InProcess(app, loop), retries=0).get("/x")
