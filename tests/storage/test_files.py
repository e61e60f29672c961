"""Checkpoints on a file system: the contract, and what is particular to files."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import threading
import tracemalloc
import zlib
from pathlib import Path
from typing import Any, Callable, Dict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dethpc.errors import CheckpointDamaged, CheckpointError, CheckpointNotOwned, ConfigError
from dethpc.storage import CheckpointStore, build, from_string, manifest
from dethpc.storage.files import FileStore
from dethpc.storage.ownership import Claim, Owner
from tests.storage.contract import (
    FILES,
    LISTED,
    UUID,
    CheckpointStoreContract,
    content_of,
    fill,
    flip,
    stored,
    upload,
    whole_or_none,
)
from tests.storage.dying import died_at_each_step


class _OnAFileSystem(CheckpointStoreContract):
    def damage(self, store: CheckpointStore, uuid: str, path: str) -> None:
        flip(Path(str(store), uuid, path), 0)

    def replace_manifest(self, store: CheckpointStore, uuid: str, text: bytes) -> None:
        Path(str(store), uuid, manifest.NAME).write_bytes(text)

    def beside(self, store: CheckpointStore, folder: str) -> Dict[str, bytes]:
        return content_of(Path(str(store), folder))


class TestSharedFs(_OnAFileSystem):
    @pytest.fixture
    def store(self, tmp_path: Path) -> CheckpointStore:
        return build({"type": "shared_fs", "host_path": str(tmp_path / "fs"), "storage_path": "ckpt"})


class TestDirectory(_OnAFileSystem):
    @pytest.fixture
    def store(self, tmp_path: Path) -> CheckpointStore:
        return build({"type": "directory", "container_path": str(tmp_path / "fs")})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "fs"


@pytest.fixture
def store(folder: Path) -> FileStore:
    return FileStore(folder)


def test_damage_is_found_and_the_file_named(store: FileStore, folder: Path, tmp_path: Path) -> None:
    with stored(store, "a1") as path:
        fill(path)
    flip(folder / "a1" / "weights.pt", 500)
    for use in (lambda: store.restore("a1").__enter__(), lambda: store.download("a1", tmp_path / "dst")):
        with pytest.raises(CheckpointError, match=r"weights\.pt is damaged"):
            use()
    trusting = FileStore(folder)
    trusting.verify = False
    with trusting.restore("a1"):
        pass


def test_a_missing_or_truncated_file_is_named(store: FileStore, folder: Path, tmp_path: Path) -> None:
    with stored(store, "a1") as path:
        fill(path)
    os.truncate(folder / "a1" / "weights.pt", 10)
    with pytest.raises(CheckpointError, match=r"weights\.pt has 10 bytes, and had 1000"), store.restore("a1"):
        pass
    (folder / "a1" / "weights.pt").unlink()
    with pytest.raises(CheckpointDamaged, match=r"weights\.pt is missing"), store.restore("a1"):
        pass
    with pytest.raises(CheckpointDamaged, match=r"weights\.pt is missing"):
        store.download("a1", tmp_path / "dst")


def test_damage_behind_the_first_block_of_a_large_file_is_found(store: FileStore, folder: Path, tmp_path: Path) -> None:
    size = manifest.BLOCK + (9 << 20)
    with stored(store, "a1") as path:
        with open(path / "big", "wb") as file:
            file.truncate(size)
    store.download("a1", tmp_path / "dst")
    assert manifest.load(folder / "a1") == manifest.measure(tmp_path / "dst", ["big"])
    flip(folder / "a1" / "big", size - 1)
    with pytest.raises(CheckpointError, match="big is damaged"), store.restore("a1"):
        pass


def test_a_checkpoint_that_determined_wrote_is_restored(store: FileStore, folder: Path) -> None:
    fill(folder / "old")
    with store.restore("old"):
        assert store.files("old") == LISTED


def test_a_damaged_manifest_is_an_error(store: FileStore, folder: Path) -> None:
    with stored(store, "a1") as path:
        fill(path)
    (folder / "a1" / manifest.NAME).write_text("{")
    with pytest.raises(CheckpointError, match="manifest is damaged"), store.restore("a1"):
        pass


NO_PATHS = ["../x", "/etc/x", "a/../../x", "a\0b", "", ".", "..", "a//b", "\ud800"]


@pytest.mark.parametrize("path", NO_PATHS, ids=ascii)
def test_a_manifest_names_nothing_outside_of_its_checkpoint(
    store: FileStore, folder: Path, tmp_path: Path, path: str
) -> None:
    with stored(store, "a1") as staged:
        fill(staged)
    evil = manifest.encoded({path: manifest.Checksum(1, None)})
    (folder / "a1" / manifest.NAME).write_bytes(evil)
    for read in (lambda: store.download("a1", tmp_path / "there"), lambda: list(store.read("a1"))):
        with pytest.raises(CheckpointDamaged, match="no file of a checkpoint can be called"):
            read()


def test_several_processes_write_one_checkpoint(store: FileStore, folder: Path) -> None:
    store.stage("a1")
    fill(store.stage("a1"), {"rank0": b"0"})
    fill(FileStore(folder).stage("a1"), {"rank1": b"1"})
    safe = {**store.flush("a1", ["rank0"]), **FileStore(folder).flush("a1", ["rank1"])}
    assert store.publish("a1", safe) == {"rank0": 1, "rank1": 1}
    with store.restore("a1"):
        pass


def test_large_files_are_summed_after_publishing_by_several_processes(store: FileStore, folder: Path) -> None:
    """Between the two a reader compares sizes alone; a writer that dies there leaves a checkpoint that is whole."""
    fill(store.stage("a1"), {"rank0": b"0" * (2 << 20), "rank1": b"1" * (2 << 20), "small": b"s"})
    store.publish("a1", defer_checksums=True)
    assert sorted(store.without_checksums("a1")) == ["rank0", "rank1", "small"]
    with store.restore("a1"):
        pass
    store.add_checksums("a1", ["rank0"], part=0)
    FileStore(folder).add_checksums("a1", ["rank1", "small"], part=1)
    assert store.without_checksums("a1") == []
    assert store.files("a1") == {"rank0": 2 << 20, "rank1": 2 << 20, "small": 1}
    flip(folder / "a1" / "rank1", 1000)
    with pytest.raises(CheckpointError, match="rank1 is damaged"), store.restore("a1"):
        pass
    os.truncate(folder / "a1" / "rank0", 10)
    assert store.delete("a1", ["rank1"]) == {"rank0": 10, "small": 1}
    with pytest.raises(CheckpointError, match="rank0 has 10 bytes"), store.restore("a1"):
        pass


@pytest.mark.parametrize(
    "section", [{"type": "shared_fs", "host_path": ""}, {"type": "directory", "container_path": ""}]
)
def test_a_writer_that_is_killed_at_any_step_leaves_a_whole_checkpoint_or_none(
    folder: Path, tmp_path: Path, section: Dict[str, str]
) -> None:
    section = {name: value or str(folder) for name, value in section.items()}
    died = died_at_each_step("save", section, tmp_path)
    store = build(section)
    whole_or_none(store, [f"a{died + 1}"], [f"a{step}" for step in range(1, died + 1)])
    assert any(not one.whole for one in store.names()), "somebody was killed in the middle"
    for step in range(1, died + 1):
        store.discard(f"a{step}")
    assert all(one.whole for one in store.names())


@pytest.mark.parametrize("count", [3, 30])
def test_each_file_is_brought_to_disk_once_and_few_of_them_without_threads(
    store: FileStore, folder: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """No disk of ours loses its power: what was asked of it is looked at, and by whom."""
    asked: list[tuple[str, int]] = []

    def fsync(file: int) -> None:
        asked.append((os.readlink(f"/proc/self/fd/{file}"), threading.get_ident()))

    monkeypatch.setattr(os, "fsync", fsync)
    with stored(store, "a1") as path:
        fill(path, {f"sub/{n}": b"w" for n in range(count)})
    inside = ["", "/sub", f"/{manifest.NAME}", *(f"/sub/{n}" for n in range(count))]
    assert sorted(file for file, _ in asked) == sorted([str(folder), *(f"{path}{one}" for one in inside)])
    assert ({by for _, by in asked} == {threading.get_ident()}) is (count == 3)


def test_a_full_disk_is_named_and_nothing_is_half_there(
    store: FileStore, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with stored(store, "a1") as path:
        fill(path)
    fill(tmp_path / "source")
    with monkeypatch.context() as patched:
        patched.setattr(manifest, "copy", full)
        store.stage("a2")
        with pytest.raises(OSError, match=f"No space left on device: '{folder}'"):
            store.add("a2", tmp_path / "source")
        with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/there'"):
            store.download("a1", tmp_path / "there")
        patched.setattr(manifest, "put", full)
        with pytest.raises(OSError, match=f"No space left on device: '{folder}'"), stored(store, "a3") as path:
            fill(path)
    store.discard("a2")
    whole_or_none(store, ["a1"], ["a2", "a3"])
    assert [one.uuid for one in store.names()] == ["a1"]


def test_an_unwritable_storage_says_where(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(CheckpointError, match=str(tmp_path / "file")),
    ):
        FileStore(tmp_path / "file" / "x").stage("a")


def test_metadata_is_read_from_the_checkpoint(store: FileStore, folder: Path) -> None:
    with stored(store, "a1") as path:
        (path / "metadata.json").write_text(json.dumps({"steps_completed": 3}))
    assert store.metadata("a1") == {"steps_completed": 3}


def test_uploading_a_restored_checkpoint_does_not_take_its_manifest_along(store: FileStore, folder: Path) -> None:
    with stored(store, "a1") as path:
        fill(path)
    with store.restore("a1") as path:
        assert upload(store, path, "a2") == LISTED
    assert set(manifest.load(folder / "a2") or {}) == set(FILES)


@pytest.mark.parametrize(
    ("config", "folder"),
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
def test_a_section_names_a_directory(config: Any, folder: str) -> None:
    assert str(build(config)) == folder


def test_a_container_sees_the_host_path_elsewhere() -> None:
    config = {"type": "shared_fs", "host_path": "/a", "storage_path": "b"}
    assert str(build(config, container_path="/mnt")) == "/mnt/b"


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


def test_paths_and_urls_are_understood() -> None:
    assert str(from_string("s3://bucket/prefix")) == "s3://bucket/prefix"
    assert str(from_string("gs://bucket")) == "gs://bucket"
    assert str(from_string("file:///a/b")) == "/a/b"
    assert str(from_string("rel")) == str(Path.cwd() / "rel")
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
    assert manifest.measure(tmp_path, ["a"])["a"] == manifest.Checksum(size, blocks)
    with open(tmp_path / "a", "rb") as source, open(tmp_path / "b", "wb") as target:
        assert manifest.copy(source, target) == manifest.Checksum(size, blocks)
    assert (tmp_path / "b").read_bytes() == data


@pytest.mark.parametrize("trouble", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_trouble_of_the_storage_is_not_damage_of_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: int
) -> None:
    """No disk of ours fails as it is told to."""
    store, fails = FileStore(tmp_path / "fs"), False
    (store.stage("a1") / "weights.pt").write_bytes(b"w" * 1000)
    store.publish("a1")
    whole = os.stat

    def stat(path: Any, *rest: Any, **more: Any) -> os.stat_result:
        if fails and "a1" in str(path):
            raise OSError(trouble, os.strerror(trouble), str(path))
        return whole(path, *rest, **more)

    monkeypatch.setattr(os, "stat", stat)
    fails = True
    uses = [lambda: store.exists("a1"), lambda: store.files("a1"), lambda: store.restore("a1").__enter__()]
    for use in uses:
        with pytest.raises(OSError, match=os.strerror(trouble)):
            use()


def test_a_manifest_of_a_later_release_is_not_called_damaged(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "fs")
    store.stage("a1")
    store.publish("a1")
    manifest_file = tmp_path / "fs" / "a1" / manifest.NAME
    manifest_file.write_text('{"version": 2, "sections": {}}')
    with pytest.raises(CheckpointError, match="version") as raised, store.restore("a1"):
        pass
    assert not isinstance(raised.value, CheckpointDamaged)


def lose_every_file(checkpoint: Path) -> None:
    """As what cleans a scratch file system up does."""
    for path in checkpoint.rglob("*"):
        if path.is_file():
            path.unlink()


def put_a_directory(checkpoint: Path, name: str) -> None:
    (checkpoint / name).unlink()
    (checkpoint / name).mkdir()


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "every file is gone": lose_every_file,
    "only the directory is there": lambda checkpoint: (shutil.rmtree(checkpoint), checkpoint.mkdir()),
    "a directory in the place of a file": lambda checkpoint: put_a_directory(checkpoint, "sub/w"),
    "a directory in the place of an empty file": lambda checkpoint: put_a_directory(checkpoint, "empty"),
    "a pipe in the place of an empty file": lambda checkpoint: (
        (checkpoint / "empty").unlink(),
        os.mkfifo(checkpoint / "empty"),
    ),
    "a link to nowhere": lambda checkpoint: ((checkpoint / "sub/w").unlink(), (checkpoint / "sub/w").symlink_to("/no")),
    "a directory in the place of the manifest": lambda checkpoint: put_a_directory(checkpoint, manifest.NAME),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_what_is_not_there_as_a_file_is_damage_and_no_trouble_of_the_storage(
    store: FileStore, folder: Path, tmp_path: Path, damage: Callable[[Path], Any]
) -> None:
    staged = store.stage("a1")
    (staged / "sub").mkdir()
    (staged / "sub" / "w").write_bytes(b"w" * 4096)
    (staged / "empty").touch()
    store.publish("a1")
    damage(folder / "a1")
    with pytest.raises(CheckpointDamaged), store.restore("a1"):
        pass
    with pytest.raises(CheckpointDamaged):
        store.download("a1", tmp_path / "copy")


def test_a_manifest_of_gigabytes_is_damage_and_not_in_memory_and_a_small_one_takes_little(
    store: FileStore, folder: Path
) -> None:
    for uuid in ("small", "huge"):
        with stored(store, uuid) as path:
            fill(path)
    os.truncate(folder / "huge" / manifest.NAME, 8 << 30)
    tracemalloc.start()
    try:
        with store.restore("small"):
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        with pytest.raises(CheckpointDamaged, match="it has more than"), store.restore("huge"):
            pass
        assert tracemalloc.get_traced_memory()[1] < 1 << 30
    finally:
        tracemalloc.stop()


def test_a_bit_that_flips_in_a_manifest_is_damage(store: FileStore, folder: Path) -> None:
    (store.stage("a1") / "w").write_bytes(b"w" * 100)
    store.publish("a1")
    path = folder / "a1" / manifest.NAME
    content = path.read_bytes()
    for bit in range(8 * content.rindex(b', "crc32"')):
        path.write_bytes(content[: bit // 8] + bytes([content[bit // 8] ^ 1 << bit % 8]) + content[bit // 8 + 1 :])
        with pytest.raises(CheckpointDamaged), store.restore("a1"):
            pass


def test_a_manifest_of_before_it_had_a_checksum_is_read(store: FileStore, folder: Path) -> None:
    (store.stage("a1") / "w").write_bytes(b"w")
    store.publish("a1")
    path = folder / "a1" / manifest.NAME
    content = json.loads(path.read_bytes())
    del content["crc32"]
    path.write_text(json.dumps(content))
    with store.restore("a1") as restored:
        assert (restored / "w").read_bytes() == b"w"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_what_another_user_keeps_to_themselves_is_left_out_and_never_deleted() -> None:
    with tempfile.TemporaryDirectory() as shared:
        os.chmod(shared, 0o777)
        store = FileStore(Path(shared, "fs"))
        for uuid in ("open", "closed"):
            with stored(store, uuid) as path:
                fill(path)
        fill(store.stage("half"))
        for closed in ("closed", ".half.partial"):
            os.chmod(Path(shared, "fs", closed), 0o700)
        os.seteuid(65534)
        try:
            assert [one.uuid for one in store.names()] == ["open"]
            for uuid in ("open", "closed"):
                with pytest.raises(PermissionError):
                    store.delete(uuid)
            store.discard("half")
        finally:
            os.seteuid(0)
        assert sorted(one.uuid for one in store.names()) == ["closed", "half", "open"]
        whole_or_none(store, ["open", "closed"], [])


@pytest.fixture
def thesis(tmp_path: Path) -> Path:
    """What nobody but its owner is to read, write or delete."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    (place / "thesis.tex").write_text("mine")
    return place


def test_nothing_outside_of_a_checkpoint_is_copied_or_deleted(
    store: FileStore, folder: Path, tmp_path: Path, thesis: Path
) -> None:
    with stored(store, "a1") as path:
        fill(path)
        (path / "latest").symlink_to("weights.pt")
    (folder / "a1" / "out").symlink_to(thesis)
    (folder / "a1" / "stolen").symlink_to(thesis / "thesis.tex")
    assert "out/thesis.tex" not in store.files("a1")
    with pytest.raises(OSError, match="leads out of its folder"):
        store.download("a1", tmp_path / "copy")
    assert not [path for path in (tmp_path / "copy").rglob("*") if path.is_file() and path.read_bytes() == b"mine"]
    assert "weights.pt" in store.delete("a1", ["out/*", "**/thesis.tex", "stolen"])
    assert "out" not in store.delete("a1", ["ou*"])
    (folder / "a2").symlink_to(thesis)
    for globs in (["*.tex"], ["**/*"]):
        assert store.delete("a2", globs) == {}
    with pytest.raises(CheckpointError, match="is a link"):
        store.files("a2")
    store.delete("a1")
    assert os.listdir(folder) == ["a2"] and os.listdir(thesis) == ["thesis.tex"]


def test_a_link_out_of_what_is_uploaded_is_refused_and_one_inside_followed(
    store: FileStore, tmp_path: Path, thesis: Path
) -> None:
    source = tmp_path / "source"
    fill(source)
    (source / "latest").symlink_to("weights.pt")
    assert upload(store, source, "a1")["latest"] == len(FILES["weights.pt"])
    (source / "stolen").symlink_to(thesis / "thesis.tex")
    with pytest.raises(OSError, match="leads out of its folder"):
        upload(store, source, "a2")
    assert not store.exists("a2")


def test_a_download_does_not_write_through_links_in_its_target(store: FileStore, tmp_path: Path, thesis: Path) -> None:
    with stored(store, "a1") as path:
        (path / "weights.pt").write_bytes(b"new")
        (path / "out").mkdir()
        (path / "out" / "thesis.tex").write_bytes(b"new")
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "weights.pt").symlink_to(thesis / "thesis.tex")
    (tmp_path / "target" / "out").symlink_to(thesis)
    with pytest.raises(OSError, match="leads out of its folder"):
        store.download("a1", tmp_path / "target")
    assert (thesis / "thesis.tex").read_text() == "mine"


# --- what two checkpoints have in common ------------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path) -> FileStore:
    """``later`` has what ``earlier`` has under another name, and one file that has changed."""
    store = FileStore(tmp_path / "fs")
    for uuid, files in {
        "earlier": {"embedding": b"e" * 9, "head": b"1", "sub/frozen": b"f" * 9},
        "later": {"moved": b"e" * 9, "head": b"2", "sub/frozen": b"f" * 9},
    }.items():
        with stored(store, uuid) as path:
            fill(path, files)
    return store


def inode(store: FileStore, path: str) -> int:
    return Path(str(store), path).stat().st_ino


LATER = {"moved": b"e" * 9, "head": b"2", "sub/frozen": b"f" * 9}


def test_unchanged_files_are_kept_once_and_outlive_each_other(two: FileStore, tmp_path: Path) -> None:
    assert two.share("later", "earlier", ["moved", "head", "sub/frozen"]) == 18
    assert inode(two, "later/moved") == inode(two, "earlier/embedding")
    assert inode(two, "later/head") != inode(two, "earlier/head")
    assert two.share("later", "earlier", ["moved"]) == 0  # as it is by now
    assert two.share("later", "gone", ["moved"]) == 0
    assert two.files("later") == {"sub/": 0, **{name: len(content) for name, content in LATER.items()}}
    two.delete("earlier", ["emb*"])
    assert not Path(str(two), "earlier/embedding").exists()
    two.delete("earlier")
    with two.restore("later") as path:  # compares its checksums
        assert content_of(path) == LATER
    two.download("later", tmp_path / "copy")
    (tmp_path / "copy" / "moved").write_bytes(b"mine")
    assert Path(str(two), "later/moved").read_bytes() == b"e" * 9


def test_a_shared_file_is_not_written_through_either_name(two: FileStore, tmp_path: Path) -> None:
    two.share("later", "earlier", ["moved"])
    assert [Path(str(two), name).stat().st_mode & 0o222 for name in ("later/moved", "earlier/embedding")] == [0, 0]
    assert Path(str(two), "earlier/sub/frozen").stat().st_mode & 0o200
    upload(two, Path(str(two), "later"), "copied")
    with stored(two, "changed") as staged:
        fill(staged, {"moved": b"new"})
    assert two.share("changed", "later", ["moved"]) == 0
    with two.restore("earlier") as path:
        assert (path / "embedding").read_bytes() == b"e" * 9


def test_files_are_shared_when_their_bytes_are_the_same_not_their_checksums(tmp_path: Path) -> None:
    one, other = b"plumless", b"buckeroo"
    assert zlib.crc32(one) == zlib.crc32(other)
    store = FileStore(tmp_path / "fs")
    for uuid, content in {"earlier": one, "later": other}.items():
        with stored(store, uuid) as path:
            fill(path, {"state": content})
    assert store.share("later", "earlier", ["state"]) == 0
    assert Path(str(store), "later/state").read_bytes() == other


def test_a_file_system_without_links_keeps_both(two: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert two.share("later", "earlier", ["moved", "sub/frozen"]) == 0
    with two.restore("later") as path:
        assert content_of(path) == LATER


def test_what_is_not_there_is_read_from_earlier_folders_in_which_nothing_changes(tmp_path: Path) -> None:
    """As the storage of a home that was copied: of the original it reads."""
    old, new = FileStore(tmp_path / "old"), FileStore(tmp_path / "new", [tmp_path / "none", tmp_path / "old"])
    old.owner, new.owner = Owner("old", "experiment"), Owner("new", "experiment")
    for store, name in ((old, "a1"), (old, UUID), (new, "b1")):
        with stored(store, name) as path:
            fill(path)

    def states() -> Dict[Path, Any]:
        paths = sorted([tmp_path / "old", *(tmp_path / "old").rglob("*")])
        return {path: (state := path.stat()) and (state.st_mtime_ns, state.st_mode, state.st_ino) for path in paths}

    before = states()
    assert new.exists("a1") and not new.exists("c1") and not old.exists("b1")
    with new.restore("a1") as path:
        assert path == tmp_path / "old" / "a1" and content_of(path) == FILES
    new.download("a1", tmp_path / "got")
    assert content_of(tmp_path / "got") == FILES and new.files("a1") == LISTED and new.metadata("a1") == {}
    assert b"".join(next(iter(new.read("a1", "weights.pt".__eq__))).pieces) == FILES["weights.pt"]
    assert new.identity(UUID).owner == old.owner and new.share("b1", "a1", ["weights.pt"]) == 0
    with pytest.raises(CheckpointNotOwned, match="another cluster"):
        new.delete(UUID, claim=Claim("new", "experiment", published=True))
    assert new.delete("a1") == {} and new.delete(UUID, ["*.pt"]) == {}
    new.discard("a1")
    new.add_checksums("a1", ["weights.pt"])
    assert {one.uuid for one in new.names()} == {"b1"}
    assert states() == before
    with stored(new, "a1") as path:  # the trial stores one of that name itself
        fill(path)
    assert new.identity("a1").owner == new.owner


def test_nothing_is_shared_with_another_clusters_checkpoint_whose_files_stay_writable(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")
    for uuid, cluster in (("a1", "another"), ("b1", "mine"), ("c1", "mine")):
        (store.stage(uuid) / "weights.pt").write_bytes(b"w" * (1 << 20))
        store.publish(uuid, owner=Owner(cluster, "experiment"))
    mode = (tmp_path / "store" / "a1" / "weights.pt").stat().st_mode
    assert store.share("b1", "a1", ["weights.pt"]) == 0
    assert (tmp_path / "store" / "a1" / "weights.pt").stat().st_mode == mode
    assert store.share("c1", "b1", ["weights.pt"]) == 1 << 20


@pytest.mark.parametrize("code, full", [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False), (None, False)])
def test_a_store_says_whether_its_disk_or_a_quota_is_full(
    code: int | None, full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path / "not-there-yet")

    def failing(fd: int) -> None:
        if code is not None:
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", failing)
    assert store.full() == (f"{tmp_path / 'not-there-yet'}: {os.strerror(code)}" if full and code else "")
    assert list(tmp_path.iterdir()) == []
