"""A real registry of images on loopback (Debian's ``docker-registry``), and small images that are made here and pushed to it."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import platform
import secrets
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port
from tests.waiting import wait_until

MISSING = [name for name in ("docker-registry", "htpasswd") if shutil.which(name) is None]
needs_registry = pytest.mark.skipif(
    bool(MISSING), reason=f"needs Debian's docker-registry and apache2-utils: {MISSING}"
)
_MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
_OCI = "application/vnd.oci.image"


@dataclass
class RealRegistry:
    host: str
    user: str
    password: str
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def auth(self) -> dict[str, str]:
        return {"username": self.user, "password": self.password}

    def ask(self, method: str, path: str, data: bytes | None = None, **headers: str) -> Any:
        url = path if path.startswith("http") else f"http://{self.host}{path}"
        request = urllib.request.Request(url, data=data, method=method, headers=headers)
        request.add_header("Authorization", "Basic " + b64encode(f"{self.user}:{self.password}".encode()).decode())
        return urllib.request.urlopen(request, timeout=30)

    def put_blob(self, repository: str, data: bytes) -> dict[str, Any]:
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        with self.ask("POST", f"/v2/{repository}/blobs/uploads/") as answer:
            where = answer.headers["Location"]
        where += ("&" if "?" in where else "?") + urllib.parse.urlencode({"digest": digest})
        self.ask("PUT", where, data, **{"Content-Type": "application/octet-stream"}).close()
        return {"digest": digest, "size": len(data)}

    def put_manifest(self, repository: str, tag: str, manifest: Mapping[str, Any]) -> str:
        raw = json.dumps(manifest).encode()
        self.ask("PUT", f"/v2/{repository}/manifests/{tag}", raw, **{"Content-Type": manifest["mediaType"]}).close()
        return "sha256:" + hashlib.sha256(raw).hexdigest()

    def push(
        self, repository: str, tag: str, layers: Sequence[bytes], env: Sequence[str] = (), docker: bool = False
    ) -> str:
        """Push an image of tars; its digest."""
        config = {"architecture": _MACHINE, "os": "linux", "config": {"Env": list(env)}, "rootfs": {"type": "layers"}}
        config["rootfs"]["diff_ids"] = ["sha256:" + hashlib.sha256(layer).hexdigest() for layer in layers]  # type: ignore[index]
        kinds = (f"{_OCI}.manifest.v1+json", f"{_OCI}.config.v1+json", f"{_OCI}.layer.v1.tar+gzip")
        if docker:
            docker_kind = "application/vnd.docker"
            kinds = (
                f"{docker_kind}.distribution.manifest.v2+json",
                f"{docker_kind}.container.image.v1+json",
                f"{docker_kind}.image.rootfs.diff.tar.gzip",
            )
        manifest = {
            "schemaVersion": 2,
            "mediaType": kinds[0],
            "config": {"mediaType": kinds[1], **self.put_blob(repository, json.dumps(config).encode())},
            "layers": [
                {"mediaType": kinds[2], **self.put_blob(repository, gzip.compress(layer, 1))} for layer in layers
            ],
        }
        return self.put_manifest(repository, tag, manifest)

    def push_index(self, repository: str, tag: str, images: Mapping[str, str]) -> str:
        """Push an index of images that are there, by architecture; its digest."""
        entries = []
        for architecture, digest in images.items():
            with self.ask("GET", f"/v2/{repository}/manifests/{digest}", Accept=f"{_OCI}.manifest.v1+json") as answer:
                size = len(answer.read())
            of = {"os": "linux", "architecture": architecture}
            entries.append({"mediaType": f"{_OCI}.manifest.v1+json", "digest": digest, "size": size, "platform": of})
        index = {"schemaVersion": 2, "mediaType": f"{_OCI}.index.v1+json", "manifests": entries}
        return self.put_manifest(repository, tag, index)

    def requests(self, method: str, part: str) -> list[str]:
        return [line for line in self.log.splitlines() if f'"{method} ' in line and part in line]


@contextlib.contextmanager
def registry(folder: Path) -> Iterator[RealRegistry]:
    """A registry that wants a name and a password, until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    user, password = "reader", f"planted{secrets.token_hex(12)}"
    made = subprocess.run(["htpasswd", "-niB", user], input=password, text=True, capture_output=True, check=True)
    (folder / "htpasswd").write_text(made.stdout)
    with free_port() as port, _serving(folder, f"127.0.0.1:{port}", user, password) as found:
        yield found


@contextlib.contextmanager
def _serving(folder: Path, host: str, user: str, password: str) -> Iterator[RealRegistry]:
    config = {
        "version": "0.1",
        "log": {"accesslog": {"disabled": False}, "level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}, "delete": {"enabled": True}},
        "http": {"addr": host},
        "auth": {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}},
    }
    (folder / "config.yml").write_text(json.dumps(config))
    with open(folder / "log", "wb") as log:
        command = ["docker-registry", "serve", str(folder / "config.yml")]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    found = RealRegistry(host, user, password, folder, process)

    def answers() -> bool:
        assert process.poll() is None, found.log
        try:
            found.ask("GET", "/v2/").close()
        except OSError:
            return False
        return True

    try:
        wait_until(answers)
        yield found
    finally:
        process.kill()
        process.wait()


def tar(files: Mapping[str, Any]) -> bytes:
    """A layer: text or bytes for a file, None for a folder, ("link", target) and ("hard", target) for links."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, what in files.items():
            member = tarfile.TarInfo(name)
            member.mode, member.mtime = 0o755, 1_700_000_000
            data = b""
            if what is None:
                member.type = tarfile.DIRTYPE
            elif isinstance(what, tuple):
                member.type = tarfile.SYMTYPE if what[0] == "link" else tarfile.LNKTYPE
                member.linkname = what[1]
            else:
                data = what.encode() if isinstance(what, str) else what
                member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def noise(megabytes: float) -> bytes:
    """What does not become smaller when it is packed."""
    return os.urandom(int(megabytes * 1e6))


def shell_root() -> dict[str, bytes]:
    """Files of an image in which ``/bin/sh`` and ``/bin/cat`` run: this machine's, with their libraries."""
    found = {}
    for program in ("/bin/sh", "/bin/cat"):
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        libraries = [word for line in listed.splitlines() for word in line.split() if word.startswith("/")]
        for path in (program, *libraries):
            found[path.lstrip("/")] = Path(path).read_bytes()
    return found
