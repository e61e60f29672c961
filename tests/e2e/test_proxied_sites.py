"""A service of a trial where the site has TLS, host names of its own for services, or one origin for everything."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.sync.client import connect as websocket

from tests.e2e.conftest import User, make_home, make_user, take_down
from tests.e2e.test_proxy import Browser, Service, listening, running, serving
from tests.ports import free_port
from tests.waiting import wait_until

NAMES = "det.example.org"


def unchecked() -> ssl.SSLContext:
    """Names of origins lead nowhere here, so the certificate is looked at by hand."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class SiteService(Service):
    def connection(self) -> http.client.HTTPConnection:
        where = urlsplit(self.user.master()["url"])
        if where.scheme == "https":
            return http.client.HTTPSConnection(str(where.hostname), where.port, context=unchecked())
        return super().connection()


def ticket(service: Service, host: str) -> dict[str, Any]:
    """As a client gets it that reaches the master by the name ``host``."""
    with closing(service.connection()) as connection:
        path, body = f"/api/v1/tasks/{service.task}/proxy-tickets", json.dumps({"port": service.port})
        port = urlsplit(service.user.master()["url"]).port
        connection.request("POST", path, body, {**service.bearer, "Host": f"{host}:{port}"})
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
        return answer


def talks(service: Service, browser: Browser, path: str) -> bool:
    """Whether a WebSocket carries messages at the browser's origin."""
    master = urlsplit(service.user.master()["url"])
    tls = master.scheme == "https"
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    with websocket(
        f"{'wss' if tls else 'ws'}://{browser.where.netloc}{path}",
        sock=socket.create_connection((str(master.hostname), master.port or 0)),
        ssl=unchecked() if tls else None,
        additional_headers={"Cookie": cookie, "Origin": f"{master.scheme}://{browser.where.netloc}"},
        max_size=None,
    ) as stream:
        message = os.urandom(3 << 20)
        stream.send(message)
        return stream.recv() == message[::-1]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Of a trial whose master has TLS and a wildcard name."""
    user = make_user(tmp_path_factory.mktemp("sites"), DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="4")
    make_home(user)
    configure(user, f'{{tls: on, proxy: {{origins: "*.{NAMES}"}}}}')
    with free_port() as port:
        service = serving(user, port, of=SiteService)
        yield service
        user.det("experiment", "kill", str(service.experiment))
        user.wait_state(service.experiment, "CANCELED")
    take_down(user)


def configure(user: User, master: str) -> None:
    """For the next master, which ``det`` starts."""
    user.det("master", "down", code=None)
    (user.home / "site.yaml").write_text(f"master: {master}\n")


def test_over_tls_a_service_has_an_origin_below_localhost(service: Service) -> None:
    browser = Browser(service)
    assert browser.where.scheme == "https" and str(browser.where.hostname).endswith(".localhost")
    browser.enter()
    answer = browser.get("/a?b")
    assert answer.status == 200 and "x-forwarded-proto: https" in answer.text, answer.text
    assert talks(service, browser, "/talk")
    enter = Browser(service)
    cookie = enter.get(f"{enter.where.path}?{enter.where.query}").headers["set-cookie"]
    assert "Secure" in cookie and "HttpOnly" in cookie


def test_over_tls_bodies_go_both_ways_and_a_tunnel_leads_to_the_port(service: Service) -> None:
    assert "3000000 bytes" in service.get("/", method="PUT", body=b"x" * 3_000_000).text
    user, env = service.user, service.user.env
    elsewhere = {
        "DET_MASTER": user.master()["url"],
        "DET_MASTER_CERT_FILE": "noverify",
        "DET_USER_TOKEN": (user.home / "token").read_text().strip(),
        "DETHPC_HOME": str(user.folder / "elsewhere"),
    }
    try:
        user.env = {**env, **elsewhere}  # no Unix socket of the master
        with free_port() as local, running(user, "tunnel", service.task, f"{local}:{service.port}"):
            assert listening(local)
            with closing(http.client.HTTPConnection("127.0.0.1", local)) as connection:
                connection.request("POST", "/direct", body=b"x" * 300_000)
                assert b"300000 bytes" in connection.getresponse().read()
    finally:
        user.env = env


def test_a_browser_of_the_network_finds_a_service_under_the_site_s_name(service: Service) -> None:
    opened = ticket(service, f"login.{NAMES}")
    assert urlsplit(opened["url"]).hostname == opened["siteHost"]
    assert opened["siteHost"].endswith(f".{NAMES}") and opened["host"].endswith(".localhost")
    browser = Browser(service, opened=opened).enter()
    answer = browser.get("/a?b")
    assert f"host: {browser.where.netloc}" in answer.text and answer.status == 200
    assert talks(service, browser, "/talk")
    port = browser.where.port
    assert browser.get("/", Host=f"task-{'0' * 32}.{NAMES}:{port}").status == 401
    assert browser.get("/api/v1/experiments", Host=f"login.{NAMES}:{port}").status == 401
    assert browser.get("/", Origin=f"https://login.{NAMES}:{port}").status == 403


def test_where_all_share_one_origin_a_cookie_opens_the_service_below_its_path_alone(service: Service) -> None:
    configure(service.user, "{tls: off, proxy: {origins: shared}}")
    service.user.det("experiment", "list")
    wait_until(lambda: service.get("/").status == 200)
    browser = Browser(service)
    assert browser.where.path == f"{service.path}/.dethpc/enter"
    assert browser.get(f"{service.path}/").status == 401
    enter = browser.get(f"{browser.where.path}?{browser.where.query}")
    assert (enter.status, enter.headers["location"]) == (303, f"{service.path}/")
    assert f"Path={service.path}/" in enter.headers["set-cookie"]
    answer = browser.get(f"{service.path}/a?b")
    assert answer.text.startswith("GET /a?b") and f"x-forwarded-prefix: {service.path}" in answer.text
    assert f"Path={service.path}/" in answer.headers["set-cookie"]
    assert browser.get(f"{service.path}/move").headers["location"] == f"{service.path}/there?x=1"
    assert talks(service, browser, f"{service.path}/talk")
    assert browser.get("/api/v1/experiments").status == 401
    assert browser.get(f"/proxy/{service.task}:1/").status in (401, 404)
    assert browser.get(f"{service.path}/", Origin="http://evil.example").status == 403
    used = browser.get(f"{browser.where.path}?{browser.where.query}")
    assert used.status == 401 and "open the task once more" in used.text and "det ui" not in used.text
