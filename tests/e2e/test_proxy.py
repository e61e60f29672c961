"""A service of a running trial, reached through the master's proxy on this machine."""

from __future__ import annotations

import contextlib
import getpass
import http.client
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets import Subprotocol
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect as websocket

from dethpc.exec.link import Link
from dethpc.rundir.secret import Secret
from tests.e2e.conftest import User, processes_with
from tests.ports import free_port
from tests.waiting import LONG_ENOUGH, wait_until

SERVES = """
import os, sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, RedirectResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute


async def echo(request):
    body = await request.body()
    headers = "".join(f"{name}: {value}\\n" for name, value in request.headers.items())
    response = PlainTextResponse(f"{request.method} {request.url.path}?{request.url.query}\\n{headers}\\n{len(body)} bytes")
    response.set_cookie("own", "1")
    return response


async def move(request):
    return RedirectResponse("/there?x=1")


async def talk(socket):
    await socket.accept(subprotocol=(socket.scope["subprotocols"] or [None])[0])
    async for message in socket.iter_bytes():
        if message == b"end":
            await socket.close(4321, "as it wished")
            return
        await socket.send_bytes(message[::-1])


routes = [Route("/move", move), WebSocketRoute("/talk", talk), Route("/{path:path}", echo, methods=["GET", "POST", "PUT"])]
uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=int(sys.argv[1]), ws="websockets-sansio", log_level="warning")
"""


class Service:
    """A trial that serves ``SERVES`` at ``port``."""

    def __init__(self, user: User, port: int, experiment: int) -> None:
        self.user, self.port, self.experiment = user, port, experiment
        (trial,) = user.trials(experiment)
        self.task: str = trial["taskId"]
        self.path = f"/proxy/{self.task}:{port}"
        self.run = f"{self.task}.1"

    def connection(self) -> http.client.HTTPConnection:
        where = urlsplit(self.user.master()["url"])
        return http.client.HTTPConnection(str(where.hostname), where.port)

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {(self.user.home / 'token').read_text().strip()}"}

    def get(self, path: str, headers: dict[str, str] | None = None, method: str = "GET", body: Any = None) -> Answer:
        with closing(self.connection()) as connection:
            connection.request(method, self.path + path, body=body, headers=self.bearer if headers is None else headers)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read().decode())


@contextlib.contextmanager
def running(user: User, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """``det`` with these words, in the background."""
    command = [user.python, "-m", "dethpc.cli", *words]
    with subprocess.Popen(
        command, cwd=user.folder, env=user.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)


def listening(port: int) -> bool:
    def answers() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return True
        return False

    wait_until(answers)
    return True


class Answer:
    def __init__(self, status: int, headers: Any, text: str) -> None:
        self.status, self.headers, self.text = status, headers, text


def serving(user: User, port: int, *, proxy_tcp: bool = False, of: type[Service] = Service) -> Service:
    """A new trial that serves, once it does."""
    user.write("context/serve.py", SERVES)
    environment = {"proxy_ports": [{"proxy_port": port, "proxy_tcp": proxy_tcp}]}
    experiment = user.create(entrypoint=f"python3 serve.py {port}", environment=environment)
    wait_until(lambda: user.trials(experiment))
    service = of(user, port, experiment)
    wait_until(lambda: service.get("/").status == 200)
    return service


@pytest.fixture
def service(user: User) -> Iterator[Service]:
    with free_port() as port:
        service = serving(user, port)
        yield service
        user.det("experiment", "kill", str(service.experiment))


def test_a_request_reaches_the_trial_without_the_master_s_token(service: Service) -> None:
    answer = service.get(
        "/a%2Fb?c=d%20e", {**service.bearer, "Cookie": "dethpc_session_x=1", "X-Own": "2"}, "PUT", b"x" * 100_000
    )
    assert answer.status == 200, answer.text
    first, *lines = answer.text.splitlines()
    assert first == "PUT /a/b?c=d%20e"
    assert lines[-1] == "100000 bytes"
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    assert fields["x-own"] == "2"
    assert not {"authorization", "cookie"} & set(fields)
    assert fields["x-forwarded-prefix"] == service.path
    assert "set-cookie" not in answer.headers
    assert service.get("/move").headers["location"] == f"{service.path}/there?x=1"
    assert service.get("/", {}).status == 401
    assert Path(service.user.home / "runs").exists()


def test_a_websocket_is_carried_with_its_subprotocol_and_its_end(service: Service) -> None:
    where = urlsplit(service.user.master()["url"])
    url = f"ws://{where.netloc}{service.path}/talk"
    with websocket(url, additional_headers=service.bearer, subprotocols=[Subprotocol("own")], max_size=None) as stream:
        assert stream.subprotocol == "own"
        message = os.urandom(3 << 20)
        stream.send(message)
        assert stream.recv() == message[::-1]
        stream.send(b"end")
        with pytest.raises(ConnectionClosed):
            while stream.recv():
                pass
        assert (stream.close_code, stream.close_reason) == (4321, "as it wished")


def test_an_open_connection_ends_with_its_users_role(service: Service) -> None:
    user = service.user
    user.det("user", "create", "grace", "--password", "Correct-horse-1")
    user.det("rbac", "assign-role", "Editor", "-u", "grace")
    token = user.det("token", "create", "grace").split()[-1]
    url = f"ws://{urlsplit(user.master()['url']).netloc}{service.path}/talk"
    headers = {"Authorization": f"Bearer {token}"}
    with websocket(url, additional_headers=headers) as hers, websocket(url, additional_headers=service.bearer) as own:
        hers.send(b"abc")
        assert hers.recv() == b"cba"
        user.det("rbac", "unassign-role", "Editor", "-u", "grace")
        with pytest.raises(ConnectionClosed):
            hers.recv(LONG_ENOUGH)
        own.send(b"abc")
        assert own.recv() == b"cba"


def test_a_tunnel_leads_to_a_port_of_the_trial(service: Service) -> None:
    with free_port() as local, running(service.user, "tunnel", service.task, f"{local}:{service.port}"):
        assert listening(local)
        with closing(http.client.HTTPConnection("127.0.0.1", local)) as connection:
            connection.request("POST", "/direct", body=b"x" * 300_000)
            assert b"300000 bytes" in connection.getresponse().read()


def test_standard_streams_lead_to_a_port_of_the_trial(service: Service) -> None:
    request = "GET /direct HTTP/1.0\r\n\r\n"
    with running(service.user, "tunnel", f"{service.task}:{service.port}") as tunnel:
        assert tunnel.stdin is not None and tunnel.stdout is not None
        tunnel.stdin.write(request.encode())
        tunnel.stdin.flush()
        assert tunnel.stdout.read().startswith(b"HTTP/1.1 200 OK")


def test_a_tunnel_says_what_the_task_does_not_offer(service: Service) -> None:
    service.user.det("tunnel", f"{service.task}:1", code=1)
    what = f"offers no port 1; what it offers: port {service.port}"
    assert what in service.user.errors
    with free_port() as local:
        assert not service.user.det("tunnel", service.task, f"{local}:1", code=1)
    assert what in service.user.errors


def test_a_tunnel_whose_master_is_killed_says_so_and_serves_on_with_the_next(service: Service) -> None:
    user = service.user
    command = [user.python, "-m", "dethpc.cli", "tunnel"]
    streams: dict[str, Any] = {"cwd": user.folder, "env": user.env, "stderr": subprocess.PIPE, "text": True}
    with (
        free_port() as local,
        subprocess.Popen([*command, service.task, f"{local}:{service.port}"], **streams) as ports,
        subprocess.Popen(
            [*command, f"{service.task}:{service.port}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **streams
        ) as standard,
    ):
        try:
            assert listening(local) and standard.stdin is not None and standard.stdout is not None
            standard.stdin.write("GET /direct HTTP/1.1\r\nHost: x\r\n\r\n")
            standard.stdin.flush()
            assert standard.stdout.readline().startswith("HTTP/1.1 200")
            with socket.create_connection(("127.0.0.1", local)) as sock:
                sock.sendall(b"GET /direct HTTP/1.1\r\nHost: x\r\n\r\n")
                assert sock.recv(12) == b"HTTP/1.1 200"
                user.kill_master()
                everything(sock)
            assert standard.wait(LONG_ENOUGH) == 1
            assert standard.stderr is not None
            assert "broke off" in (errors := standard.stderr.read()) and "Traceback" not in errors
            user.det("experiment", "list")

            def answers() -> bool:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", local)) as sock:
                    sock.sendall(b"GET /direct HTTP/1.0\r\n\r\n")
                    return everything(sock).startswith(b"HTTP/1.1 200")
                return False

            wait_until(answers)
        finally:
            ports.send_signal(signal.SIGINT)
        assert ports.stderr is not None and "Traceback" not in ports.stderr.read()


class Browser:
    """A browser without scripts, at the origin of a service: it keeps its cookies."""

    def __init__(self, service: Service, opened: dict[str, Any] | None = None) -> None:
        """``opened``: the ticket; None: one that is valid on this machine."""
        self.service = service
        ticket = opened or service.user.session().post(
            f"/api/v1/tasks/{service.task}/proxy-tickets", {"port": service.port}
        )
        self.url, self.where = ticket["url"], urlsplit(ticket["url"])
        self.cookies: dict[str, str] = {}

    def enter(self) -> Browser:
        assert self.get(f"{self.where.path}?{self.where.query}").headers["location"] == "/"
        return self

    def get(self, path: str, method: str = "GET", **headers: str) -> Answer:
        cookie = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        with closing(self.service.connection()) as connection:
            connection.request(
                method, path, headers={"Host": self.where.netloc, **(cookie if self.cookies else {}), **headers}
            )
            response = connection.getresponse()
            answer = Answer(response.status, response.headers, response.read().decode())
        for cookie_line in answer.headers.get_all("set-cookie") or ():
            name, _, value = cookie_line.partition(";")[0].partition("=")
            self.cookies[name] = value
        return answer


def test_an_origin_opens_its_service_for_a_browser_that_came_by_a_ticket(service: Service) -> None:
    browser = Browser(service)
    assert browser.where.hostname is not None and browser.where.hostname.endswith(".localhost")
    assert browser.get("/").status == 401
    enter = browser.get(f"{browser.where.path}?{browser.where.query}")
    assert (enter.status, enter.headers["location"]) == (303, "/")
    assert {"HttpOnly", "SameSite=lax", "Path=/"} <= {part.strip() for part in enter.headers["set-cookie"].split(";")}
    answer = browser.get("/a%2Fb?c", Authorization="token of the service")
    assert answer.status == 200, answer.text
    assert "GET /a/b?c" in answer.text
    assert "authorization: token of the service" in answer.text
    assert f"host: {browser.where.netloc}" in answer.text
    assert "dethpc_proxy" not in answer.text and "cookie:" not in answer.text
    assert "own" in browser.cookies and "cookie: own=1" in browser.get("/").text
    assert browser.get(f"{browser.where.path}?{browser.where.query}").status == 401, "a ticket is valid once"


def test_an_origin_lets_in_nothing_else_and_leads_nowhere_else(service: Service) -> None:
    browser = Browser(service).enter()
    other = browser.where.netloc.replace("task-", "task-" + "0" * 8, 1)
    other = f"task-{'0' * 32}.{other.partition('.')[2]}"
    assert browser.get("/", Host=other).status == 401
    assert browser.get("/", Origin="http://evil.example").status == 403
    assert browser.get("/", **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}).status == 403
    assert browser.get("/", **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}).status == 200
    netloc = urlsplit(service.user.master()["url"]).netloc
    for path in ("/api/v1/experiments", "/det/", f"{service.path}/", "/api/v1/master"):
        assert browser.get(path).text.startswith(f"GET {path}"), "the service's own path"
        assert browser.get(path, **service.bearer).text.startswith(f"GET {path}"), "the REST API does not answer here"
        at_master = browser.get(path, Host=netloc)
        assert "GET " not in at_master.text and at_master.status in (200, 303, 401), (
            "a cookie of an origin opens no other"
        )
        assert browser.get(path, Host=netloc, **{"X-Forwarded-Host": browser.where.netloc}).text.startswith("GET ")
    assert browser.get("/api/v1/experiments", Host=netloc).status == 401


def test_a_master_that_is_killed_and_started_again_leads_to_the_same_trial_at_the_same_origin(service: Service) -> None:
    browser = Browser(service).enter()
    user, before = service.user, browser.where.hostname
    user.kill_master()
    user.det("experiment", "list")
    wait_until(lambda: service.get("/").status == 200)
    assert browser.get("/").status == 401, "a cookie that another server of the port may have seen is valid no more"
    again = Browser(service).enter()
    assert again.where.hostname == before
    assert again.get("/").status == 200


def test_nothing_is_left_when_the_trial_is_killed(service: Service) -> None:
    user = service.user
    assert processes_with(f"DET_TASK_ID={service.task}")
    user.det("experiment", "kill", str(service.experiment))
    user.wait_state(service.experiment, "CANCELED")
    wait_until(lambda: not relays(user))
    assert service.get("/").status == 400
    assert "has ended" in service.get("/").text
    user.det("tunnel", f"{service.task}:{service.port}", code=1)
    assert "has ended" in user.errors


def relays(user: User) -> list[int]:
    return [
        pid
        for pid in processes_with(str(user.home))
        if b"dethpc.exec.relay" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


PUBLISHED = Path(__file__).parents[2] / ".venv-determined" / "bin" / "python"


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published client is not installed here")
def test_the_published_tunnel_leads_to_a_port_with_proxy_tcp(user: User) -> None:
    with free_port() as port, free_port() as local:
        service = serving(user, port, proxy_tcp=True)
        arguments = [service.user.master()["url"], f"{service.task}:{port}", "--auth", "--listener", str(local)]
        env = {name: value for name, value in user.env.items() if name != "PYTHONPATH"}
        env |= {
            "DET_DEBUG_CONFIG_PATH": str(user.folder),
            "DET_USER": getpass.getuser(),
            "DET_PASS": (user.home / "token").read_text().strip(),
        }
        with subprocess.Popen(
            [PUBLISHED, "-m", "determined.cli.tunnel", *arguments], env=env, cwd=user.folder
        ) as tunnel:
            try:
                assert listening(local)
                with closing(http.client.HTTPConnection("127.0.0.1", local)) as connection:
                    connection.request("POST", "/direct", body=b"x" * 300_000)
                    assert b"300000 bytes" in connection.getresponse().read()
            finally:
                tunnel.kill()
        user.det("experiment", "kill", str(service.experiment))


def test_a_published_port_leads_to_the_first_trial_while_it_is_followed(user: User) -> None:
    user.write("context/serve.py", SERVES)
    with free_port() as port, free_port() as local:
        user.config(entrypoint=f"python3 serve.py {port}", environment={"proxy_ports": [{"proxy_port": port}]})
        with running(user, "e", "create", "config.yaml", "context", "-f", "-p", f"{local}:{port}") as create:
            assert create.stdout is not None
            experiment = int(create.stdout.readline().split()[-1])
            assert listening(local)

            def answers() -> bool:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    with closing(http.client.HTTPConnection("127.0.0.1", local)) as connection:
                        connection.request("GET", "/direct")
                        return connection.getresponse().status == 200
                return False

            wait_until(answers)
            user.det("experiment", "kill", str(experiment))


def test_who_does_not_know_the_secret_gets_nothing_from_the_relay(service: Service) -> None:
    (file,) = service.user.home.glob("runs/*/attempts/0/relay.json")
    port = json.loads(file.read_text())["port"]
    assert file.stat().st_mode & 0o777 == 0o600
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP" not in everything(sock)
    with socket.create_connection(("127.0.0.1", port)) as sock:
        link = Link(sock)
        assert not link.introduce(Secret("a guess", "relay 1.1.1.0"), "proxy", 0)
    token = json.loads((file.parents[2] / "spec.json").read_text())["token"]
    assert service.get("/", {"Authorization": f"Bearer {token}"}).status == 403, "nor does a run's token open it"


def test_a_task_that_names_the_relay_of_another_gets_no_further(user: User) -> None:
    with free_port() as port, free_port() as other:
        first, second = serving(user, port), serving(user, other)
        one, two = (user.home / "runs" / service.run / "attempts" / "0" / "relay.json" for service in (first, second))
        two.unlink()
        two.write_text(one.read_text())
        user.kill_master()  # which remembers what it has read
        user.det("experiment", "list")
        wait_until(lambda: first.get("/").status == 200)
        wait_until(lambda: "is not the relay of task" in second.get("/").text)
        assert second.get("/").status == 502
        log = (user.home / "log" / "master.log").read_text()
        assert "is not the relay of task" in log and " ERROR " not in log, (
            "a task that does not answer is no fault of the master's"
        )
        for service in (first, second):
            user.det("experiment", "kill", str(service.experiment))


def everything(sock: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := sock.recv(1 << 16):
            received += piece
    return received
