"""Where the site logs in by munge: a real munged vouches for owner and master, and nobody else gets the owner's key."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dethpc.cli import main
from dethpc.client import Session, address
from dethpc.client.munge import PATH, Munge, Untrusted, answer, question
from dethpc.client.proof import OwnerToken, whereabouts
from dethpc.client.transport import HttpTransport
from dethpc.config.site import SiteConfig
from dethpc.domain.records import TokenKind
from dethpc.errors import Refused, Unauthorized
from dethpc.master.http.auth import Auth
from dethpc.master.http.munge_login import MungeLogin, munge_of
from tests.master.conftest import Served
from tests.waiting import wait_until

ME = os.geteuid()
NOBODY = 65534
as_root = pytest.mark.skipif(ME != 0, reason="only root can be another user")


@pytest.fixture(scope="module")
def munge() -> Iterator[Munge]:
    """A munged of this test's own, which other users reach, too."""
    folder = Path(tempfile.mkdtemp(prefix="munge-"))
    folder.chmod(0o755)
    key = folder / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    files = [f"--{name}-file={folder}/{name}" for name in ("key", "pid", "log", "seed")]
    daemon = subprocess.Popen(
        ["munged", "--foreground", "--force", f"--socket={folder}/socket", *files], stderr=subprocess.DEVNULL
    )
    try:
        wait_until((folder / "socket").exists)
        yield Munge(str(folder / "socket"))
    finally:
        daemon.terminate()
        daemon.wait()
        shutil.rmtree(folder)


@pytest.fixture
def site(munge: Munge) -> SiteConfig:
    return SiteConfig.model_validate({"master": {"auth": "munge", "munge_socket": path_of(munge)}})


def path_of(munge: Munge) -> str:
    return munge._options[0].partition("=")[2]


def as_nobody(munge: Munge, *argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    line = ["setpriv", f"--reuid={NOBODY}", "--clear-groups", *argv, f"--socket={path_of(munge)}"]
    return subprocess.run(line, text=True, capture_output=True, check=False, **options)


class Fake:
    """A server in the master's place that says what ``says`` makes of a request's method and body."""

    def __init__(self, says: Callable[[str, dict[str, Any]], dict[str, Any]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                content = json.dumps(says(self.command, json.loads(self.rfile.read(length) or "{}"))).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = ("127.0.0.1", self.server.server_address[1])
        self.url = f"http://127.0.0.1:{self.address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def __enter__(self) -> Fake:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def home_of(served: Served, munge: Munge) -> Path:
    """Where ``det`` finds that this master logs in by munge."""
    served.daemon.lease.publish(served.url, None, path_of(munge))
    return served.daemon.installation.home.root


def credential(served: Served, munge: Munge, server_of: Served | None = None) -> str:
    """As the owner's client makes one, for this server."""
    theirs = Session(served.url).get(PATH)["nonce"]
    host, _, port = (server_of or served).url.removeprefix("http://").partition(":")
    return munge.encode(question(theirs, "ab" * 32, whereabouts((host, int(port)))), ME)


def test_the_owner_logs_in_and_no_file_holds_the_key(served: Served, munge: Munge) -> None:
    home = home_of(served, munge)
    token = address.token(env={"DETHPC_HOME": str(home), "DET_MASTER": served.url})
    assert isinstance(token, OwnerToken)
    assert Session(served.url, token).get("/api/v1/me")["user"]["username"] == served.owner
    done = CliRunner().invoke(main, ["user", "whoami"], env={"DETHPC_HOME": str(home), "DET_MASTER": served.url})
    assert done.exit_code == 0 and served.owner in done.output
    assert not (home / "token").exists()
    assert all(token.encode() not in path.read_bytes() for path in home.rglob("*") if path.is_file())


def test_a_token_file_opens_nothing_there(served: Served) -> None:
    served.daemon.installation.home.token.write_text("left-by-another-release\n")
    with pytest.raises(Unauthorized):
        Session(served.url, OwnerToken("left-by-another-release")).get("/api/v1/me")


def test_what_the_owner_made_there_outlives_the_masters_key(served: Served, munge: Munge) -> None:
    """The next master has another one, which is no new token file."""
    before, services = served.daemon.services.auth, served.daemon.services
    made, _ = before.make_token(TokenKind.ACCESS, None)
    after = Auth(services.installation.home.root, before.owner, services.store, services.records, munge)
    assert after.principal(made).is_owner


def test_who_comes_while_others_log_in_is_asked_to_come_again(served: Served, munge: Munge) -> None:
    places = served.daemon.services.auth.munge._places
    with places, places:
        with pytest.raises(Refused, match="others log in just now"):
            Session(served.url).post(PATH, {"credential": credential(served, munge)})
        threading.Timer(0.6, places.release).start()
        assert isinstance(HttpTransport(served.url).owner_token(munge), OwnerToken)
        places.acquire()


def test_a_credential_is_good_once(served: Served, munge: Munge) -> None:
    mine = credential(served, munge)
    stranger = Session(served.url)
    assert stranger.post(PATH, {"credential": mine})["credential"]
    with pytest.raises(Unauthorized, match="(?i)replayed"):
        stranger.post(PATH, {"credential": mine})


def test_a_nonce_is_good_once_and_comes_from_this_master(munge: Munge) -> None:
    """Whatever munged remembers: another one may decode for a master that moved."""
    master, another = MungeLogin("key", munge), MungeLogin("key", munge)
    nonce = master.nonce()

    def ask(nonce: str) -> str:
        return master.answer(munge.encode(question(nonce, "ab", "here"), ME), "here")

    assert munge.decode(ask(nonce)) == (ME, answer(nonce, "ab", "here") + "key")
    for again in (nonce, another.nonce(), nonce.replace("-", "0-", 1), ""):
        with pytest.raises(Unauthorized, match="another login"):
            ask(again)


def test_another_users_credential_is_refused(munge: Munge) -> None:
    """By a master whose owner somebody else is."""
    master = MungeLogin("key", munge, owner=ME + 1)
    with pytest.raises(Unauthorized, match=f"munge says that you are {ME}"):
        master.answer(munge.encode(question(master.nonce(), "ab", "here"), ME), "here")


@as_root
def test_another_user_gets_in_by_no_credential(served: Served, munge: Munge) -> None:
    theirs = Session(served.url).get(PATH)["nonce"]
    host, _, port = served.url.removeprefix("http://").partition(":")
    says = question(theirs, "ab" * 32, whereabouts((host, int(port))))
    made = as_nobody(munge, "munge", input=says)
    assert made.returncode == 0, made.stderr
    with pytest.raises(Unauthorized, match=f"munge says that you are {NOBODY}"):
        Session(served.url).post(PATH, {"credential": made.stdout.strip()})
    caught = as_nobody(munge, "unmunge", input=credential(served, munge))
    assert caught.returncode != 0 and "I am your owner" not in caught.stdout
    given = Session(served.url).post(PATH, {"credential": credential(served, munge)})["credential"]
    caught = as_nobody(munge, "unmunge", input=given)
    assert caught.returncode != 0 and "I am your master" not in caught.stdout


def test_a_relay_gets_nothing(served: Served, munge: Munge) -> None:
    """It passes on what both sides say, byte by byte; the client's credential names the relay's address."""
    host, _, port = served.url.removeprefix("http://").partition(":")
    seen: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def pass_on(source: socket.socket, to: socket.socket) -> None:
        while data := source.recv(1 << 16):
            seen.append(data)
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)

    def relay() -> None:
        with listener.accept()[0] as client, socket.create_connection((host, int(port))) as master:
            back = threading.Thread(target=pass_on, args=(master, client))
            back.start()
            pass_on(client, master)
            back.join()

    thread = threading.Thread(target=relay)
    thread.start()
    with listener, pytest.raises(Unauthorized, match="made for another server"):
        HttpTransport(f"http://127.0.0.1:{listener.getsockname()[1]}").owner_token(munge)
    thread.join()
    assert b"MUNGE:" in b"".join(seen)
    stolen = next(word for word in b"".join(seen).decode("latin-1").split('"') if word.startswith("MUNGE:"))
    with pytest.raises(Unauthorized):
        Session(served.url).post(PATH, {"credential": stolen})


def test_a_server_that_cannot_answer_as_the_owner_is_no_master(munge: Munge) -> None:
    """It gives back what it was given, or what was not asked for."""
    given: list[str] = []

    def echo(method: str, body: dict[str, Any]) -> dict[str, Any]:
        given.append(body.get("credential", ""))
        return {"nonce": "ab"} if method == "GET" else {"credential": given[-1]}

    with Fake(echo) as fake, pytest.raises(Unauthorized, match="is not your master"):
        HttpTransport(fake.url).owner_token(munge)
    old = munge.encode(answer("ab", "cd" * 32, "elsewhere") + "key", ME)
    for said in ({"credential": old}, {"credential": "MUNGE:AAAA:"}, {}, {"credential": ["x"]}):
        with Fake(lambda method, _, said=said: _nonce_or(method, said)) as fake, pytest.raises(Unauthorized):
            HttpTransport(fake.url).owner_token(munge)
    with Fake(lambda *_: {"nonce": "a\nb"}) as fake, pytest.raises(Unauthorized, match="without a nonce"):
        HttpTransport(fake.url).owner_token(munge)


def _nonce_or(method: str, said: dict[str, Any]) -> dict[str, Any]:
    return {"nonce": "ab"} if method == "GET" else said


@as_root
def test_another_users_answer_is_no_masters(munge: Munge) -> None:
    """As root, who can decode what is for root, and has munge vouch for somebody else."""

    def says(method: str, body: dict[str, Any]) -> dict[str, Any]:
        if method == "GET":
            return {"nonce": "ab"}
        _, theirs, mine, where = munge.decode(body["credential"]).payload.split("\n", 3)
        made = as_nobody(munge, "munge", f"--restrict-uid={ME}", input=answer(theirs, mine, where) + "a key of theirs")
        return {"credential": made.stdout.strip()}

    with Fake(says) as fake, pytest.raises(Unauthorized, match=f"it runs as user {NOBODY}"):
        HttpTransport(fake.url).owner_token(munge)


def test_without_munge_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = Munge(str(tmp_path / "nothing"))
    with pytest.raises(Untrusted, match="(?i)munged"):
        nowhere.encode("x", ME)
    site = SiteConfig.model_validate({"master": {"auth": "munge"}})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match="master.auth: munge, and munge does not work here: there is no command munge"):
        munge_of(site.master)


def test_a_master_that_is_not_there_is_found_out_later(tmp_path: Path, munge: Munge) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "master.json").write_text(json.dumps({"url": f"http://127.0.0.1:{port}", "munge": path_of(munge)}))
    assert address.token(f"http://127.0.0.1:{port}", {"DETHPC_HOME": str(tmp_path)}) is None
