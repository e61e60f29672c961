"""The contract, by a bucket of moto's server."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

import pytest
from botocore import httpchecksum
from s3fs import S3FileSystem

from dethpc import core
from dethpc.common import storage
from dethpc.storage import build, manifest
from dethpc.storage.driver import Driver, StoreAway
from dethpc.storage.spool import Spool
from tests.storage.contract import FILES, HOSTILE, content_of, fill
from tests.storage.objects import ObjectStoreContract
from tests.storage.proxy import Proxy
from tests.storage.servers import S3, Server, s3_server

__all__ = ["s3_server"]


class TestS3(ObjectStoreContract):
    @pytest.fixture
    def server(self, s3_server: S3) -> Server:
        return s3_server


def test_code_outside_of_the_cluster_makes_a_manager_for_a_bucket(s3_server: S3, tmp_path: Path) -> None:
    section = s3_server.section()
    manager: Any = storage.build({**section, "save_trial_best": 1}, None)
    assert isinstance(manager, storage.S3StorageManager) and not manager.store_path_is_direct_access()
    storage.validate_manager(manager)
    context = core.DummyCheckpointContext(core.DummyDistributedContext(), manager)
    with context.store_path({"steps_completed": 3}) as (path, uuid):
        (path / "model").write_text("weights")
    manager.upload(tmp_path, "whole")
    with manager.restore_path(uuid) as path:
        assert (path / "model").read_text() == "weights"
    assert manager.delete(uuid) == {} and [one.uuid for one in manager.names()] == ["whole"]


def test_what_is_damaged_in_the_bucket_makes_room_for_the_copy_in_the_spool(s3_server: S3, tmp_path: Path) -> None:
    section = s3_server.section()
    store, spool = build(section, disk=str(tmp_path / "disk")), Spool(tmp_path / "spool")
    fill(tmp_path / "source")
    spool.put("a1", tmp_path / "source")
    s3_server.put(section, f"a1/{manifest.NAME}", HOSTILE["deep"])
    spool.move("a1", store)
    assert not spool.exists("a1")
    with store.restore("a1") as path:
        assert content_of(path) == FILES


def test_a_checkpoint_costs_few_requests_beside_its_files(s3_server: S3, tmp_path: Path) -> None:
    asked: list[str] = []

    def choose(method: str, path: str) -> None:
        asked.append(f"{method} {path}")

    section = s3_server.section()
    with Proxy(s3_server.url, choose) as proxy:
        store = build({**section, "endpoint_url": proxy.url}, disk=str(tmp_path / "disk"))
        fill(store.stage("a1"), {f"part{n}": b"1" for n in range(20)})
        store.publish("a1")
        assert len([one for one in asked if "/part" in one]) == 20
        # Is it there already (twice: when staged, and when sent); that it is being brought; has all arrived; the manifest;
        # nobody brings it any more.
        assert len(asked) <= 26, asked
        asked.clear()
        assert store.exists("a1") and [one.split()[0] for one in asked] == ["GET"], "its manifest alone"


def test_what_is_summed_here_is_not_summed_again_by_the_driver(
    s3_server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summed: list[int] = []
    update = httpchecksum.Crc32Checksum.update

    def counted(self: Any, piece: Any) -> None:
        summed.append(len(piece))
        update(self, piece)

    monkeypatch.setattr(httpchecksum.Crc32Checksum, "update", counted)
    small, large = b"s" * 100_000, bytes(range(256)) * (20 << 12)
    section = s3_server.section()

    def saved(uuid: str) -> Any:
        store: Any = build(section, disk=str(tmp_path / uuid))
        fill(store.stage(uuid), {"small": small, "large": large})
        store.publish(uuid)
        name = store._driver._key(f"{uuid}/small")
        return store._driver.call("head_object", 0.0, Key=name, ChecksumMode="ENABLED").get("ChecksumCRC32")

    assert saved("a1") == base64.b64encode(zlib.crc32(small).to_bytes(4, "big")).decode()
    assert summed and max(summed) < len(small), "those of a few marks alone"
    S3FileSystem.clear_instance_cache()
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    try:
        assert saved("a2") is None
    finally:
        S3FileSystem.clear_instance_cache()


def test_a_listing_goes_on_behind_its_first_thousand(s3_server: S3, tmp_path: Path) -> None:
    section = s3_server.section()
    for n in range(1003):
        s3_server.put(section, f"a1/{n:04d}", b"1")
    s3_server.put(section, "a1/metadata.json", b"{}")
    assert len(build(section, disk=str(tmp_path / "disk")).files("a1")) == 1004


def test_of_a_large_file_only_the_part_that_failed_is_sent_again(s3_server: S3, tmp_path: Path) -> None:
    sent: list[str] = []

    def choose(method: str, path: str) -> str | None:
        if method != "PUT" or "partNumber=" not in path:
            return None
        sent.append(path.partition("partNumber=")[2].partition("&")[0])
        return "500" if sent.count("2") == 1 and sent[-1] == "2" else None

    section = s3_server.section()
    content = bytes(range(256)) * (36 << 12)
    with Proxy(s3_server.url, choose) as proxy:
        store = build({**section, "endpoint_url": proxy.url}, disk=str(tmp_path / "disk"))
        (store.stage("a1") / "large").write_bytes(content)
        store.publish("a1")
    assert sorted(sent) == ["1", "2", "2", "3"]
    store = build(section, disk=str(tmp_path / "another"))
    with store.restore("a1") as path:
        assert (path / "large").read_bytes() == content


def test_a_bucket_that_is_overloaded_is_asked_again_and_one_that_denies_access_is_not(
    s3_server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Driver, "pause", 0.02)
    faults = iter(["SlowDown", "SlowDown", None, "SlowDown"])
    section = s3_server.section()
    with Proxy(s3_server.url, lambda *_: next(faults, None)) as proxy:
        store = build({**section, "endpoint_url": proxy.url}, disk=str(tmp_path / "disk"))
        fill(store.stage("a1"))
        store.publish("a1")
        assert proxy.met == ["SlowDown"] * 3 and store.exists("a1")
    met = iter([None])
    with Proxy(s3_server.url, lambda *_: next(met, "AccessDenied")) as proxy:
        store = build({**section, "endpoint_url": proxy.url}, disk=str(tmp_path / "disk"))
        fill(store.stage("a2"))
        with pytest.raises(PermissionError, match="AccessDenied, please"):
            store.publish("a2")
        assert proxy.met == ["AccessDenied"]


def test_a_bucket_that_has_taken_a_checkpoint_and_refuses_the_next_one_is_away_until_it_takes_it(
    s3_server: S3, tmp_path: Path
) -> None:
    """Keys ran out, or somebody changed the bucket's policy: the training need not end for that."""
    refuses = False
    with Proxy(s3_server.url, lambda *_: "AccessDenied" if refuses else None) as proxy:
        store = build({**s3_server.section(), "endpoint_url": proxy.url}, disk=str(tmp_path / "disk"))
        fill(store.stage("a1"))
        store.publish("a1")
        refuses = True
        fill(store.stage("a2"))
        for bring in (lambda: store.publish("a2"), lambda: store.flush("a2", ["weights"])):
            with pytest.raises(StoreAway, match="AccessDenied, please") as failed:
                bring()
            assert store.may_come_back(failed.value)
        refuses = False
        store.publish("a2")
        assert store.exists("a2")


@pytest.mark.parametrize("full", ["XMinioStorageFull", "QuotaExceeded", "XMinioAdminBucketQuotaExceeded"])
def test_a_full_bucket_is_away_until_it_has_room_also_for_the_first_checkpoint(
    s3_server: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    monkeypatch.setattr(Driver, "pause", 0.02)
    is_full = True
    with Proxy(s3_server.url, lambda method, _: full if is_full and method in ("PUT", "POST") else None) as proxy:
        store = build({**s3_server.section(), "endpoint_url": proxy.url}, disk=str(tmp_path / "disk"))
        store._patience = 0.5  # type: ignore[attr-defined]
        fill(store.stage("a1"))
        for bring in (lambda: store.flush("a1", ["weights"]), lambda: store.publish("a1")):
            with pytest.raises(StoreAway, match=f"s3://.*: .*{full}, please") as failed:
                bring()
            assert store.may_come_back(failed.value)
        is_full = False
        store.publish("a1")
        assert store.exists("a1")
