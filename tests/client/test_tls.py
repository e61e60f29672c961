"""Whom a session believes over TLS: a server on loopback with certificates of its own."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dethpc.client.address import MasterFinder
from dethpc.client.http1 import Connection
from dethpc.client.proof import PATH, OwnerToken, proof
from dethpc.client.session import Session
from dethpc.config.site import Master
from dethpc.errors import MasterUnreachable, Unauthorized
from dethpc.master.http.tls import Tls, tls_of
from dethpc.rundir.home import Home


class Server:
    """Answers every request over TLS with its path, and keeps what it was asked. It proves to know "secret"."""

    def __init__(self, folder: Path, name: str, port: int = 0) -> None:
        self.home = Home(folder)
        self.home.make()
        found = tls_of(self.home, Master(tls="on"), "127.0.0.1", name)
        assert found is not None
        self.tls: Tls = found
        self.signs = self.tls.shown
        self.asked: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.asked.append(self.path)
                answer = {"path": self.path}
                if self.path.startswith(PATH):
                    nonce = self.path.rpartition("=")[2]
                    answer = {"proof": proof("secret", nonce, ("login1", 80), server.signs)}
                content = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        class Listener(ThreadingHTTPServer):
            def finish_request(self, request: socket.socket, address: object) -> None:  # type: ignore[override]
                with contextlib.suppress(OSError):  # a client that goes away
                    super().finish_request(server.tls.context.wrap_socket(request, server_side=True), address)

        self._listener = Listener(("127.0.0.1", port), Handler)
        self._listener.daemon_threads = True
        self.port = self._listener.server_address[1]
        self.url = f"https://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._listener.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._listener.shutdown()
            self._thread.join()
            self._listener.server_close()


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    for name in ("DET_MASTER_CERT_FILE", "DET_MASTER_CERT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DETHPC_HOME", str(tmp_path / "mine"))
    started: list[Server] = []

    def start(folder: str = "mine", name: str = "login1", port: int = 0) -> Server:
        started.append(Server(tmp_path / folder, name, port))
        return started[-1]

    yield start
    for one in started:
        one.stop()


def say(home: Home, url: str, certificate: str) -> None:
    """As a master that listens there."""
    home.master_file.write_text(json.dumps({"url": url, "certificate": certificate}))


def get(url: str, cert: str | None = None, cert_name: str | None = None) -> object:
    session = Session(url, retries=0, trust=(cert, cert_name))
    try:
        return session.get("/x")
    finally:
        session.close()


def test_the_homes_master_needs_no_option_under_any_of_its_names(serve: Callable[..., Server]) -> None:
    mine = serve()
    say(mine.home, mine.url, mine.tls.fingerprint())
    assert get(mine.url) == get(mine.url.replace("127.0.0.1", "localhost")) == {"path": "/x"}


def test_a_server_with_another_certificate_is_told_nothing_and_the_message_names_both(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = serve()
    say(mine.home, mine.url, mine.tls.fingerprint())
    mine.stop()
    other = serve("other", port=mine.port)
    monkeypatch.setenv("DET_MASTER_CERT_FILE", "noverify")  # for other masters, not for one's own
    with pytest.raises(Unauthorized) as caught:
        get(mine.url)
    assert mine.tls.fingerprint() in str(caught.value) and other.tls.fingerprint() in str(caught.value)
    assert other.asked == []


def test_a_relay_with_a_certificate_of_its_own_gets_no_token_even_from_who_trusts_anybody(
    serve: Callable[..., Server],
) -> None:
    """The address in the proof does not matter over TLS: it may be translated on the way."""
    master, relay = serve("other"), serve("third")
    session = Session(master.url, OwnerToken("secret"), retries=0, trust=("noverify", None))
    assert session.get("/x") == {"path": "/x"}
    session.close()
    relay.signs = master.tls.shown
    with pytest.raises(Unauthorized, match="does not prove"):
        Session(relay.url, OwnerToken("secret"), retries=0, trust=("noverify", None)).get("/x")
    assert all(path.startswith(PATH) for path in relay.asked) and len(relay.asked) == 1


def test_a_handshake_without_end_keeps_nobody_longer_than_agreed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dethpc.client.proof.SECONDS", 0.3)
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            with server.accept()[0] as client, contextlib.suppress(OSError):
                client.sendall(b"\x16\x03\x03\x40\x00")  # a record of 16 KiB
                while not ended.wait(0.01):
                    client.sendall(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        with pytest.raises(MasterUnreachable):
            get(f"https://127.0.0.1:{server.getsockname()[1]}", cert="noverify")
        ended.set()
        thread.join()


def test_a_job_finds_the_new_certificate_in_master_json(serve: Callable[..., Server]) -> None:
    mine = serve()
    say(mine.home, mine.url, "0" * 64)
    session = Session(MasterFinder(str(mine.home.master_file)), retries=0)
    with pytest.raises(MasterUnreachable, match="another certificate"):
        session.get("/x")
    say(mine.home, mine.url, mine.tls.fingerprint())
    with pytest.raises(MasterUnreachable, match="another certificate"):
        session.get("/x")  # it has read the file again by now
    assert session.get("/x") == {"path": "/x"}
    session.close()


def test_another_server_is_verified_by_the_file_and_the_name_that_are_given(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = serve("other", "master.example.org")
    file, elsewhere = str(other.home.certificate), str(serve("third").home.certificate)
    for url in (other.url, other.url.replace("127.0.0.1", "localhost")):
        assert get(url, cert=file) == get(url, cert=file, cert_name="master.example.org") == {"path": "/x"}
        assert get(url, cert="noverify") == {"path": "/x"}
        for wrong in ({}, {"cert": elsewhere}, {"cert": file, "cert_name": "evil.example.org"}):
            with pytest.raises(Unauthorized, match=r"cannot be verified(.|\n)*DET_MASTER_CERT_FILE"):
                get(url, **wrong)
    with pytest.raises(Unauthorized, match="cannot be read"):
        get(other.url, cert=f"{file}.missing")
    monkeypatch.setenv("DET_MASTER_CERT_FILE", file)
    assert get(other.url) == {"path": "/x"}
    monkeypatch.setenv("DET_MASTER_CERT_NAME", "evil.example.org")
    with pytest.raises(Unauthorized, match="cannot be verified"):
        get(other.url)
    monkeypatch.setenv("DET_MASTER_CERT_FILE", "noverify")
    assert get(other.url) == {"path": "/x"}


def test_who_says_http_to_tls_or_https_to_http_is_told_so(serve: Callable[..., Server]) -> None:
    mine = serve()
    with pytest.raises(MasterUnreachable, match="speaks TLS: its address begins with https://"):
        get(mine.url.replace("https", "http"))
    with socket.create_server(("127.0.0.1", 0)) as plain:

        def answer() -> None:
            connection, _ = plain.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(MasterUnreachable, match="speaks no TLS"):
            get(f"https://127.0.0.1:{plain.getsockname()[1]}")
        thread.join()


def test_a_certificate_that_the_site_renews_is_shown_to_new_connections(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    mine = serve()
    before = mine.tls.fingerprint()
    session = Session(mine.url, retries=0, trust=(str(mine.home.certificate), None))
    assert session.get("/x") == {"path": "/x"}
    fresh = Home(tmp_path / "fresh")
    fresh.make()
    tls_of(fresh, Master(tls="on"), "127.0.0.1", "login1")
    mine.home.certificate.write_bytes(fresh.certificate.read_bytes())
    assert mine.tls.fingerprint() == before  # half of it is there
    mine.home.certificate_key.write_bytes(fresh.certificate_key.read_bytes())
    after = mine.tls.fingerprint()
    assert after != before
    assert session.get("/x") == {"path": "/x"}  # over the connection of before
    session.close()
    say(mine.home, mine.url, after)
    assert get(mine.url) == {"path": "/x"}


def test_what_comes_behind_an_answer_in_the_same_record_is_no_answer_to_the_next_request(tmp_path: Path) -> None:
    """A socket that speaks TLS holds what it has decrypted, and its reader holds more: nothing is left to see on the wire."""
    home = Home(tmp_path)
    home.make()
    found = tls_of(home, Master(tls="on"), "127.0.0.1", "login1")
    assert found is not None
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with found.context.wrap_socket(theirs, server_side=True) as server:
            server.recv(1 << 16)
            server.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
            server.sendall(b"okHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
            if server.recv(1 << 16):
                server.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")
            server.recv(1)  # until the other end hangs up

    thread = threading.Thread(target=serve)
    thread.start()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = Connection(context.wrap_socket(ours), "login1")
    connection.request("GET", "/", {})
    try:
        assert connection.answer().read() == b"ok"
        if connection.idle:
            connection.request("GET", "/", {})
            assert connection.answer().read() == b"no"
    finally:
        connection.close()
        thread.join()
