"""The session: over a transport that answers from a list, and over HTTP to a real server on loopback."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

from dethpc import errors
from dethpc.client.address import MasterFinder, auth_json, canonical, home, master_url, token
from dethpc.client.nouns import experiments
from dethpc.client.proof import OwnerToken
from dethpc.client.session import Session
from dethpc.client.transport import HttpTransport, NoAnswer
from dethpc.errors import (
    ConfigError,
    MasterError,
    MasterUnreachable,
    NotFound,
    NotSupportedYet,
    Refused,
    Unauthorized,
)
from tests.waiting import LONG_ENOUGH

Answer = Callable[[BaseHTTPRequestHandler, bytes], None]


def say(handler: BaseHTTPRequestHandler, status: int, body: Any) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


class Master:
    """Answers by path; remembers what it was asked and over how many connections."""

    def __init__(self, answers: Dict[str, Answer], port: int = 0) -> None:
        self.asked: List[Tuple[str, str, Dict[str, str], bytes]] = []
        self.connections: List[Any] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                owner.connections.append(self.connection)

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                owner.asked.append((self.command, self.path, dict(self.headers), body))
                answers[self.path.split("?")[0]](self, body)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Master]]:
    masters: List[Master] = []

    def start(answers: Dict[str, Answer], port: int = 0) -> Master:
        masters.append(Master(answers, port))
        return masters[-1]

    yield start
    for master in masters:
        master.stop()


class Answers:
    """A transport that gives these answers in turn: a status and a body, or a failure."""

    url = "http://master:8080"

    def __init__(self, *answers: Any) -> None:
        self.left = list(answers)
        self.asked: List[Tuple[str, str, Dict[str, str], Any]] = []

    def send(self, method: str, target: str, headers: Any, body: Any, timeout: float, on_sent: Any = None) -> Reply:
        self.asked.append((method, target, dict(headers), body))
        answer = self.left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Reply(*answer)

    def close(self) -> None:
        pass


class Reply:
    def __init__(self, status: int, *pieces: Any) -> None:
        self.status, self.pieces = status, pieces
        self.closed = False

    def read(self) -> bytes:
        return b"".join(self.chunks(None))

    def chunks(self, timeout: Any) -> Iterator[bytes]:
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece if isinstance(piece, bytes) else json.dumps(piece).encode()

    def close(self) -> None:
        self.closed = True


def refused() -> NoAnswer:
    return NoAnswer(ConnectionRefusedError("refused"), sent=False)


def lost() -> NoAnswer:
    return NoAnswer(ConnectionResetError("reset"), sent=True)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> List[float]:
    """No pauses between two tries; how long they would have been."""
    pauses: List[float] = []
    monkeypatch.setattr("dethpc.client.session.time.sleep", pauses.append)
    return pauses


def test_a_call_carries_token_parameters_and_body_and_returns_the_answer() -> None:
    master = Answers((200, {"got": 1}), (200, {"got": 2}), (200, {}))
    session = Session(master, "secret")
    assert session.post("/api/v1/things", {"a": [1, "ü"]}) == {"got": 1}
    assert session.get("/api/v1/things", {"x": True, "list": ["a b", 2], "none": None}) == {"got": 2}
    assert session.delete("/api/v1/things") == {}
    posted, got, _ = master.asked
    assert posted[2] == {
        "Accept": "application/json",
        "Authorization": "Bearer secret",
        "Content-Type": "application/json",
    }
    assert json.loads(posted[3]) == {"a": [1, "ü"]}
    assert got[:2] == ("GET", "/api/v1/things?x=true&list=a%20b&list=2") and got[3] is None


@pytest.mark.parametrize("failure", [lost(), (503, b"no upstream"), (200, lost())])
def test_what_the_master_may_have_acted_on_is_sent_again_only_if_that_does_no_harm(
    failure: Any, at_once: List[float]
) -> None:
    master = Answers(failure, (200, {}), failure)
    assert Session(master).get("/x") == {}
    with pytest.raises(MasterUnreachable):
        Session(master).post("/x", {})
    assert [asked[0] for asked in master.asked] == ["GET", "GET", "POST"]
    master = Answers(failure, (200, {}))
    assert Session(master).post("/x", {}, idempotent=True) == {}


def test_what_never_reached_the_master_is_sent_again_with_growing_pauses(at_once: List[float]) -> None:
    master = Answers(refused(), refused(), (200, {"ok": True}))
    assert Session(master).post("/x", {}) == {"ok": True}
    assert at_once[0] < at_once[1] and len(at_once) == 2
    with pytest.raises(MasterUnreachable, match="http://master:8080 does not answer: refused"):
        Session(Answers(refused(), refused()), retries=1).post("/x", {})


def test_a_thread_keeps_one_connection(serve: Callable[..., Master]) -> None:
    master = serve({"/": lambda h, b: say(h, 200, {})})
    session = Session(master.url)
    for _ in range(5):
        session.get("/")
    assert len(master.connections) == 1
    session.close()


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (401, {"error": {"code": 16, "reason": "Unauthenticated", "error": "no token"}}, Unauthorized),
        (403, {"error": {"code": 7, "reason": "PermissionDenied", "error": "not yours"}}, Unauthorized),
        (404, {"error": {"code": 5, "reason": "NotFound", "error": "no such experiment"}}, NotFound),
        (400, {"error": {"code": 3, "reason": "InvalidArgument", "error": "bad"}}, Refused),
        (409, {"error": {"code": 9, "reason": "Conflict", "error": "it has ended"}}, Refused),
        (501, {"error": {"code": 12, "reason": "Unimplemented", "error": "later"}}, NotSupportedYet),
        (500, {"error": {"code": 13, "reason": "Internal", "error": "boom"}}, MasterError),
    ],
)
def test_an_error_answer_is_an_exception_with_the_masters_words(status: int, body: Any, error: type) -> None:
    with pytest.raises(error) as caught:
        Session(Answers((status, body))).post("/x", {})
    words = body["error"]["error"]
    assert words in str(caught.value)
    # What scripts catch that were written for Determined's client.
    kinds = {401: errors.UnauthenticatedException, 403: errors.ForbiddenException, 404: errors.NotFoundException}
    theirs: Any = caught.value
    assert isinstance(theirs, kinds.get(status, errors.APIException)) and words in theirs.message
    assert status in (401, 403) or theirs.status_code == status


@pytest.mark.parametrize("body", [b"<h1>nope</h1>", b"bad gateway", b"", [], {"nope": 1}, b"[" * 100_000])
@pytest.mark.parametrize("status", [404, 500, 502])
def test_a_page_of_another_server_is_not_told_as_the_masters_words(status: int, body: Any) -> None:
    with pytest.raises(MasterError if status != 404 else NotFound) as caught:
        Session(Answers((status, body)), retries=0).get("/x")
    assert str(caught.value) == f"http://master:8080/x answers {status}; is this a dethpc master?"


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"1", b"<html>", b"[" * 100_000])
def test_an_answer_that_is_no_object_is_none_of_a_master(body: bytes) -> None:
    with pytest.raises(MasterError, match="^http://master:8080/x did not answer as a dethpc master does$"):
        Session(Answers((200, body))).get("/x")


def test_a_stream_that_is_no_json_is_none_of_a_master() -> None:
    with pytest.raises(MasterError, match="^http://master:8080/x did not answer as a dethpc master does$"):
        list(Session(Answers((200, b"<html>\n"))).stream("/x"))


@pytest.mark.parametrize(
    "location, told",
    [
        ("https://a:1/api/v1/x?y=1", "redirects to https://a:1; use that address"),
        ("https://u:secret@a/b", "redirects to https://u:********@a/b; use that address"),
        ("/login", "redirects to /login; is this a dethpc master?"),
        ("", "redirects to nowhere; is this a dethpc master?"),
    ],
)
def test_a_redirection_is_told_and_not_taken_for_an_answer(
    serve: Callable[..., Master], location: str, told: str
) -> None:
    def lead(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        handler.send_response(302)
        if location:
            handler.send_header("Location", location)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    master = serve({"/api/v1/x": lead})
    with pytest.raises(MasterError) as caught:
        Session(master.url).get("/api/v1/x", {"y": 1})
    assert str(caught.value) == f"{master.url} {told}" and caught.value.status == 302


def test_problems_of_a_config_arrive_one_by_one() -> None:
    problem = {
        "file": "a.yaml",
        "line": 3,
        "field": "searcher.name",
        "found": "rnadom",
        "allowed": "random",
        "hint": "?",
        "message": "must be random, not rnadom",
    }
    body = {"error": {"code": 3, "reason": "x", "error": "config", "problems": [problem, problem]}}
    with pytest.raises(ConfigError) as caught:
        Session(Answers((400, body))).post("/x", {})
    assert [p.to_json() for p in caught.value.problems] == [problem, problem]
    del problem["message"]  # as a master of an earlier release has it
    with pytest.raises(ConfigError, match=r"searcher.name: must be random, not rnadom \(\?\)"):
        Session(Answers((400, body))).post("/x", {})


def test_nobody_listening_is_unreachable_and_says_where() -> None:
    with pytest.raises(MasterUnreachable, match="127.0.0.1:1 "):
        Session("http://127.0.0.1:1", retries=1).get("/")


def test_what_greets_as_no_web_server_does_is_asked_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        met: List[socket.socket] = []

        def greet() -> None:
            while True:
                try:
                    met.append(server.accept()[0])
                except OSError:
                    return
                met[-1].sendall(b"220 mail ESMTP\r\n")

        greeter = threading.Thread(target=greet)
        greeter.start()
        try:
            with pytest.raises(MasterUnreachable, match="begins with '220 mail ESMTP': is this a web server?"):
                Session(f"http://127.0.0.1:{server.getsockname()[1]}").get("/")
        finally:
            server.shutdown(socket.SHUT_RDWR)
            greeter.join()
        assert len(met) == 1
        met[0].close()


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{"])
def test_who_stays_silent_at_a_fixed_address_is_asked_once_and_told_of(said: bytes) -> None:
    with Silent(said) as silent:
        with pytest.raises(MasterUnreachable, match="does not answer: it has said nothing for 0.05 s"):
            Session(silent.url, timeout=0.05).get("/")
    assert len(silent.met) == 1


def test_who_stays_silent_where_a_proof_is_due_is_asked_once_and_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dethpc.client.proof.SECONDS", 0.05)
    with Silent(b"") as silent:
        with pytest.raises(MasterUnreachable, match="it has not shown within 0.05 s that it is the master"):
            Session(silent.url, OwnerToken("secret")).get("/")
    assert len(silent.met) == 1


def test_who_stays_silent_on_a_connection_that_was_kept_is_asked_on_another(serve: Callable[..., Master]) -> None:
    """A network between may have forgotten it."""
    over = threading.Event()

    def silent(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        over.wait()
        handler.close_connection = True

    master = serve({"/kept": lambda handler, body: say(handler, 200, {}), "/silent": silent})
    transport = HttpTransport(master.url)
    transport.send("GET", "/kept", {}, None, LONG_ENOUGH).read()
    for final in (False, True):
        with pytest.raises(NoAnswer, match="it has said nothing for 0.05 s") as caught:
            transport.send("GET", "/silent", {}, None, 0.05)
        assert caught.value.final is final
    over.set()


def test_a_master_that_may_move_is_asked_again_where_it_stays_silent(tmp_path: Path) -> None:
    with Silent(b"") as silent:
        (tmp_path / "master.json").write_text(json.dumps({"url": silent.url}))
        with pytest.raises(MasterUnreachable):
            Session(MasterFinder(str(tmp_path / "master.json")), timeout=0.05, retries=1).get("/")
    assert len(silent.met) == 2


class Silent:
    """Context manager: a server that says ``said`` to whoever it has met, and waits."""

    def __init__(self, said: bytes) -> None:
        self._said = said
        self._server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept)
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self.met: List[socket.socket] = []
        self._last: object = None

    def __enter__(self) -> Silent:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with socket.socket() as last:
            last.bind(("127.0.0.1", 0))
            self._last = last.getsockname()
            last.connect(self._server.getsockname())
            self._thread.join()
        for each in (self._server, *self.met):
            each.close()

    def _accept(self) -> None:
        while True:
            client, address = self._server.accept()
            if address == self._last:
                client.close()
                return
            self.met.append(client)
            with contextlib.suppress(OSError):  # it has not waited
                client.sendall(self._said)


def test_a_large_body_arrives_whole_and_who_watches_hears_how_much_of_it_is_sent(serve: Callable[..., Master]) -> None:
    master, heard = serve({"/x": lambda handler, body: say(handler, 200, {"bytes": len(body)})}), []
    answer = Session(master.url).post("/x", json="a" * 600_000, on_sent=lambda *sent: heard.append(sent))
    assert answer == {"bytes": 600_002} and "Transfer-Encoding" not in master.asked[0][2]
    assert heard == [(262_144, 600_002), (524_288, 600_002), (600_002, 600_002)]


def test_a_get_survives_a_broken_connection_and_a_post_is_not_sent_twice(serve: Callable[..., Master]) -> None:
    broken = {"left": 2}

    def flaky(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if broken["left"]:
            broken["left"] -= 1
            handler.close_connection = True
            return
        say(handler, 200, {"ok": True})

    master = serve({"/x": flaky})
    session = Session(master.url)
    assert session.get("/x") == {"ok": True}
    assert len(master.asked) == 3
    broken["left"] = 1
    with pytest.raises(MasterUnreachable):
        session.post("/x", {})
    assert len(master.asked) == 4
    assert session.post("/x", {}) == {"ok": True}
    session.close()


def test_a_post_on_a_connection_that_the_server_dropped_meanwhile_goes_through(serve: Callable[..., Master]) -> None:
    def once(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        say(handler, 200, {})
        handler.close_connection = True

    master = serve({"/x": once})
    session = Session(master.url)
    for _ in range(5):
        session.post("/x", {})
        select.select([session._transport._kept.connection.sock], [], [], 10)  # until the server has hung up
    assert len(master.asked) == 5
    session.close()


def test_a_stream_yields_results_across_pieces_and_raises_errors(at_once: List[float]) -> None:
    pieces = [b'{"result":{"n":1}}\n\n{"res', b'ult":{"n":2}}\n', b'{"error":{"code":5,"message":"gone"}}']
    stream = Session(Answers(lost(), (200, *pieces))).stream("/s")
    assert [next(stream), next(stream)] == [{"n": 1}, {"n": 2}]
    with pytest.raises(NotFound, match="gone"):
        next(stream)


def test_a_stream_that_is_left_is_given_up() -> None:
    answer = Reply(200, b'{"result":1}\n{"result":2}\n', b'{"result":3}\n')
    master = Answers()
    master.send = lambda *_: answer  # type: ignore[method-assign, assignment]
    stream = Session(master).stream("/s")
    assert next(stream) == 1
    stream.close()  # type: ignore[attr-defined]
    assert answer.closed


def test_a_node_follows_a_master_that_moved(serve: Callable[..., Master], tmp_path: Any) -> None:
    master = serve({"/": lambda h, b: say(h, 200, {"here": True})})
    where = tmp_path / "master.json"
    where.write_text(json.dumps({"url": "http://127.0.0.1:1"}))
    session = Session(MasterFinder(str(where)), retries=2)
    where.write_text(json.dumps({"url": master.url}))
    assert session.get("/") == {"here": True}
    session.close()


def test_who_began_before_there_was_a_master_finds_the_one_that_comes(
    serve: Callable[..., Master], tmp_path: Path
) -> None:
    """A search method waits for it, for example."""
    session = Session(MasterFinder(str(tmp_path / "master.json")), retries=0)
    with pytest.raises(MasterUnreachable, match="no master is known"):
        session.get("/")
    master = serve({"/": lambda h, b: say(h, 200, {"here": True})})
    (tmp_path / "master.json").write_text(json.dumps({"url": master.url}))
    assert session.get("/") == {"here": True}
    session.close()


def test_addresses_and_tokens_are_found_in_their_order(tmp_path: Any) -> None:
    env = {"DETHPC_HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert home(env) == tmp_path / "home"
    assert master_url(env) is None and token(None, env) is None
    home(env).mkdir()
    (home(env) / "master.json").write_text(json.dumps({"url": "http://login1:1234"}))
    (home(env) / "token").write_text("own\n")
    assert master_url(env) == "http://login1:1234"
    assert token(None, env) == "own"
    env["DET_MASTER"] = "elsewhere"
    assert master_url(env) == "http://elsewhere:8080"
    assert token(None, env) is None, "the owner's key must not go to a foreign master"
    assert token("http://localhost:1234", env) == "own"
    assert token("http://localhost:1235", env) is None, "on a login node that may be anybody"
    auth_json(env).parent.mkdir(parents=True)
    known = {"masters": {"http://elsewhere:8080": {"active_user": "ada", "tokens": {"ada": "adas"}}}}
    auth_json(env).write_text(json.dumps(known))
    assert token(None, env) == "adas"
    env["DET_USER_TOKEN"] = "mine"
    assert token(None, env) == "mine"


def test_addresses_are_spelled_as_determined_spells_them() -> None:
    assert canonical("login1") == "http://login1:8080"
    assert canonical("https://x/") == "https://x:443"
    assert canonical("http://[::1]:9/p/") == "http://[::1]:9/p"
    assert canonical("HTTP://Login1") == "http://login1:80" and canonical("Https://login1") == "https://login1:443"
    assert canonical("m\u00fcller:1/a%20b") == "http://m\u00fcller:1/a%20b"


@pytest.mark.parametrize(
    "address, shown",
    [
        *((same, same) for same in ("http://", "ftp://x", "unix:///x", "://x", "", "http:///x", ":80", "http://[::1")),
        *((same, same) for same in ("x:0", "x:abc", "http://x:99999", "x:-1", "http://x:80:80", "x?y", "x#y", "x?")),
        *((same, same) for same in ("x/a b", "x/\u00e4", "a b", "x\n", "x/\ty", " x", "@x")),
        ("http://a@x", "http://********@x"),
        ("http://:secret@x", "http://:********@x"),
        ("http://me:secret@x:80", "http://me:********@x:80"),
        ("me:secret@x:80", "me:********@x:80"),
    ],
)
def test_what_is_no_address_is_shown_without_its_password_beside_one_that_is(address: str, shown: str) -> None:
    with pytest.raises(ValueError) as caught:
        canonical(address)
    assert str(caught.value) == f"not a master's address: {shown!r}; expected something like http://login1:8080"


def test_a_stream_that_is_still_read_leaves_the_next_request_a_connection_of_its_own(
    serve: Callable[..., Master],
) -> None:
    master = serve({"/s": lambda h, b: say(h, 200, b'{"n":1}\n{"n":2}\n'), "/x": lambda h, b: say(h, 200, {})})
    session = Session(master.url)
    session.get("/x")
    stream = session.stream("/s")
    assert next(stream) == {"n": 1}
    assert session.get("/x") == {}
    assert list(stream) == [{"n": 2}]
    assert len(master.connections) == 2
    session.get("/x")
    assert len(master.connections) == 2
    session.close()


def test_a_stream_that_breaks_off_is_an_error_and_not_an_end() -> None:
    server = socket.create_server(("127.0.0.1", 0))

    def answer_half() -> None:
        connection, _ = server.accept()
        connection.recv(65536)
        connection.sendall(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\ne\r\n{"result": 1}\n\r\n')
        connection.close()

    threading.Thread(target=answer_half, daemon=True).start()
    items = Session(f"http://127.0.0.1:{server.getsockname()[1]}", "token").stream("/x")
    assert next(items) == 1
    with pytest.raises(MasterUnreachable):
        next(items)
    server.close()


def test_where_the_slots_of_many_trials_went_comes_page_by_page() -> None:
    def page(trial: int) -> Dict[str, Any]:
        return {"total": {}, "trials": [{"trialId": trial}], "pagination": {"endIndex": trial, "total": 2}}

    answers = Answers((200, page(1)), (200, page(2)))
    found = experiments.goodput(Session(answers, "secret"), 7)
    assert found == {"total": {}, "trials": [{"trialId": 1}, {"trialId": 2}]}
    assert "offset=1" in answers.asked[1][1] and answers.left == []
