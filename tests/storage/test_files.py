"""Checkpoints on a file system: the contract, and what is particular to files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dethpc.errors import CheckpointError, ConfigError, NotSupportedYet
from dethpc.storage import FileStorage, build, from_string, manifest
from tests.storage.contract import FILES, LISTED, CheckpointStorageContract, fill, flip


class TestSharedFs(CheckpointStorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Any:
        return build({"type": "shared_fs", "host_path": str(tmp_path / "fs"), "storage_path": "ckpt"})


class TestDirectory(CheckpointStorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Any:
        return build({"type": "directory", "container_path": str(tmp_path / "fs")})


@pytest.fixture
def storage(tmp_path: Path) -> FileStorage:
    return FileStorage(tmp_path / "fs")


def test_damage_is_found_and_the_file_named(storage: FileStorage, tmp_path: Path) -> None:
    with storage.store_path("a1") as path:
        fill(path)
    flip(storage.base / "a1" / "weights.pt", 500)
    for use in (lambda: storage.restore_path("a1").__enter__(), lambda: storage.download("a1", tmp_path / "dst")):
        with pytest.raises(CheckpointError, match=r"weights\.pt is damaged"):
            use()
    with FileStorage(storage.base, verify=False).restore_path("a1"):
        pass


def test_a_missing_or_truncated_file_is_named(storage: FileStorage, tmp_path: Path) -> None:
    with storage.store_path("a1") as path:
        fill(path)
    os.truncate(storage.base / "a1" / "weights.pt", 10)
    with pytest.raises(CheckpointError, match=r"weights\.pt has 10 bytes, and had 1000"), storage.restore_path("a1"):
        pass
    (storage.base / "a1" / "weights.pt").unlink()
    with pytest.raises(CheckpointError, match=r"weights\.pt is missing"), storage.restore_path("a1"):
        pass
    with pytest.raises(CheckpointError, match=r"weights\.pt is missing"):
        storage.download("a1", tmp_path / "dst")


def test_damage_behind_the_first_block_of_a_large_file_is_found(storage: FileStorage, tmp_path: Path) -> None:
    size = manifest.BLOCK + (9 << 20)
    with storage.store_path("a1") as path:
        with open(path / "big", "wb") as file:
            file.truncate(size)
    storage.download("a1", tmp_path / "dst")
    assert manifest.load(storage.base / "a1") == manifest.measure(tmp_path / "dst", ["big"])
    flip(storage.base / "a1" / "big", size - 1)
    with pytest.raises(CheckpointError, match="big is damaged"), storage.restore_path("a1"):
        pass


def test_a_checkpoint_that_determined_wrote_is_restored(storage: FileStorage) -> None:
    fill(storage.base / "old")
    with storage.restore_path("old"):
        assert storage.resources("old") == LISTED


def test_a_damaged_manifest_is_an_error(storage: FileStorage) -> None:
    with storage.store_path("a1") as path:
        fill(path)
    (storage.base / "a1" / manifest.NAME).write_text("{")
    with pytest.raises(CheckpointError, match="manifest is damaged"), storage.restore_path("a1"):
        pass


def test_several_processes_write_one_checkpoint(storage: FileStorage) -> None:
    storage.stage("a1")
    fill(storage.stage("a1"), {"rank0": b"0"})
    fill(FileStorage(storage.base).stage("a1"), {"rank1": b"1"})
    storage.flush("a1", ["rank0"])
    FileStorage(storage.base).flush("a1", ["rank1"])
    assert storage.publish("a1", flushed=["rank0", "rank1"]) == {"rank0": 1, "rank1": 1}
    with storage.restore_path("a1"):
        pass


def test_large_files_are_summed_after_publishing_by_several_processes(storage: FileStorage) -> None:
    """Between the two a reader compares sizes alone; a writer that dies there leaves a checkpoint that is whole."""
    fill(storage.stage("a1"), {"rank0": b"0" * (2 << 20), "rank1": b"1" * (2 << 20), "small": b"s"})
    storage.publish("a1", sum_later=True)
    assert sorted(storage.unsummed("a1")) == ["rank0", "rank1", "small"]
    with storage.restore_path("a1"):
        pass
    storage.complete("a1", ["rank0"], part=0)
    FileStorage(storage.base).complete("a1", ["rank1", "small"], part=1)
    assert storage.unsummed("a1") == []
    assert storage.resources("a1") == {"rank0": 2 << 20, "rank1": 2 << 20, "small": 1}
    flip(storage.base / "a1" / "rank1", 1000)
    with pytest.raises(CheckpointError, match="rank1 is damaged"), storage.restore_path("a1"):
        pass
    os.truncate(storage.base / "a1" / "rank0", 10)
    assert storage.delete("a1", ["rank1"]) == {"rank0": 10, "small": 1}
    with pytest.raises(CheckpointError, match="rank0 has 10 bytes"), storage.restore_path("a1"):
        pass


def test_a_writer_that_is_killed_leaves_no_checkpoint(storage: FileStorage) -> None:
    code = (
        "import sys, time; from dethpc.storage import FileStorage\n"
        "with FileStorage(sys.argv[1]).store_path('a1') as path:\n"
        "    (path / 'half').write_bytes(b'x'); print('in', flush=True); time.sleep(60)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(storage.base)], stdout=subprocess.PIPE)
    assert writer.stdout is not None and writer.stdout.readline()
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    with pytest.raises(CheckpointError):
        storage.resources("a1")
    assert storage.clean(older_than=3600) == 0
    for path in [*storage.base.rglob("*")]:
        os.utime(path, (time.time() - 7200, time.time() - 7200))
    assert storage.clean(older_than=3600) == 1
    assert not list(storage.base.iterdir())


def test_an_unwritable_storage_says_where(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(CheckpointError, match=str(tmp_path / "file")),
        FileStorage(tmp_path / "file" / "x").store_path("a"),
    ):
        pass


def test_metadata_is_read_from_the_checkpoint(storage: FileStorage) -> None:
    with storage.store_path("a1") as path:
        (path / "metadata.json").write_text(json.dumps({"steps_completed": 3}))
    assert storage.metadata("a1") == {"steps_completed": 3}


def test_uploading_a_restored_checkpoint_does_not_take_its_manifest_along(storage: FileStorage) -> None:
    with storage.store_path("a1") as path:
        fill(path)
    with storage.restore_path("a1") as path:
        assert storage.upload(path, "a2") == LISTED
    assert set(manifest.load(storage.base / "a2") or {}) == set(FILES)


@pytest.mark.parametrize(
    ("config", "base"),
    [
        ({"type": "shared_fs", "host_path": "/a"}, "/a"),
        ({"type": "shared_fs", "host_path": "/a", "storage_path": "b/c"}, "/a/b/c"),
        ({"type": "shared_fs", "host_path": "/a/", "storage_path": "/a/b"}, "/a/b"),
        ({"type": "shared_fs", "host_path": "/a", "tensorboard_path": "tb"}, "/a"),
        ({"type": "shared_fs", "host_path": "/a", "tensorboard_path": "tb", "checkpoint_path": "old"}, "/a/old"),
        ({"type": "shared_fs", "host_path": "/a", "storage_path": "b", "checkpoint_path": "old"}, "/a/b"),
        ({"type": "shared_fs", "host_path": "/a", "checkpoint_path": "old", "propagation": "rprivate"}, "/a/old"),
        ({"type": "directory", "container_path": "/d", "save_trial_best": 1, "verify": False}, "/d"),
    ],
)
def test_a_section_names_a_directory(config: Any, base: str) -> None:
    assert str(build(config).base) == base


def test_a_container_sees_the_host_path_elsewhere() -> None:
    config = {"type": "shared_fs", "host_path": "/a", "storage_path": "b"}
    assert str(build(config, container_path="/mnt").base) == "/mnt/b"


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"type": "floppy"},
        {"type": "shared_fs"},
        {"type": "shared_fs", "host_path": "relative"},
        {"type": "shared_fs", "host_path": "/a", "storage_path": "../b"},
        {"type": "shared_fs", "host_path": "/a", "storage_path": "/ab"},
        {"type": "directory", "container_path": "/a", "bucket": "b"},
    ],
)
def test_a_wrong_section_is_refused(config: Any) -> None:
    with pytest.raises(ConfigError, match="checkpoint_storage"):
        build(config)


def test_object_stores_are_refused_for_now_and_paths_understood() -> None:
    with pytest.raises(NotSupportedYet, match="s3"):
        from_string("s3://bucket/prefix")
    assert str(from_string("file:///a/b").base) == "/a/b"
    assert from_string("rel").base == Path.cwd() / "rel"
    with pytest.raises(ConfigError):
        from_string("ftp://x/y")


@settings(max_examples=50, deadline=None)
@given(first=st.binary(max_size=300), second=st.binary(max_size=300))
def test_checksums_of_parts_make_that_of_the_whole(first: bytes, second: bytes) -> None:
    whole = manifest.combine(zlib.crc32(first), zlib.crc32(second), len(second))
    assert whole == zlib.crc32(first + second)


@pytest.mark.parametrize("size", [0, 1, (8 << 20) - 1, 8 << 20, (8 << 20) + 1, 64 << 20, (64 << 20) + 5])
def test_a_large_file_has_one_checksum_per_block_however_it_is_read(tmp_path: Path, size: int) -> None:
    data = (b"0123456789abcdef" * ((size >> 4) + 1))[:size]
    (tmp_path / "a").write_bytes(data)
    blocks = tuple(zlib.crc32(data[at : at + manifest.BLOCK]) for at in range(0, size, manifest.BLOCK))
    assert manifest.measure(tmp_path, ["a"])["a"] == manifest.Sum(size, blocks)
    assert manifest.copy(tmp_path / "a", tmp_path / "b") == manifest.Sum(size, blocks)
