"""Makes the file or folder that a runtime starts from an image's layers: a .sif, a squashfs, or a folder."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List

from dethpc.errors import ImageError
from dethpc.exec.images import cache, layers
from dethpc.exec.images.cache import away

_FOLDERS = ("dev", "etc", "home", "mnt", "proc", "root", "run", "sys", "tmp", "var/tmp")
_FILES = ("group", "hosts", "passwd", "resolv.conf")
_OCI = "application/vnd.oci.image"


def make(
    format: str, manifest: Dict[str, Any], config: Dict[str, Any], blobs: Path, scratch: Path, target: Path
) -> None:
    """Make ``target`` of blobs that lie in ``blobs`` by their digests. ``scratch``: an empty folder. Raises ImageError, OSError."""
    if format == cache.SIF:
        _sif(manifest, blobs, scratch, target)
        return
    root = target if format == cache.FOLDER else scratch / "root"
    root.mkdir()
    os.chmod(root, layers.OPEN)
    for layer in manifest["layers"]:
        layers.apply(blobs / str(layer["digest"]).partition(":")[2], root)
    _tell_variables(root, format, config)
    _make_mount_points(root)
    if format == cache.SQUASHFS:
        _squashfs(root, target)


def size(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    if not path.is_dir():
        return path.stat().st_size
    total = 0
    for here, _, names in os.walk(path):
        total += sum(os.lstat(os.path.join(here, name)).st_size for name in names)
    return total


def _sif(manifest: Dict[str, Any], blobs: Path, scratch: Path, target: Path) -> None:
    """Apptainer makes it of the same blobs, so that it finds the image's variables and labels."""
    program = shutil.which("apptainer") or shutil.which("singularity")
    if program is None:
        raise ImageError(
            f"neither apptainer nor singularity is on PATH on {os.uname().nodename}; have the pool's prologue load it"
        )
    layout = scratch / "layout"
    (layout / "blobs").mkdir(parents=True)
    os.symlink(blobs, layout / "blobs" / "sha256")
    raw = json.dumps(_as_oci(manifest)).encode()
    digest = hashlib.sha256(raw).hexdigest()
    (blobs / digest).write_bytes(raw)
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    entry = {"mediaType": f"{_OCI}.manifest.v1+json", "digest": f"sha256:{digest}", "size": len(raw)}
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    place = {f"{name}_{what}": str(scratch) for name in ("APPTAINER", "SINGULARITY") for what in ("TMPDIR", "CACHEDIR")}
    _run([program, "--silent", "build", "--force", str(target), f"oci:{layout}"], {**os.environ, **place})


def _as_oci(manifest: Dict[str, Any]) -> Dict[str, Any]:
    """With OCI's names for the kinds that Docker has other names for."""
    config = {**manifest["config"], "mediaType": f"{_OCI}.config.v1+json"}
    packed = [
        {**layer, "mediaType": f"{_OCI}.layer.v1.tar+gzip"} if "docker" in str(layer.get("mediaType")) else layer
        for layer in manifest["layers"]
    ]
    return {"schemaVersion": 2, "mediaType": f"{_OCI}.manifest.v1+json", "config": config, "layers": packed}


def _squashfs(root: Path, target: Path) -> None:
    program = shutil.which("mksquashfs", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        raise ImageError(f"mksquashfs is not on PATH on {os.uname().nodename}; have the site install squashfs-tools")
    _run([program, str(root), str(target), "-noappend", "-no-progress", "-quiet", "-all-root"], dict(os.environ))


def _run(command: List[str], env: Dict[str, str]) -> None:
    """Raises ImageError with what it says when it fails."""
    process = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        text=True,
        errors="replace",
    )
    lines = [line for line in process.stdout.splitlines() if line.strip()]
    for line in lines[-20:]:
        print(line, flush=True)
    if process.returncode:
        message = next((line for line in reversed(lines) if "FATAL" in line or "rror" in line), "".join(lines[-1:]))
        raise ImageError(f"{os.path.basename(command[0])} failed with exit code {process.returncode}: {message[:300]}")


def _make_mount_points(root: Path) -> None:
    """What a runtime mounts the node's own over, and many images lack: it cannot make them in a folder that it only reads."""
    for folder in (*_FOLDERS, *(f"mnt/{i}" for i in range(10))):
        layers.inside(root, folder.split("/"))
    for name in _FILES:
        path = layers.inside(root, ["etc"]) / name
        if not os.path.lexists(path):
            path.touch()
            os.chmod(path, 0o644)


def _tell_variables(root: Path, format: str, config: Dict[str, Any]) -> None:
    """The image's variables, where Charliecloud (``ch-run --set-env``) and enroot look for them."""
    inner = config.get("config")
    listed = inner.get("Env") if isinstance(inner, dict) else None
    variables = [item for item in (listed if isinstance(listed, list) else []) if isinstance(item, str) and "=" in item]
    text = "".join(f"{item}\n" for item in variables if "\n" not in item)
    folder = "etc" if format == cache.SQUASHFS else "ch"
    place = layers.inside(root, [folder]) / "environment"
    if os.path.lexists(place) and (place.is_symlink() or not place.is_file()):  # a pipe would keep the writer for ever
        away(place)
    with open(place, "a", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
        os.chmod(file.fileno(), 0o644)
