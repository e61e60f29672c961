"""Pulls one image into the cache: resolves its name, downloads, converts and publishes it. Idempotent."""

from __future__ import annotations

import os
import platform
import re
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock as Mutex
from typing import Any, Dict, List, Optional, Tuple

from dethpc.errors import ImageError
from dethpc.exec.images import formats, layers
from dethpc.exec.images.cache import Cache, away, locked
from dethpc.exec.images.registry import (
    DOCKER_HUB,
    Credentials,
    Manifest,
    Place,
    Registry,
    credentials_of,
    may_be_plain,
)
from dethpc.rundir.files import read_object, write_json

AT_ONCE = 4
"""Layers that are brought at the same time."""
_SIF_LAYER = "application/vnd.sylabs.sif.layer.v1.sif"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le"}
_OF_HUB = ("https://index.docker.io/v1/", "index.docker.io", "registry-1.docker.io")


@dataclass(frozen=True)
class Order:
    """What is to be pulled, or removed. ``remove``: paths, and then nothing is pulled. ``auth``: a ``registry_auth`` section;
    ``auth_file``: a file as Docker's ``config.json``. ``mirrors``: HOST or HOST/PREFIX, asked before the registry itself."""

    cache: str
    name: str = ""
    format: str = ""
    registry: str = ""
    repository: str = ""
    reference: str = ""  # a digest, else a tag
    is_sif: bool = False  # it is a .sif that is kept in a registry
    force: bool = False  # the registry is asked again although the name is known
    mirrors: List[str] = field(default_factory=list)
    insecure: List[str] = field(default_factory=list)
    auth: Dict[str, Any] = field(default_factory=dict)
    auth_file: str = ""
    scratch: str = ""
    owner: str = ""
    remove: List[str] = field(default_factory=list)

    def to_json(self) -> Dict[str, Any]:
        return asdict(self)


def pull(order: Order) -> str:
    """The digest of the image, which is in the cache then. Raises ImageError, OSError."""
    cache = Cache(Path(order.cache))
    work = cache.work(order.name, order.format)
    asked_at = time.time()
    with locked(work, f"{order.owner or os.getpid()} on {os.uname().nodename}"):
        cached = cache.named(order.name)
        if cached and (not order.force or cached.at > asked_at) and cache.has(order.format, cached.digest):
            print(f"image: {order.name} is there as {cached.digest}", flush=True)
            return cached.digest
        _tidy(work, "blobs")  # what a pull that was killed had brought is good still
        registry = Registry(order.repository, _places(order), order.insecure)
        manifest = registry.manifest(order.reference)
        if not cache.has(order.format, manifest.digest):
            _bring(order, cache, work, registry, manifest, _Progress(work))
        cache.name(order.name, manifest.digest)
        _tidy(work)
    for path in cache.abandoned():
        away(path)
    print(f"image: {order.name} is there as {manifest.digest}", flush=True)
    return manifest.digest


def _bring(order: Order, cache: Cache, work: Path, registry: Registry, top: Manifest, progress: _Progress) -> None:
    manifest = _for_this_machine(registry, top)
    blobs = work / "blobs"
    blobs.mkdir(exist_ok=True)
    blobs_and_sizes = _blobs_of(manifest.content, order)
    progress.begin("pulling", sum(size for _, size in blobs_and_sizes))
    with ThreadPoolExecutor(AT_ONCE) as threads:
        coming = [threads.submit(_blob, registry, blobs, digest, size, progress) for digest, size in blobs_and_sizes]
        for transfer in coming:
            transfer.result()
    progress.begin("converting", 0)
    scratch = _scratch(order, work)
    image, python = work / "made", True
    try:
        if order.is_sif:
            os.rename(blobs / _hex(blobs_and_sizes[0][0]), image)
        else:
            # Before anybody unpacks them, who may have no bounds. Of a .sif nobody here knows what is in it.
            names_of_layers = [layers.names(blobs / _hex(digest)) for digest, _ in blobs_and_sizes[1:]]
            python = any("python3" in names for names in names_of_layers)
            config = read_object(blobs / _hex(str(manifest.content["config"]["digest"])))
            formats.make(order.format, manifest.content, config, blobs, scratch, image)
    except BaseException:
        away(image)  # it may have filled the cache
        raise
    finally:
        away(scratch)
    _publish(cache, order, top.digest, image, python)


def _publish(cache: Cache, order: Order, digest: str, image: Path, python: bool) -> None:
    cache.note(order.format, digest, order.name, formats.size(image), python)
    if image.is_file():
        with open(image, "rb") as file:
            os.fsync(file.fileno())
    cache.share(image)
    if image.is_dir():  # it is the root directory of what starts in it
        os.chmod(image, image.stat().st_mode & 0o7777 | layers.OPEN)
    try:
        os.rename(image, cache.path(order.format, digest))
    except OSError:
        if not cache.has(order.format, digest):  # a folder takes no other's place: another job made the same
            raise
        away(image)


def _tidy(work: Path, *stays: str) -> None:
    """But for the lock, and for what those who wait for it try its time with."""
    for path in work.iterdir():
        if path.name not in stays and not path.name.startswith("lock"):
            away(path)


def _scratch(order: Order, work: Path) -> Path:
    if not order.scratch:
        scratch = work / "scratch"
        scratch.mkdir()
        return scratch
    os.makedirs(order.scratch, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="dethpc-image-", dir=order.scratch))


def _for_this_machine(registry: Registry, top: Manifest) -> Manifest:
    """Of an image for several kinds of machines the one for this."""
    if "manifests" not in top.content:
        return top
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    there = []
    try:
        offered = [(entry.get("platform") or {}, str(entry["digest"])) for entry in top.content["manifests"]]
        made_for = [(of.get("os"), of.get("architecture"), digest) for of, digest in offered]
    except (AttributeError, KeyError, TypeError):
        raise ImageError("its index names no manifests") from None
    for system, machine, digest in made_for:
        if (system, machine) == ("linux", architecture):
            return registry.manifest(_checked(digest))
        there.append(f"{system}/{machine}"[:40])
    raise ImageError(f"it is not made for linux/{architecture}, only for {', '.join(there[:20]) or 'nothing'}")


def _blobs_of(content: Dict[str, Any], order: Order) -> List[Tuple[str, int]]:
    """Digests and sizes. Raises ImageError for what is no image of this kind."""
    try:
        packed = [
            (str(layer["mediaType"]), _checked(str(layer["digest"])), int(layer["size"])) for layer in content["layers"]
        ]
        config = _checked(str(content["config"]["digest"])), int(content["config"]["size"])
    except (KeyError, TypeError, ValueError):
        raise ImageError("its manifest lacks its layers") from None
    if order.is_sif:
        sifs = [(digest, size) for kind, digest, size in packed if kind == _SIF_LAYER]
        if len(sifs) != 1:
            raise ImageError("its registry holds no .sif under this name; without oras:// it may be an image of layers")
        return sifs
    if any(kind == _SIF_LAYER for kind, _, _ in packed):
        raise ImageError("its registry holds a .sif under this name; write oras:// before it")
    return list(dict.fromkeys([config, *((digest, size) for _, digest, size in packed)]))


def _checked(digest: str) -> str:
    """It becomes the name of a file, and a part of an address. Raises ImageError."""
    if re.fullmatch("sha256:[0-9a-f]{64}", digest) is None:
        raise ImageError(f"its manifest names a layer {digest[:80]!r}, which is no SHA-256")
    return digest


def _blob(registry: Registry, blobs: Path, digest: str, size: int, progress: _Progress) -> None:
    target = blobs / _hex(digest)
    if target.exists():
        progress.more(size)
        return
    part = target.with_name(f"{target.name}.part")
    if part.exists():
        progress.more(part.stat().st_size)
    registry.blob(digest, size, target, progress.more)


class _Progress:
    """Writes how far it is to a file, for what waits for it, and to the job's log."""

    def __init__(self, work: Path) -> None:
        self._file, self._mutex = work / "progress.json", Mutex()
        self._step, self._done, self._total, self._said, self._written = "", 0, 0, -1, 0.0

    def begin(self, step: str, total: int) -> None:
        self._step, self._done, self._total, self._said = step, 0, total, -1
        print(f"image: {step}{f' {total / 1e6:,.1f} MB' if total else ''}", flush=True)
        self._write()

    def more(self, count: int) -> None:
        with self._mutex:
            self._done += count
            tenth = 10 * self._done // self._total if self._total else 0
            if tenth > self._said:
                if self._said >= 0:
                    print(f"image: {self._step}, {10 * tenth} %", flush=True)
                self._said = tenth
            if time.monotonic() - self._written > 1.0:
                self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        write_json(self._file, {"step": self._step, "done": self._done, "total": self._total}, durable=False)


def _places(order: Order) -> List[Place]:
    places = []
    for place in [*order.mirrors, order.registry]:
        host, _, prefix = place.partition("/")
        places.append(Place(host, prefix, _credentials(order, host), may_be_plain(host, order.insecure)))
    return places


def _credentials(order: Order, host: str) -> Optional[Credentials]:
    """What the experiment says for this registry, else what the site's file does, else what the user's own does."""
    named = _host(str(order.auth.get("serveraddress") or order.registry))
    if order.auth and host == named:
        return credentials_of(order.auth)
    for file in filter(None, (order.auth_file, os.path.expanduser("~/.docker/config.json"))):
        for address, entry in (read_object(file).get("auths") or {}).items():
            if _host(str(address)) == host and isinstance(entry, dict) and (credentials := credentials_of(entry)):
                return credentials
    return None


def _host(address: str) -> str:
    """``https://index.docker.io/v1/`` and ``docker.io`` are the same."""
    if address in _OF_HUB:
        return DOCKER_HUB
    host = address.partition("://")[2] or address
    host = host.partition("/")[0]
    return DOCKER_HUB if host in _OF_HUB else host


def _hex(digest: str) -> str:
    return digest.partition(":")[2]
