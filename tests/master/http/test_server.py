"""The server's own life: it sleeps while nobody asks for anything, and ends when it is told to."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from dethpc.master.http import server
from dethpc.master.http.preemptions import Preemptions
from tests.waiting import LONG_ENOUGH, wait_until


@pytest.mark.parametrize(
    "end",
    [lambda server: setattr(server, "should_exit", True), lambda server: server.handle_exit(signal.SIGTERM, None)],
    ids=["by another thread", "by a signal"],
)
def test_who_ends_a_server_wakes_it(end: Callable[[server.Server], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_TICK", 3600.0)  # it does not look by itself
    app = FastAPI()
    app.state.preemptions = Preemptions(lambda attempt: None)
    app.state.commits = SimpleNamespace(end=lambda: None)
    served, slept = server.Server(app), threading.Event()
    serving = threading.Thread(target=served.run, kwargs={"sockets": [socket.create_server(("127.0.0.1", 0))]})
    serving.start()
    wait_until(lambda: served.started and served.heartbeat.silent > 0)
    assert served._loop is not None
    served._loop.call_soon_threadsafe(slept.set)
    assert slept.wait(LONG_ENOUGH)
    end(served)
    serving.join(LONG_ENOUGH)
    assert not serving.is_alive()


def test_who_follows_a_stream_is_cut_off_at_the_end_and_no_failure_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "LAST_ANSWERS", 0.01)
    monkeypatch.setattr(server, "_TO_NOTICE", LONG_ENOUGH)
    app = FastAPI()
    app.state.preemptions = Preemptions(lambda attempt: None)
    app.state.commits = SimpleNamespace(end=lambda: None)

    async def lines() -> AsyncIterator[bytes]:
        yield b"a line\n"
        await asyncio.Event().wait()

    app.get("/log")(lambda: StreamingResponse(lines()))
    served, listener = server.Server(app), socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    serving = threading.Thread(target=served.run, kwargs={"sockets": [listener]})
    serving.start()
    with socket.create_connection(address, LONG_ENOUGH) as reader, reader.makefile("rb") as log:
        reader.sendall(b"GET /log HTTP/1.1\r\nHost: here\r\n\r\n")
        while log.readline() != b"a line\n":
            pass
        served.should_exit = True
        serving.join(LONG_ENOUGH)
    assert not serving.is_alive()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_server_that_has_ended_can_be_told_to_end() -> None:
    """As by a signal that comes late."""
    app = FastAPI()
    app.state.preemptions = Preemptions(lambda attempt: None)
    app.state.commits = SimpleNamespace(end=lambda: None)
    served = server.Server(app)
    served.should_exit = True
    served.run(sockets=[])
    served.should_exit = True
