"""A server that speaks WebHDFS as far as stores need it: a namenode and a datanode in one, with files in memory.

It stands in for Hadoop, which cannot be installed for tests: it redirects to the datanode, answers with Hadoop's exceptions,
refuses to rename onto what is there and to remove a folder that is not empty, and knows the state ``standby``.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, List, Set, Tuple
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

START = "/webhdfs/v1"


class Refuses(Exception):
    def __init__(self, status: int, exception: str, message: str) -> None:
        self.status, self.exception, self.message = status, exception, message


class Cluster:
    """What namenodes share."""

    def __init__(self) -> None:
        self.files: Dict[str, Tuple[bytes, float]] = {}
        self.folders: Set[str] = set()
        self.users: List[str] = []
        self.lock = threading.RLock()

    def folder(self, path: str) -> Dict[str, bool]:
        """The names in it: whether each is a folder."""
        start = path.rstrip("/") + "/"
        inside = [name[len(start) :] for name in [*self.files, *self.folders] if name.startswith(start)]
        return {name.partition("/")[0]: "/" in name or start + name in self.folders for name in inside if name}

    def is_folder(self, path: str) -> bool:
        return path in self.folders or bool(self.folder(path)) or path == "/"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: NameNode
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *_: Any) -> None:
        pass

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        path, query = unquote(parts.path)[len(START) :] or "/", {n: v[-1] for n, v in parse_qs(parts.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        cluster, operation = self.server.cluster, query.get("op", "")
        try:
            if self.server.standby:
                raise Refuses(403, "StandbyException", "Operation category READ is not supported in state standby")
            with cluster.lock:
                cluster.users.append(query.get("user.name", ""))
                self._answer(getattr(self, f"_{operation.lower()}")(cluster, path, query, body))
        except Refuses as error:
            told = {"exception": error.exception, "message": error.message}
            self._send(error.status, json.dumps({"RemoteException": told}).encode())

    do_GET = do_PUT = do_POST = do_DELETE = _serve

    def _answer(self, found: Any) -> None:
        if isinstance(found, str):
            self.send_response(307)
            self.send_header("Location", found)
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self._send(200, found if isinstance(found, bytes) else json.dumps(found).encode())

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _redirected(self, path: str, query: Dict[str, str]) -> str:
        return f"http://{self.headers['Host']}{urlsplit(self.path).path}?{urlencode({**query, 'datanode': '1'})}"

    def _create(self, cluster: Cluster, path: str, query: Dict[str, str], body: bytes) -> Any:
        if "datanode" not in query:
            return self._redirected(path, query)
        cluster.files[path] = body, time.time()
        return {}

    def _append(self, cluster: Cluster, path: str, query: Dict[str, str], body: bytes) -> Any:
        if "datanode" not in query:
            return self._redirected(path, query)
        cluster.files[path] = cluster.files[path][0] + body, time.time()
        return {}

    def _open(self, cluster: Cluster, path: str, query: Dict[str, str], body: bytes) -> Any:
        content = self._existing(cluster, path)[0]
        if "datanode" not in query:
            return self._redirected(path, query)
        start = int(query.get("offset", 0))
        return content[start : start + int(query.get("length", len(content)))]

    def _getfilestatus(self, cluster: Cluster, path: str, query: Dict[str, str], body: bytes) -> Any:
        if path not in cluster.files and cluster.is_folder(path):
            return {"FileStatus": self._status(cluster, path, "")}
        self._existing(cluster, path)
        return {"FileStatus": self._status(cluster, path, "")}

    def _liststatus(self, cluster: Cluster, path: str, query: Dict[str, str], body: bytes) -> Any:
        path = path.rstrip("/") or "/"
        if not cluster.is_folder(path):
            self._existing(cluster, path)
        found = [self._status(cluster, f"{path.rstrip('/')}/{name}", name) for name in cluster.folder(path)]
        return {"FileStatuses": {"FileStatus": found}}

    def _rename(self, cluster: Cluster, path: str, query: Dict[str, str], body: bytes) -> Any:
        new = query["destination"]
        if path not in cluster.files or new in cluster.files:
            return {"boolean": False}
        cluster.files[new] = cluster.files.pop(path)
        return {"boolean": True}

    def _mkdirs(self, cluster: Cluster, path: str, query: Dict[str, str], body: bytes) -> Any:
        cluster.folders.add(path)
        return {"boolean": True}

    def _delete(self, cluster: Cluster, path: str, query: Dict[str, str], body: bytes) -> Any:
        path = path.rstrip("/")
        if path not in cluster.files and cluster.folder(path):
            raise Refuses(403, "PathIsNotEmptyDirectoryException", f"{path} is non empty")
        above = path.rpartition("/")[0]
        if above:
            cluster.folders.add(above)  # it stays when it is empty, as in any file system
        known = path in cluster.files or path in cluster.folders
        cluster.files.pop(path, None)
        cluster.folders.discard(path)
        return {"boolean": known}

    def _existing(self, cluster: Cluster, path: str) -> Tuple[bytes, float]:
        if path not in cluster.files:
            raise Refuses(404, "FileNotFoundException", f"File does not exist: {path}")
        return cluster.files[path]

    def _status(self, cluster: Cluster, path: str, suffix: str) -> Dict[str, Any]:
        content, changed = cluster.files.get(path, (b"", 0.0))
        kind = "FILE" if path in cluster.files else "DIRECTORY"
        return {"pathSuffix": suffix, "type": kind, "length": len(content), "modificationTime": int(changed * 1000)}


class NameNode(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.standby = cluster, False
        super().__init__(("127.0.0.1", 0), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def end(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()
