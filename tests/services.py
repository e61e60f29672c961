"""Real clients of what tasks serve: HTTP over a Unix socket or through a proxy, a Jupyter kernel's WebSocket, ssh."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPMessage
from pathlib import Path
from types import MappingProxyType
from typing import Any

import websocket
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.waiting import LONG_ENOUGH


def unix(path: Path) -> Callable[[], socket.socket]:
    """What connects to the Unix socket."""

    def connect() -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(LONG_ENOUGH)
        connection.connect(str(path))
        return connection

    return connect


@dataclass
class Service:
    """What is served at ``path``, behind whatever ``connect`` leads to."""

    connect: Callable[[], socket.socket]
    path: str
    host: str = "task.example"
    headers: Mapping[str, str] = field(default_factory=dict)

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, HTTPMessage, bytes]:
        """Status, headers and body. Raises OSError where nobody answers."""
        connection = HTTPConnection(self.host)
        connection.sock = self.connect()
        with contextlib.closing(connection):
            data = None if body is None else json.dumps(body)
            connection.request(method, f"{self.path}{path}", data, {**self.headers, **headers})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def ready(self, path: str = "") -> bool:
        """Whether it answers yet."""
        with contextlib.suppress(OSError):
            return self.request("GET", path)[0] < 400
        return False

    def get(self, path: str) -> Any:
        status, _, body = self.request("GET", path)
        assert status == 200, (status, body)
        return json.loads(body)


class Jupyter(Service):
    """As JupyterLab's page speaks to its server."""

    page: Mapping[str, str] = MappingProxyType({})
    """Headers that carry what the page has been given."""

    def start_kernel(self) -> str:
        """The id of a new kernel."""
        status, headers, _ = self.request("GET", "lab")
        assert status == 200
        cookies = [line.partition(";")[0] for line in headers.get_all("Set-Cookie", [])]
        (xsrf,) = [cookie.partition("=")[2] for cookie in cookies if cookie.startswith("_xsrf=")]
        self.page = {"Cookie": "; ".join(cookies), "X-XSRFToken": xsrf}
        status, _, body = self.request("POST", "api/kernels", {}, **self.page)
        assert status == 201, body
        return str(json.loads(body)["id"])

    @contextlib.contextmanager
    def channels(self, kernel: str) -> Iterator[websocket.WebSocket]:
        """The kernel's WebSocket."""
        headers = [f"{name}: {value}" for name, value in {**self.page, **self.headers}.items()]
        url = f"ws://{self.host}{self.path}api/kernels/{kernel}/channels"
        opened = websocket.create_connection(
            url, socket=self.connect(), header=headers, origin=f"http://{self.host}", timeout=LONG_ENOUGH
        )
        with contextlib.closing(opened):
            yield opened

    def run(self, kernel: str, code: str) -> str:
        """What the code prints."""
        with self.channels(kernel) as channel:
            header = {
                "msg_id": uuid.uuid4().hex,
                "msg_type": "execute_request",
                "session": "s",
                "username": "",
                "version": "5.3",
            }
            content = {
                "code": code,
                "silent": False,
                "store_history": False,
                "allow_stdin": False,
                "stop_on_error": True,
            }
            request = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
            channel.send(json.dumps(request))
            printed = ""
            while True:
                message = json.loads(channel.recv())
                if message["parent_header"].get("msg_id") != header["msg_id"]:
                    continue
                if message["msg_type"] == "stream":
                    printed += message["content"]["text"]
                assert message["msg_type"] != "error", message["content"]
                if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                    return printed


def key_pair() -> tuple[str, str]:
    """A private and a public key, as OpenSSH writes them."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), public.decode()


TO_SOCKET = """
import os, socket, sys, threading
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
def up():
    while data := os.read(0, 65536):
        connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while data := connection.recv(65536):
    os.write(1, data)
"""


class Ssh:
    """``ssh`` and ``scp`` with a key, to whatever the command ``proxy`` connects them to."""

    def __init__(self, folder: Path, private_key: str, host_key: str, proxy: str, user: str) -> None:
        self._user, key, known = user, folder / "key", folder / "known"
        key.write_text(private_key)
        key.chmod(0o600)
        known.write_text(f"task {host_key}\n")
        self.options = ["-F", "none", "-i", str(key)]
        for option in (
            f"ProxyCommand={proxy}",
            f"UserKnownHostsFile={known}",
            "HostKeyAlias=task",
            "StrictHostKeyChecking=yes",
            "IdentitiesOnly=yes",
            "BatchMode=yes",
        ):
            self.options += ["-o", option]

    @classmethod
    def to_socket(cls, folder: Path, private_key: str, host_key: str, path: Path, user: str) -> Ssh:
        script = folder / "to_socket.py"
        script.write_text(TO_SOCKET)
        return cls(folder, private_key, host_key, f"{sys.executable} {script} {path}", user)

    def run(self, command: str, *options: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        """``command``: "" for an interactive shell, in which ``typed`` is typed."""
        return self._call("ssh", *self.options, *options, f"{self._user}@task", *filter(None, [command]), typed=typed)

    def copy(self, here: Path, there: Path) -> subprocess.CompletedProcess[str]:
        return self._call("scp", "-q", *self.options, str(here), f"{self._user}@task:{there}")

    def _call(self, *argv: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, input=typed, capture_output=True, text=True, timeout=LONG_ENOUGH, check=False)
