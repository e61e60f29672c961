"""Images come from a real registry into the cache: whole, once, and with a password that is seen nowhere."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dethpc.containers import RUNTIMES, Bind, Env, Extras
from dethpc.errors import ImageError
from dethpc.exec.images.cache import FOLDER, SIF, SQUASHFS, Cache
from dethpc.exec.images.pull import Order, pull
from dethpc.rundir.files import sealed, write_json
from tests.registries import RealRegistry, needs_registry, noise, shell_root, tar
from tests.waiting import wait_until

pytestmark = needs_registry


def order(source: RealRegistry, folder: Path, repository: str, reference: str = "1", **more: Any) -> Order:
    fields: dict[str, Any] = {"format": FOLDER, "auth": source.auth(), **more}
    name = f"{source.host}/{repository}:{reference}"
    return Order(
        cache=str(folder / "images"),
        name=name,
        registry=source.host,
        repository=repository,
        reference=reference,
        **fields,
    )


def start(order: Order, file: Path) -> subprocess.Popen[str]:
    write_json(file, sealed(order.to_json()))
    command = [sys.executable, "-m", "dethpc.exec.images", str(file)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_an_image_becomes_a_folder_with_its_layers_one_over_the_other(source: RealRegistry, tmp_path: Path) -> None:
    lower = tar(
        {"usr/bin/tool": "old", "lib": ("link", "usr/lib"), "etc/a": "a", "etc/b": "b", "opt/x/y": "y", "h": "1"}
    )
    upper = tar(
        {
            "usr/bin/tool": "new",
            "lib/c.so": "c",
            "etc/.wh.a": "",
            "opt/x/.wh..wh..opq": "",
            "opt/x/z": "z",
            "hard": ("hard", "h"),
        }
    )
    digest = source.push("team/layers", "1", [lower, upper], env=["PATH=/usr/bin", "GREETING=hello you"])
    assert pull(order(source, tmp_path, "team/layers")) == digest
    cache = Cache(tmp_path / "images")
    root = cache.path(FOLDER, digest)
    assert (root / "usr/bin/tool").read_text() == "new" and (root / "usr/lib/c.so").read_text() == "c"
    assert not (root / "etc/a").exists() and (root / "etc/b").read_text() == "b"
    assert [path.name for path in (root / "opt/x").iterdir()] == ["z"] and (root / "hard").read_text() == "1"
    assert (root / "etc/passwd").is_file() and (root / "proc").is_dir(), "where runtimes mount"
    assert "GREETING=hello you\n" in (root / "ch/environment").read_text()
    (entry,) = cache.entries()
    assert (entry.digest, entry.name) == (digest, f"{source.host}/team/layers:1") and entry.bytes > 0


def test_the_folders_of_an_image_are_open_whatever_the_umask_of_the_job(source: RealRegistry, tmp_path: Path) -> None:
    """Podman's root inside is not the user who pulled it. The cache is closed to others."""
    digest = source.push("umask", "1", [tar({"usr/bin/tool": "x"})])
    before = os.umask(0o077)
    try:
        pull(order(source, tmp_path, "umask"))
    finally:
        os.umask(before)
    image = Cache(tmp_path / "images").path(FOLDER, digest)
    modes = {name: (image / name).stat().st_mode & 0o777 for name in (".", "usr", "usr/bin", "proc", "etc/hosts")}
    assert modes == {".": 0o755, "usr": 0o755, "usr/bin": 0o755, "proc": 0o755, "etc/hosts": 0o644}
    assert (tmp_path / "images").stat().st_mode & 0o777 == 0o700


def test_of_an_image_for_several_machines_the_one_for_this_is_taken(source: RealRegistry, tmp_path: Path) -> None:
    digest = source.push("several", "plain", [tar({"f": "mine"})])
    index = source.push_index("several", "1", {"s390x": digest, "amd64": digest, "arm64": digest})
    assert pull(order(source, tmp_path, "several")) == index
    other = source.push_index("several", "2", {"s390x": digest})
    assert other
    with pytest.raises(ImageError, match="only for linux/s390x"):
        pull(order(source, tmp_path, "several", "2"))


@pytest.mark.parametrize("docker", [False, True])
def test_an_image_becomes_a_squashfs(source: RealRegistry, tmp_path: Path, docker: bool) -> None:
    if shutil.which("mksquashfs") is None:
        pytest.skip("needs squashfs-tools")
    digest = source.push(f"squash{docker}".lower(), "1", [tar({"bin/sh": "x"})], docker=docker)
    pull(order(source, tmp_path, f"squash{docker}".lower(), format=SQUASHFS))
    path = Cache(tmp_path / "images").path(SQUASHFS, digest)
    listed = subprocess.run(["unsquashfs", "-l", str(path)], capture_output=True, text=True, check=True).stdout
    assert "squashfs-root/bin/sh" in listed


@pytest.mark.parametrize(
    "name, layer",
    [
        ("dots", {"../../evil": "x"}),
        ("link-out", {"d": ("link", "/tmp"), "d/../../../evil": "x"}),
        ("hard-out", {"x": ("hard", "../../../../etc/passwd")}),
        ("circle", {"a": ("link", "b"), "b": ("link", "a"), "a/x": "x"}),
    ],
)
def test_a_layer_that_leads_out_of_the_image_is_refused(
    source: RealRegistry, tmp_path: Path, name: str, layer: Any
) -> None:
    source.push(f"evil/{name}", "1", [tar(layer)])
    with pytest.raises(ImageError):
        pull(order(source, tmp_path, f"evil/{name}"))
    assert Cache(tmp_path / "images").entries() == []


def test_a_link_to_a_folder_of_the_node_leads_into_the_image(source: RealRegistry, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    digest = source.push("links", "1", [tar({"d": ("link", str(outside)), "d/f": "x"})])
    pull(order(source, tmp_path, "links"))
    assert list(outside.iterdir()) == []
    root = Cache(tmp_path / "images").path(FOLDER, digest)
    assert (root / str(outside).lstrip("/") / "f").read_text() == "x"


def test_what_is_there_is_not_asked_for_again_and_a_forced_pull_asks_for_the_digest(
    source: RealRegistry, tmp_path: Path
) -> None:
    first = source.push("moving", "1", [tar({"f": "1"})])
    pull(order(source, tmp_path, "moving"))
    second = source.push("moving", "1", [tar({"f": "2"})])
    before = len(source.requests("GET", "/v2/moving/"))
    assert pull(order(source, tmp_path, "moving")) == first
    assert len(source.requests("GET", "/v2/moving/")) == before
    assert pull(order(source, tmp_path, "moving", force=True)) == second
    cache = Cache(tmp_path / "images")
    assert cache.has(FOLDER, first) and cache.has(FOLDER, second), "a trial that began with the first goes on with it"


@pytest.mark.parametrize(
    "auth, repository, words",
    [
        ({}, "private", "wants a name and a password; set environment.registry_auth"),
        ({"username": "reader", "password": "wrong"}, "private", "401 UNAUTHORIZED: authentication required"),
        (None, "nothing/here", "404 MANIFEST_UNKNOWN: manifest unknown"),
        (None, "private", "404 MANIFEST_UNKNOWN"),
    ],
)
def test_a_refusal_is_told_in_the_words_of_the_registry(
    source: RealRegistry, tmp_path: Path, auth: Any, repository: str, words: str
) -> None:
    source.push("private", "2", [tar({"f": "1"})])
    wanted = order(source, tmp_path, repository, **({} if auth is None else {"auth": auth}))
    with pytest.raises(ImageError, match=words):
        pull(wanted)


def test_credentials_of_a_file_as_docker_writes_it_are_used_for_their_registry_alone(
    source: RealRegistry, tmp_path: Path
) -> None:
    import base64

    source.push("by-file", "1", [tar({"f": "1"})])
    both = base64.b64encode(f"{source.user}:{source.password}".encode()).decode()
    file = tmp_path / "auth.json"
    file.write_text(json.dumps({"auths": {f"http://{source.host}": {"auth": both}}}))
    pull(order(source, tmp_path, "by-file", auth={}, auth_file=str(file)))
    elsewhere = {**source.auth(), "serveraddress": "other.example"}
    with pytest.raises(ImageError, match="wants a name"):
        pull(order(source, tmp_path / "2", "by-file", auth=elsewhere))


def test_a_mirror_is_asked_first_and_the_registry_where_it_has_nothing(source: RealRegistry, tmp_path: Path) -> None:
    digest = source.push("cache/of/thing", "1", [tar({"f": "1"})])
    far = order(source, tmp_path, "thing", mirrors=[f"{source.host}/cache/of"], auth={})
    file = tmp_path / ".docker" / "config.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"auths": {source.host: source.auth()}}))
    from dataclasses import replace

    assert pull(replace(far, registry="registry.invalid", name="registry.invalid/thing:1")) == digest
    source.push("only-here", "1", [tar({"f": "1"})])
    pull(order(source, tmp_path, "only-here", mirrors=[f"{source.host}/cache/of"]))


def was_killed(wanted: Order, cache: Cache, folder: Path) -> bool:
    """As soon as something has come; False: it was quicker."""
    program = start(wanted, folder / "order.json")
    blobs = cache.work(wanted.name, FOLDER) / "blobs"
    wait_until(lambda: program.poll() is not None or (blobs.is_dir() and any(blobs.iterdir())), pause=0.001)
    program.kill()
    program.communicate()
    return program.returncode == -signal.SIGKILL


def test_a_pull_that_is_killed_leaves_nothing_broken_and_the_next_goes_on_where_it_was(
    source: RealRegistry, tmp_path: Path
) -> None:
    layers = [tar({f"f{i}": noise(30)}) for i in range(4)]
    digest = source.push("large", "1", layers)
    for turn in itertools.count():  # until one was killed in its middle
        folder = tmp_path / str(turn)
        folder.mkdir()
        cache, wanted = Cache(folder / "images"), order(source, folder, "large")
        if was_killed(wanted, cache, folder) and not cache.has(FOLDER, digest):
            break
    assert cache.entries() == []
    lock = cache.work(wanted.name, FOLDER) / "lock"
    if lock.exists():
        old = lock.stat().st_mtime - 3600
        os.utime(lock, (old, old))  # nobody touches it
    there = {path.name for path in (cache.work(wanted.name, FOLDER) / "blobs").iterdir()}
    assert there
    before = len(source.requests("GET", "/v2/large/blobs/"))
    assert pull(wanted) == digest
    # Five, and those that the kill cut off, of which the registry tells late.
    assert len(source.requests("GET", "/v2/large/blobs/")) - before <= 9
    assert {path.name for path in cache.path(FOLDER, digest).iterdir()} >= {f"f{i}" for i in range(4)}
    assert list(cache.work(wanted.name, FOLDER).iterdir()) == []


def test_a_part_that_is_damaged_is_brought_again(source: RealRegistry, tmp_path: Path) -> None:
    digest = source.push("damaged", "1", [tar({"f": noise(3)})])
    wanted = order(source, tmp_path, "damaged")
    with source.ask(
        "GET", f"/v2/damaged/manifests/{digest}", Accept="application/vnd.oci.image.manifest.v1+json"
    ) as answer:
        layer = json.load(answer)["layers"][0]["digest"].partition(":")[2]
    blobs = Cache(tmp_path / "images").work(wanted.name, FOLDER) / "blobs"
    blobs.mkdir()
    (blobs / f"{layer}.part").write_bytes(b"what a disk made of it")
    assert pull(wanted) == digest
    assert source.requests("GET", f"blobs/sha256:{layer}")[0].split('"')[2].split()[0] == "206"


def test_five_at_once_bring_it_once(source: RealRegistry, tmp_path: Path) -> None:
    digest = source.push("wanted", "1", [tar({"f": noise(20)})])
    wanted = order(source, tmp_path, "wanted")
    programs = [start(wanted, tmp_path / f"order{i}.json") for i in range(5)]
    said = [program.communicate()[0] for program in programs]
    assert [program.returncode for program in programs] == [0] * 5, said
    assert all(f"is there as {digest}" in text for text in said)
    assert len(source.requests("GET", "/v2/wanted/blobs/")) == 2, "the configuration and one layer"


def test_the_password_is_in_its_file_alone_and_goes_with_the_end_of_the_job(
    source: RealRegistry, tmp_path: Path
) -> None:
    source.push("secret", "1", [tar({"f": noise(40)})])
    wanted, file = order(source, tmp_path, "secret"), tmp_path / "order.json"
    program = start(wanted, file)
    seen = b""
    while program.poll() is None:
        for name in ("cmdline", "environ"):
            try:
                seen += Path(f"/proc/{program.pid}/{name}").read_bytes()
            except OSError:
                break
    out, _ = program.communicate()
    assert program.returncode == 0, out
    assert source.password.encode() not in seen + out.encode() and seen
    assert file.stat().st_mode & 0o077 == 0
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or source.password.encode() not in path.read_bytes(), path


STARTS = {
    FOLDER: ["ch-run", "--set-env={image}/ch/environment", "{image}", "--"],
    SIF: ["apptainer", "exec", "--userns", "{image}"],
}


def test_apptainer_starts_a_squashfs(source: RealRegistry, tmp_path: Path) -> None:
    if shutil.which("apptainer") is None or shutil.which("mksquashfs") is None:
        pytest.skip("needs apptainer and mksquashfs")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("a .sqsh is mounted by /dev/fuse, which may not be opened here")
    digest = source.push("squashed", "1", [tar({**shell_root(), "etc/greeting": "from inside"})])
    pull(order(source, tmp_path, "squashed", format=SQUASHFS))
    image = str(Cache(tmp_path / "images").path(SQUASHFS, digest))
    binds = [Bind(str(tmp_path), "/mnt", read_only=True)]
    wrapped = RUNTIMES["apptainer"].wrap(
        image, ["cat", "/etc/greeting"], binds, Env(), "", Extras("/mnt", options=["--userns"])
    )
    done = subprocess.run(wrapped.command, cwd="/", capture_output=True, text=True)
    assert done.stdout == "from inside", done.stderr


@pytest.mark.parametrize("format", STARTS)
def test_a_runtime_starts_what_was_pulled_with_the_variables_of_the_image(
    source: RealRegistry, tmp_path: Path, format: str
) -> None:
    program = STARTS[format][0]
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}")
    if format == SIF and not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("a .sif is mounted by /dev/fuse, which may not be opened here")
    files = {**shell_root(), "etc/greeting": "from inside"}
    digest = source.push(f"starts/{format}", "1", [tar(files)], env=["PATH=/bin", "GREETING=hello"])
    pull(order(source, tmp_path, f"starts/{format}", format=format))
    image = str(Cache(tmp_path / "images").path(format, digest))
    command = [word.replace("{image}", image) for word in STARTS[format]]
    command += ["/bin/sh", "-c", "echo $GREETING; cat /etc/greeting"]
    done = subprocess.run(command, env={**os.environ, "USER": "root"}, cwd="/", capture_output=True, text=True)
    assert done.stdout == "hello\nfrom inside", done.stderr
