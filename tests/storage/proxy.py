"""A proxy in front of a store's server that does to requests what networks and servers do: faults by a list, in order."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, List, Optional
from urllib.parse import urlsplit

from tests.waiting import LONG_ENOUGH

Fault = Optional[str]
"""``away``: the connection is cut; ``500``, ``503`` and ``403``: the server's answers, of which the second asks for patience, and
the third refuses; ``SlowDown`` and ``AccessDenied``: these in S3's words; ``XMinioStorageFull``, ``XMinioAdminBucketQuotaExceeded``
(MinIO) and ``QuotaExceeded`` (Ceph): what full ones say; ``short``: half of the content; ``silent``: no answer
for a while."""

_STATUS = {
    "500": 500, "503": 503, "403": 403, "SlowDown": 503, "AccessDenied": 403,
    "XMinioStorageFull": 507, "QuotaExceeded": 403, "XMinioAdminBucketQuotaExceeded": 400,
}  # fmt: skip


class Proxy(ThreadingHTTPServer):
    """``choose`` says for each request, by its method and path, which fault it meets. ``met``: those that were met."""

    daemon_threads = True

    def __init__(self, server: str, choose: Callable[[str, str], Fault]) -> None:
        self.target, self.choose = urlsplit(server), choose
        self.met: List[str] = []
        self.ended = threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        pass

    def _serve(self) -> None:
        body = self._body()
        fault = self.server.choose(self.command, self.path)
        if fault:
            self.server.met.append(fault)
        if fault == "away":
            self.close_connection = True
            self.connection.close()
        elif fault == "silent":
            self.server.ended.wait(30)
            self.close_connection = True
        elif fault in _STATUS:
            said = "" if fault.isdigit() else f"<Error><Code>{fault}</Code><Message>{fault}, please</Message></Error>"
            self.send_response(_STATUS[fault])
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(said.encode())
        else:
            self._pass_on(body, short=fault == "short")

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = _serve

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found: List[bytes] = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            found.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(found)

    def _pass_on(self, body: bytes, short: bool) -> None:
        target = self.server.target
        connection = http.client.HTTPConnection(str(target.hostname), target.port, timeout=LONG_ENOUGH)
        headers = {n: v for n, v in self.headers.items() if n.lower() not in ("transfer-encoding", "expect")}
        headers["Content-Length"] = str(len(body))
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if short else content)
        if short:
            self.wfile.flush()
            self.close_connection = True
        connection.close()
