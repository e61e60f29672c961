"""The owner's token, and a run's, go to the owner's master alone, whoever listens where that one was."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dethpc.client import Session
from dethpc.client.proof import PATH, OwnerToken, RunToken, proof
from dethpc.errors import MasterError, MasterUnreachable, Refused, Unauthorized
from dethpc.master.http.auth import mint_run_token
from tests.master.conftest import Served, experiment, run_of, task_of, trial
from tests.waiting import LONG_ENOUGH

Answer = Callable[[str], bytes]


class Stranger:
    """A server that answers every request with what ``answer`` makes of its path, and keeps the tokens and bodies
    that it is given."""

    def __init__(self, answer: Answer, port: int = 0) -> None:
        self.tokens: list[str] = []
        self.paths: list[str] = []
        self.bodies: list[bytes] = []
        stranger = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                stranger.paths.append(self.path)
                stranger.tokens += self.headers.get_all("Authorization", [])
                content = answer(self.path)
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def do_POST(self) -> None:
                stranger.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def stop(self) -> None:
        if not self.thread.is_alive():
            return
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def stranger() -> Iterator[Callable[..., Stranger]]:
    all_of_them: list[Stranger] = []

    def start(answer: Answer, port: int = 0) -> Stranger:
        all_of_them.append(Stranger(answer, port))
        return all_of_them[-1]

    yield start
    for one in all_of_them:
        one.stop()


def test_the_masters_proof_is_accepted_under_each_of_its_addresses(served: Served) -> None:
    for url in (served.url, served.url.replace("127.0.0.1", "localhost")):
        session = Session(url, OwnerToken(served.token), retries=0)
        assert session.get("/api/v1/me")["user"]["username"] == served.owner
        assert list(session.stream("/api/v1/master/logs", {"limit": 1})) is not None
        session.close()


def test_a_nonce_is_a_number_of_full_length(served: Served) -> None:
    for nonce in ("", "00", "x" * 64, "0" * 63 + "\n"):
        with pytest.raises(Refused, match="64 hexadecimal digits"):
            Session(served.url, retries=0).get(PATH, {"nonce": nonce})


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"proof": null}', b'{"proof": "00"}', b"x" * 100_000])
def test_who_cannot_answer_gets_no_token(stranger: Callable[..., Stranger], content: bytes) -> None:
    there = stranger(lambda path: content)
    session = Session(there.url, OwnerToken("secret"), retries=0)
    for _ in range(2):
        with pytest.raises(Unauthorized, match="does not prove to be your master"):
            session.get("/api/v1/me")
    with pytest.raises(Unauthorized, match="does not prove"):
        next(session.stream("/api/v1/master/logs"))
    assert there.tokens == [] and all(path.startswith(PATH) for path in there.paths)


def run_token(served: Served) -> RunToken:
    run = run_of(trial(1))
    served.put([experiment(1), trial(1), task_of(trial(1))])
    token, _ = mint_run_token(run.id)
    served.as_run(run, token)
    return RunToken(token)


def test_the_master_proves_itself_to_its_runs(served: Served) -> None:
    token = run_token(served)
    for kind in (RunToken, str):
        session = Session(served.url, kind(token), retries=0)
        assert session.get("/api/v1/trials/1")["trial"]["id"] == 1
        session.close()
    with pytest.raises(MasterUnreachable, match="does not prove"):
        Session(served.url, RunToken(f"run:{token.run}:another"), retries=0).get("/api/v1/trials/1")


def test_who_asks_for_proofs_does_not_learn_which_runs_exist(served: Served) -> None:
    existing = run_token(served).run
    for run in (existing, "9.9.9", "x\0", "'", "9" * 70):
        answer = Session(served.url, retries=0).get(PATH, {"nonce": "0" * 64, "run": run})
        assert len(answer["proof"]) == 64 and list(answer) == ["proof"]


def test_the_real_masters_proof_is_no_good_elsewhere(served: Served, stranger: Callable[..., Stranger]) -> None:
    def relay(path: str) -> bytes:
        with urllib.request.urlopen(served.url + path, timeout=LONG_ENOUGH) as answer:
            content: bytes = answer.read()
        return content

    between = stranger(relay)
    with pytest.raises(Unauthorized, match="does not prove"):
        Session(between.url, OwnerToken(served.token), retries=0).get("/api/v1/me")
    assert between.tokens == [] and len(between.paths) == 1
    with pytest.raises(MasterUnreachable, match="does not prove"):
        Session(between.url, run_token(served), retries=0).get("/api/v1/trials/1")
    assert between.tokens == [] and len(between.paths) == 2


def test_a_proof_is_good_for_one_address_on_one_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def proofs() -> list[str]:
        return [proof("secret", "0" * 64, address) for address in ADDRESSES]

    here = proofs()
    over_tls = {proof("secret", "0" * 64, address, shown) for address in ADDRESSES for shown in ("a" * 64, "b" * 64)}
    assert len(over_tls) == 2 and not over_tls & set(here)  # there it is good for one certificate
    assert len(set(here)) == len(ADDRESSES)
    assert proof("secret", "0" * 64, ("::ffff:10.0.0.1", 80)) == proof("secret", "0" * 64, ("10.0.0.1", 80))
    (tmp_path / "boot_id").write_text("another machine's")
    monkeypatch.setattr("dethpc.client.proof.BOOT_ID", str(tmp_path / "boot_id"))
    differs = [mine != theirs for mine, theirs in zip(here, proofs())]
    assert differs == [True, True, True, False, False]  # loopback is an address on every machine


ADDRESSES = [("127.0.0.1", 80), ("127.0.1.1", 80), ("::1", 80), ("10.0.0.1", 80), ("10.0.0.1", 81)]


def test_each_connection_is_proved_anew(stranger: Callable[..., Stranger]) -> None:
    """Somebody takes the port of a master that died while a client was using it."""

    def honest(path: str) -> bytes:
        nonce = path.rpartition("=")[2]
        return json.dumps(
            {"proof": proof("secret", nonce, ("127.0.0.1", port))} if path.startswith(PATH) else {}
        ).encode()

    master = stranger(honest)
    port = master.port
    session = Session(master.url, OwnerToken("secret"), retries=2)
    session.get("/api/v1/me")
    assert master.tokens == ["Bearer secret"]
    master.stop()
    session.close()  # as the kernel does when the process is gone
    taker = stranger(lambda path: b"{}", port)
    with pytest.raises(MasterError, match="does not prove"):
        session.get("/api/v1/me")
    assert taker.tokens == []
