"""Checkpoints through the master: as archives, and unpacked by the client."""

from __future__ import annotations

import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dethpc import storage
from dethpc.client.session import ForbiddenException
from dethpc.errors import (
    ConfigError,
    DethpcError,
    MissingDriver,
    MultipleDownloadsFailed,
    NotFound,
    ProxiedDownloadFailed,
    Refused,
)
from dethpc.experimental._download import download, through_master
from dethpc.experimental.checkpoint import Checkpoint
from dethpc.experimental.client import DownloadMode
from dethpc.master.http.auth import mint_run_token
from dethpc.storage import CheckpointStore, manifest
from tests.master.conftest import CONFIG, Published, Served, experiment, run_of, trained, trial, uuid_of
from tests.storage.contract import FILES, HOSTILE, content_of, fill, flip, stored
from tests.storage.servers import S3, s3_server

__all__ = ["s3_server"]

UUID = uuid_of(1, 2)
Keep = Callable[..., CheckpointStore]


@pytest.fixture
def keep(served: Served, tmp_path: Path) -> Keep:
    """A checkpoint with these files, in this storage or in a folder."""

    def keep(section: Any = None, files: Any = FILES) -> CheckpointStore:
        section = section or {"type": "shared_fs", "host_path": str(tmp_path / "shared")}
        config = {**CONFIG, "checkpoint_storage": section}
        served.put([experiment(1, config=config), *trained(trial(1))])
        store = storage.build(section, disk=str(tmp_path / "disk"))
        with stored(store, UUID) as path:
            fill(path, files)
        return store

    return keep


def got(served: Served, accept: str, **params: Any) -> bytes:
    session = served.session
    ask = session._headers
    session._headers = lambda body: {**ask(body), "Accept": accept}  # type: ignore[method-assign]
    try:
        return b"".join(session.chunks(f"/checkpoints/{UUID}", params))
    finally:
        session._headers = ask  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "accept", ["application/x-tar", "application/gzip", "application/x-gtar", "*/*", "text/html, */*"]
)
def test_a_tar_file_holds_all_of_it(served: Served, keep: Keep, accept: str, tmp_path: Path) -> None:
    keep()
    body = got(served, accept)
    assert body.startswith(b"\x1f\x8b") is (accept.startswith("application/g") or "gtar" in accept)
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        archive.extractall(tmp_path / "there")
    assert content_of(tmp_path / "there") == FILES


def test_so_does_a_zip_file(served: Served, keep: Keep) -> None:
    keep()
    with zipfile.ZipFile(io.BytesIO(got(served, "application/zip"))) as archive:
        assert archive.testzip() is None
        assert {n: archive.read(n) for n in archive.namelist() if not n.endswith("/")} == FILES
    with pytest.raises(Refused, match="application/x-tar"):
        got(served, "image/png")


def test_globs_choose_files_and_a_path_where_to_go_on(served: Served, keep: Keep) -> None:
    keep()

    def names(**params: Any) -> list[str]:
        with tarfile.open(fileobj=io.BytesIO(got(served, "*/*", **params))) as archive:
            return [member.name for member in archive if member.isreg()]

    assert names(path="*.pt") == ["weights.pt"]
    assert names(path=["sub"]) == ["sub/deep/state", "sub/ünïcode name"]
    assert names(after="sub/deep/state") == ["sub/ünïcode name", "weights.pt"]
    assert names(path="nothing") == [] == names(after="weights.pt")


def test_only_who_may_read_the_checkpoint_gets_it(served: Served, keep: Keep, tmp_path: Path) -> None:
    keep()
    served.put([experiment(2), trial(2, 2)])
    runs = [run_of(trial(id, id), 2) for id in (1, 2)]
    mine, other = (served.as_run(run, mint_run_token(run.id)[0]) for run in runs)
    (tmp_path / "mine").mkdir()
    assert through_master(mine, UUID, tmp_path / "mine") == len(FILES)
    with pytest.raises(ForbiddenException):
        through_master(other, UUID, tmp_path / "mine")


def test_what_cannot_be_had_is_said_instead_of_an_archive(served: Served, keep: Keep, tmp_path: Path) -> None:
    store = keep()
    with pytest.raises(NotFound):
        through_master(served.session, "nope", tmp_path)
    store.delete(UUID)
    with pytest.raises(NotFound, match=f"{UUID} is not in"):
        through_master(served.session, UUID, tmp_path)
    served.session.delete("/api/v1/checkpoints", json={"checkpointUuids": [UUID]})
    with pytest.raises(Refused, match="DELETED"):
        through_master(served.session, UUID, tmp_path)


def test_a_link_that_leads_out_of_a_checkpoint_is_not_followed(served: Served, keep: Keep, tmp_path: Path) -> None:
    keep()
    (tmp_path / "secret").write_text("w" * 1000)
    weights = tmp_path / "shared" / UUID / "weights.pt"
    weights.unlink()
    weights.symlink_to(tmp_path / "secret")
    with pytest.raises(Exception, match=r"weights\.pt"):
        through_master(served.session, UUID, tmp_path)
    assert not (tmp_path / "weights.pt").exists()


def test_a_damaged_file_breaks_the_answer_off(
    served: Served, keep: Keep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dethpc.experimental._download.time.sleep", lambda _: None)
    keep(files={"a": b"1", "b": b"2" * (3 << 20), "c": b"3"})
    flip(tmp_path / "shared" / UUID / "b", 5)
    (tmp_path / "there").mkdir()
    with pytest.raises(ProxiedDownloadFailed, match="breaks off after a "):
        through_master(served.session, UUID, tmp_path / "there")
    assert content_of(tmp_path / "there") == {"a": b"1"}


def test_a_manifest_that_cannot_be_right_is_said_and_its_checkpoint_listed_and_deleted(
    served: Served, keep: Keep, s3_server: S3, tmp_path: Path
) -> None:
    section = s3_server.section()
    keep(section)
    s3_server.put(section, f"{UUID}/{manifest.NAME}", HOSTILE["a negative size"])
    session = served.session
    with pytest.raises(Refused, match=f"checkpoint {UUID}: its manifest is damaged"):
        b"".join(session.chunks(f"/checkpoints/{UUID}"))
    session.post("/api/v1/checkpoints/rm", {"checkpointUuids": [UUID], "checkpointGlobs": []})
    found = session.get(f"/api/v1/checkpoints/{UUID}")["checkpoint"]
    assert found["state"] != "STATE_DELETED" and set(FILES) <= set(found["resources"])
    session.delete("/api/v1/checkpoints", {"checkpointUuids": [UUID]})
    assert session.get(f"/api/v1/checkpoints/{UUID}")["checkpoint"]["reason"] == "its files are being removed"


def test_an_endpoint_with_a_password_in_it_is_said_to_be_wrong_and_not_away(served: Served, tmp_path: Path) -> None:
    section = {"type": "s3", "bucket": "b", "endpoint_url": "http://me:hunter2@127.0.0.1:9/"}
    served.put([experiment(1, config={**CONFIG, "checkpoint_storage": section}), *trained(trial(1))])
    assert served.session.get(f"/api/v1/checkpoints/{UUID}")["checkpoint"]["uuid"] == UUID
    with pytest.raises(ConfigError, match="keys go to access_key and secret_key") as raised:
        b"".join(served.session.chunks(f"/checkpoints/{UUID}"))
    assert "********@" in str(raised.value) and "hunter2" not in str(raised.value)


@pytest.mark.parametrize("mode", [DownloadMode.MASTER, DownloadMode.DIRECT, DownloadMode.AUTO])
def test_a_download_that_fails_leaves_no_empty_folder(
    served: Served, keep: Keep, tmp_path: Path, mode: DownloadMode
) -> None:
    store = keep(files={"a": b"1"})
    found = Checkpoint._from_wire(served.session, served.session.get(f"/api/v1/checkpoints/{UUID}")["checkpoint"])
    store.delete(UUID)  # and nobody has told the master
    (tmp_path / "there").mkdir()
    for target in (tmp_path / "new" / "deep", tmp_path / "there"):
        with pytest.raises((DethpcError, OSError)):
            found.download(str(target), mode=mode)
    assert not (tmp_path / "new").exists() and (tmp_path / "there").is_dir()


@pytest.mark.parametrize("mode", [*DownloadMode])
def test_a_download_of_files_that_are_not_there_says_which_are_and_leaves_nothing(
    served: Served, keep: Keep, tmp_path: Path, mode: DownloadMode
) -> None:
    keep(files={"a.pt": b"1", "code/net.py": b"2"})
    wire = served.session.get(f"/api/v1/checkpoints/{UUID}")["checkpoint"]
    wire["resources"] = {"a.pt": "1", "code/": "0", "code/net.py": "1"}
    (tmp_path / "there").mkdir()
    for target in (tmp_path / "new" / "deep", tmp_path / "there"):
        with pytest.raises(
            Refused, match=rf"no file of checkpoint {UUID} matches b\.\* or c; it has a.pt, code/net.py$"
        ):
            download(served.session, wire, target, mode, ["b.*", "c"])
    assert not (tmp_path / "new").exists() and not list((tmp_path / "there").iterdir())
    download(served.session, wire, tmp_path / "new", mode, ["b.*", "code"])
    assert content_of(tmp_path / "new") == {"code/net.py": b"2"}


def test_an_answer_that_breaks_off_goes_on_behind_the_last_whole_file(
    served: Served, keep: Keep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dethpc.master.experiments.archives import checkpoint_archives

    monkeypatch.setattr("dethpc.experimental._download.time.sleep", lambda _: None)
    files = {f"part{n}": bytes([n]) * (1 << 20) for n in range(6)}
    keep(files=files)
    real, breaks = checkpoint_archives._tar, [3, 2]

    def breaking(out: Any, contents: Iterator[Any], at: float) -> Iterator[None]:
        left = breaks.pop(0) if breaks else 100
        for n, _ in enumerate(real(out, contents, at)):
            if n == 2 * left:
                raise OSError("the storage does not answer")
            yield

    monkeypatch.setattr(checkpoint_archives, "_tar", breaking)
    (tmp_path / "there").mkdir()
    assert through_master(served.session, UUID, tmp_path / "there") == 6 and not breaks
    assert content_of(tmp_path / "there") == files


def test_little_of_a_large_checkpoint_is_in_memory_at_a_time(served: Served, keep: Keep) -> None:
    import tracemalloc

    keep(files={"large": bytes(64 << 20)})
    tracemalloc.start()
    try:
        size = sum(map(len, served.session.chunks(f"/checkpoints/{UUID}")))
        assert size > 64 << 20 and tracemalloc.get_traced_memory()[1] < 48 << 20
    finally:
        tracemalloc.stop()


def test_an_object_store_is_read_with_the_keys_that_the_master_has(
    served: Served, keep: Keep, s3_server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers to the user mask them."""
    keep(s3_server.section(), {"large": bytes(range(256)) * (36 << 12), **FILES})
    found = Checkpoint._from_wire(served.session, served.session.get(f"/api/v1/checkpoints/{UUID}")["checkpoint"])
    target = Path(found.download(str(tmp_path / "there"), DownloadMode.MASTER))
    assert content_of(target) == {"large": bytes(range(256)) * (36 << 12), **FILES}


def test_auto_goes_to_the_storage_and_else_to_the_master(
    served: Served, keep: Keep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = keep()
    found = Checkpoint._from_wire(served.session, served.session.get(f"/api/v1/checkpoints/{UUID}")["checkpoint"])
    asked: list[str] = []
    chunks = served.session.chunks
    monkeypatch.setattr(served.session, "chunks", lambda path, params: asked.append(path) or chunks(path, params))
    found.download(str(tmp_path / "direct"))
    assert not asked

    def without_driver(section: Any, **_: Any) -> CheckpointStore:
        raise MissingDriver("s3://bucket needs s3fs: pip install 'dethpc[s3]'")

    monkeypatch.setattr("dethpc.experimental._download.storage", SimpleNamespace(build=without_driver))
    with pytest.raises(MissingDriver, match="pip install"):
        found.download(str(tmp_path / "none"), DownloadMode.DIRECT)
    assert content_of(Path(found.download(str(tmp_path / "through")))) == FILES and asked
    store.delete(UUID)
    with pytest.raises(MultipleDownloadsFailed, match="needs s3fs.*is not in"):
        found.download(str(tmp_path / "neither"))


def test_the_published_client_gets_it_through_the_master(
    published: Published, served: Served, keep: Keep, s3_server: S3
) -> None:
    keep(s3_server.section(), {"metadata.json": b"{}", "code/net.py": b"1", "weights.pt": os.urandom(3 << 20)})
    published.det("checkpoint", "download", UUID, "-o", "got", "--mode", "master")
    assert set(content_of(published.folder / "got")) == {"metadata.json", "code/net.py", "weights.pt"}
    path = published.python(
        f"found = client.get_checkpoint({UUID!r})\n"
        "from determined.common.experimental.checkpoint import DownloadMode\n"
        "print(json.dumps(found.download('again', mode=DownloadMode.MASTER)))"
    )
    assert json.loads((published.folder / path / "metadata.json").read_text()) == {}
