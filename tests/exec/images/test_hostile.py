"""What comes from registries, and what lies in a shared cache, may be hostile: it leads nobody out, holds nobody, gets no word."""

from __future__ import annotations

import io
import itertools
import json
import os
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest

from dethpc.errors import ImageError
from dethpc.exec.images import registry as registries
from dethpc.exec.images.cache import FOLDER, SIF, Cache
from dethpc.exec.images.pull import Order, pull
from tests.exec.images.test_pull import order
from tests.registries import RealRegistry, needs_registry, noise, tar

pytestmark = needs_registry


class Answers(BaseHTTPRequestHandler):
    """A registry that answers as ``told`` says: path -> status, headers and body. Keeps what it was asked with."""

    told: ClassVar[dict[str, tuple[int, dict[str, str], bytes]]] = {}
    asked: ClassVar[list[tuple[str, str]]] = []

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Authorization", "")))
        status, headers, body = self.told.get(self.path.partition("?")[0], (404, {}, b"{}"))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def hostile(told: dict[str, tuple[int, dict[str, str], bytes]]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    handler = type("Told", (Answers,), {"told": told, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", handler.asked  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def hostile_order(host: str, folder: Path, **more: Any) -> Order:
    auth = {"username": "reader", "password": "planted-elsewhere"}
    fields: dict[str, Any] = {"format": FOLDER, "auth": auth, **more}
    return Order(str(folder / "images"), f"{host}/x:1", registry=host, repository="x", reference="1", **fields)


OCI = "application/vnd.oci.image"
ELSEWHERE = "sha256:../../../../elsewhere"


@pytest.mark.parametrize("oras", [False, True])
def test_a_digest_that_leads_out_of_the_cache_is_refused_before_anything_is_written(tmp_path: Path, oras: bool) -> None:
    kind = "application/vnd.sylabs.sif.layer.v1.sif" if oras else f"{OCI}.layer.v1.tar"
    blob = {"mediaType": kind, "digest": ELSEWHERE, "size": 3}
    config = {"digest": "sha256:" + "0" * 64, "size": 2}
    manifest = json.dumps({"schemaVersion": 2, "config": config, "layers": [blob]}).encode()
    with hostile({"/v2/x/manifests/1": (200, {}, manifest)}) as (host, asked):
        with pytest.raises(ImageError, match="which is no SHA-256"):
            pull(hostile_order(host, tmp_path, is_sif=oras, format=SIF if oras else FOLDER))
    assert [path for path, _ in asked] == ["/v2/x/manifests/1"]


@pytest.mark.parametrize(
    "index",
    [{"manifests": 7}, {"manifests": [7]}, {"manifests": [{}]}, {"manifests": [{"platform": 7, "digest": "x"}]},
     {"layers": 7}, {"layers": [7], "config": 7}, {"layers": None, "config": []}],
)  # fmt: skip
def test_a_manifest_that_is_none_is_refused_in_words(tmp_path: Path, index: dict[str, Any]) -> None:
    body = json.dumps({"schemaVersion": 2, **index}).encode()
    with hostile({"/v2/x/manifests/1": (200, {}, body)}) as (host, _), pytest.raises(ImageError, match="its "):
        pull(hostile_order(host, tmp_path))


@pytest.mark.parametrize(
    "to", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://registry.example/x", "//registry.example/x"]
)
def test_a_registry_that_sends_elsewhere_than_by_https_is_not_followed(tmp_path: Path, to: str) -> None:
    with hostile({"/v2/x/manifests/1": (307, {"Location": to}, b"")}) as (host, _):
        with pytest.raises(ImageError, match=r"sends to|is not allowed"):
            pull(hostile_order(host, tmp_path))


def test_whom_a_registry_sends_to_gets_no_password_however_it_asks(tmp_path: Path) -> None:
    told: dict[str, tuple[int, dict[str, str], bytes]] = {}
    with hostile(told) as (other, asked_of_other):
        challenge = f'Bearer realm="http://{other}/token",service="s"'
        told["/cdn"] = (401, {"WWW-Authenticate": challenge}, b"{}")
        told["/token"] = (200, {}, b'{"token": "t"}')
        with hostile({"/v2/x/manifests/1": (307, {"Location": f"http://{other}/cdn"}, b"")}) as (host, _):
            with pytest.raises(ImageError, match="401"):
                pull(hostile_order(host, tmp_path))
    assert asked_of_other == [("/cdn", "")]


def test_what_listens_on_the_node_alone_is_not_asked_for_a_registry_elsewhere() -> None:
    local = urlsplit("http://127.0.0.1:2375/x")
    assert not registries._may_go("registry.example", local, [])
    assert registries._may_go("127.0.0.1:5000", local, []) and registries._may_go("a", urlsplit("https://b/x"), [])
    assert registries._may_go("registry.example", urlsplit("http://other:5000/x"), ["other:5000"])


def test_a_registry_that_hands_out_a_byte_now_and_then_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, 50.0)
    monkeypatch.setattr(registries.time, "monotonic", lambda: next(clock))
    trickle = SimpleNamespace(read1=lambda _: b"x")
    with pytest.raises(TimeoutError, match="bytes in"):
        list(registries._pieces(trickle, 1000))  # type: ignore[arg-type]


def test_a_bomb_is_refused_and_what_was_unpacked_is_gone(
    source: RealRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dethpc.exec.images.layers.ALWAYS", 1 << 20)
    source.push("bomb", "1", [tar({"zeros": b"\0" * (50 << 20)})])
    with pytest.raises(ImageError, match="unpacks to more than 100 times its size"):
        pull(order(source, tmp_path, "bomb"))
    assert not list((tmp_path / "images").rglob("zeros"))


def test_a_pipe_where_the_variables_go_holds_nobody(source: RealRegistry, tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        pipe = tarfile.TarInfo("ch/environment")
        pipe.type = tarfile.FIFOTYPE
        archive.addfile(pipe)
    digest = source.push("pipe", "1", [out.getvalue()], env=["A=b"])
    pull(order(source, tmp_path, "pipe"))
    assert (Cache(tmp_path / "images").path(FOLDER, digest) / "ch/environment").read_text() == "A=b\n"


def test_a_link_in_a_shared_cache_leads_nobody_out_of_it(source: RealRegistry, tmp_path: Path) -> None:
    source.push("linked", "1", [tar({"f": "1"})])
    wanted, mine = order(source, tmp_path, "linked"), tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis").write_text("x")
    cache = Cache(tmp_path / "images")
    place = cache.work(wanted.name, FOLDER)
    place.rmdir()
    place.symlink_to(mine)
    with pytest.raises(OSError, match="a link, where the cache has a folder"):
        pull(wanted)
    assert (mine / "thesis").exists()


def test_what_pulls_have_left_a_week_ago_goes_with_the_next_one(source: RealRegistry, tmp_path: Path) -> None:
    source.push("next", "1", [tar({"f": "1"})])
    cache = Cache(tmp_path / "images")
    old, held, young = (cache.work(f"{name}/x:1", FOLDER) for name in ("old", "held", "young"))
    for folder in (old, held, young):
        (folder / "blobs").mkdir()
        (folder / "blobs" / "layer.part").write_text("x")
    (held / "lock").touch()
    for path in (old / "blobs", old, held / "blobs", held):
        os.utime(path, (1, 1))
    pull(order(source, tmp_path, "next"))
    assert not old.exists() and held.exists() and young.exists()


def test_a_cache_that_is_full_is_told_and_holds_nothing_half_made(source: RealRegistry, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(small)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs root, who mounts")
    try:
        source.push("fills", "1", [tar({"a": noise(4), "b": b"x" * 20_000_000})])
        with pytest.raises(OSError, match="No space left on device"):
            pull(order(source, small, "fills"))
        assert Cache(small / "images").entries() == [] and not list(small.rglob("made"))
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_sif_that_is_kept_in_a_registry_is_pulled_as_it_is(source: RealRegistry, tmp_path: Path) -> None:
    sif = noise(2)
    layer = {"mediaType": "application/vnd.sylabs.sif.layer.v1.sif", **source.put_blob("tool", sif)}
    config = {"mediaType": "application/vnd.sylabs.sif.config.v1+json", **source.put_blob("tool", b"{}")}
    manifest = {"schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json", "config": config, "layers": [layer]}
    digest = source.put_manifest("tool", "1", manifest)
    assert pull(order(source, tmp_path, "tool", format=SIF, is_sif=True)) == digest
    assert Cache(tmp_path / "images").path(SIF, digest).read_bytes() == sif
    with pytest.raises(ImageError, match="write oras:// before it"):
        pull(order(source, tmp_path / "other", "tool"))
