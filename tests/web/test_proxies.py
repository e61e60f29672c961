"""The pages where HPC users meet them: behind a real nginx, under a path and by a Unix socket, and as an app of Open OnDemand under
a real Passenger."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import User, make_user, take_down
from tests.ports import free_port
from tests.waiting import LONG_ENOUGH, wait_until
from tests.web.test_browser import chromium  # noqa: F401

APP = Path(__file__).parents[2] / "site-configs/open-ondemand"


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """Their master listens on a Unix socket, too."""
    user = make_user(tmp_path_factory.mktemp("px"), DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="1")
    user.home.mkdir(mode=0o700)
    (user.home / "site.yaml").write_text("master: {socket: master.sock}\n")
    single = {"name": "single", "metric": "validation_loss"}
    assert user.create(name="proxied", hyperparameters={"lr": 0.1, "steps": 3}, searcher=single) == 1
    user.wait_state(1, "COMPLETED")
    yield user
    take_down(user)


@pytest.fixture(scope="module")
def nginx_port() -> Iterator[int]:
    with free_port() as port:
        yield port


@pytest.fixture(scope="module")
def apache_port() -> Iterator[int]:
    with free_port() as port:
        yield port


@pytest.fixture(scope="module")
def nginx(user: User, nginx_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address under which nginx shows the pages."""
    program = needed("nginx", "nginx")
    folder, port = tmp_path_factory.mktemp("nginx"), nginx_port
    for name in ("body", "proxy", "fastcgi", "uwsgi", "scgi"):
        (folder / name).mkdir()
    paths = "\n".join(f"{name}_temp_path {folder}/{name};" for name in ("proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(f"""
        daemon off; pid {folder}/pid; error_log stderr; {"user root;" if os.geteuid() == 0 else ""} worker_processes 1;
        events {{}}
        http {{
            access_log off; client_body_temp_path {folder}/body; {paths}
            server {{
                listen 127.0.0.1:{port};
                location /clusters/ai/ {{
                    proxy_pass http://unix:{user.home}/master.sock:/;
                    proxy_http_version 1.1;
                    proxy_set_header Host $http_host;
                    proxy_set_header Connection "";
                    proxy_set_header X-Forwarded-Proto $scheme;
                }}
            }}
        }}""")
    with running([program, "-p", str(folder), "-c", "nginx.conf"], port, folder / "log"):
        yield f"http://127.0.0.1:{port}/clusters/ai/"


@pytest.fixture(scope="module")
def ondemand(user: User, apache_port: int) -> Iterator[str]:
    """The address under which Passenger, in Apache as Debian has it, shows the app."""
    apache, node = needed("apache2", "apache2"), needed("node", "nodejs")
    modules = Path("/usr/lib/apache2/modules")
    if not (modules / "mod_passenger.so").exists():
        pytest.skip("no Passenger on this machine (Debian: apt install libapache2-mod-passenger)")
    folder, port = Path(tempfile.mkdtemp(prefix="dethpc-ood-")), apache_port  # Apache's own user has to get there
    folder.chmod(0o755)
    shutil.copytree(APP, folder / "app")
    words = " ".join(
        f"{k}='{v}'" for k, v in user.env.items() if k in ("DETHPC_HOME", "DETHPC_SCHEDULER", "PYTHONPATH", "PATH")
    )
    (folder / "app/det").write_text(
        f'#!/bin/bash\necho "Welcome to this cluster"\n{words} exec python -m dethpc.cli "$@"\n'
    )
    (folder / "public").mkdir()
    load = "\n".join(
        f"LoadModule {name}_module {modules}/mod_{name}.so"
        for name in ("mpm_event", "authz_core", "alias", "passenger")
        if (modules / f"mod_{name}.so").exists()
    )
    (folder / "apache.conf").write_text(f"""
        {load}
        ServerRoot {folder}
        ServerName 127.0.0.1
        Listen 127.0.0.1:{port}
        PidFile {folder}/pid
        ErrorLog {folder}/error.log
        {"User nobody" if os.geteuid() == 0 else ""}
        {"Group nogroup" if os.geteuid() == 0 else ""}
        DocumentRoot {folder}/public
        PassengerRoot /usr/lib/ruby/vendor_ruby/phusion_passenger/locations.ini
        PassengerInstanceRegistryDir {folder}
        PassengerNodejs {node}
        PassengerDefaultUser {getpass.getuser()}
        PassengerUserSwitching off
        PassengerLogFile {folder}/passenger.log
        PassengerDisableSecurityUpdateCheck on
        PassengerDisableAnonymousTelemetry on
        <Directory {folder}>
            Require all granted
        </Directory>
        Alias /pun/sys/dethpc {folder}/app/public
        <Location /pun/sys/dethpc>
            PassengerBaseURI /pun/sys/dethpc
            PassengerAppRoot {folder}/app
            PassengerAppType node
            PassengerStartupFile app.js
        </Location>""")
    (folder / "app/public").mkdir()
    try:
        with running([apache, "-DFOREGROUND", "-f", str(folder / "apache.conf")], port, folder / "error.log"):
            yield f"http://127.0.0.1:{port}/pun/sys/dethpc"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def needed(name: str, package: str) -> str:
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if path is None:
        pytest.skip(f"no {name} on this machine (Debian: apt install {package})")
    return path


class running:
    """A server in the foreground, from when it listens until it is left."""

    def __init__(self, command: list[str], port: int, log: Path) -> None:
        self._command, self._port, self._log = command, port, log

    def __enter__(self) -> None:
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        wait_until(self._listens)

    def _listens(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        try:
            socket.create_connection(("127.0.0.1", self._port), 1).close()
        except OSError:
            return False
        return True

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:  # noqa: F811
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    page, trouble = context.new_page(), []
    page.set_default_timeout(LONG_ENOUGH * 1000)
    page.on("console", lambda m: trouble.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    yield page
    context.close()
    assert trouble == []


def looks_and_acts(user: User, page: Any, root: str, name: str) -> None:
    """A person reads, changes something, and sees by itself what another one changed: forms, streams and links go through."""
    page.goto(f"{root}experiments")
    page.click("#experiment-1 a >> nth=1")
    page.wait_for_url(f"{root}experiments/1")
    page.wait_for_selector("#curves canvas")
    page.fill("[name=notes]", f"seen by {name}")
    page.click("text=Save")
    page.wait_for_function(
        "said => document.querySelector('[name=notes]')?.defaultValue === said", arg=f"seen by {name}"
    )
    assert user.session().get("/api/v1/experiments/1")["experiment"]["notes"] == f"seen by {name}"
    user.session().patch("/api/v1/experiments/1", {"name": f"named by {name}"})
    page.wait_for_selector(f"h1:text('named by {name}')")  # a stream that a proxy keeps back would not say so
    page.goto(f"{root}trials/1/logs")
    page.wait_for_selector("#log .line")
    page.goto(f"{root}experiments")
    page.click("text=Log out")
    page.wait_for_url(f"{root}login")


def test_a_master_listens_on_a_socket_that_is_its_owners_alone(user: User) -> None:
    file = user.home / "master.sock"
    assert stat.S_ISSOCK(file.stat().st_mode) and file.stat().st_mode & 0o777 == 0o600
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(file))
        connection.sendall(b"GET /api/v1/master HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert connection.makefile("rb").readline().split()[1] == b"200"
    assert json.loads(user.det("ui", "--json"))["socket"] == str(file)


def test_everything_works_behind_nginx_under_a_path(user: User, nginx: str, page: Any) -> None:
    code = json.loads(user.det("ui", "--json"))["url"].partition("code=")[2]
    page.goto(f"{nginx}det/enter?code={code}")
    page.wait_for_url(f"{nginx}det/experiments")
    looks_and_acts(user, page, f"{nginx}det/", "nginx")


def test_open_ondemand_starts_the_master_logs_in_and_shows_the_pages(user: User, ondemand: str, page: Any) -> None:
    user.det("master", "down")
    page.goto(f"{ondemand}/")
    page.wait_for_url(f"{ondemand}/det/experiments")
    looks_and_acts(user, page, f"{ondemand}/det/", "ondemand")
    cookies = [cookie["path"] for cookie in page.context.cookies()]
    assert all(path.startswith("/pun/sys/dethpc/det") for path in cookies), "no other app of the portal is shown it"


def test_a_master_that_goes_and_comes_is_found_again(user: User, ondemand: str, page: Any) -> None:
    page.goto(f"{ondemand}/")
    page.wait_for_url(f"{ondemand}/det/experiments")
    page.goto("about:blank")  # a page that is still there asks on, and its browser tells of each answer 502
    user.det("master", "down")
    page.goto(f"{ondemand}/")
    page.wait_for_url(f"{ondemand}/det/experiments")
    for path in ("api/v1/experiments", "det/../api/v1/master"):
        with urllib.request.urlopen(f"{ondemand}/{path}", timeout=LONG_ENOUGH) as answer:
            assert "det/enter?code=" in answer.url or "det/experiments" in answer.url, "the API is not passed on"
