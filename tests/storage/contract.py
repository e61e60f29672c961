"""What every checkpoint store must do. A store's test class inherits from ``CheckpointStoreContract``."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import pytest

from dethpc.errors import CheckpointDamaged, CheckpointError, CheckpointNotOwned
from dethpc.storage import CheckpointStore, manifest
from dethpc.storage.ownership import UNKNOWN, Claim, Identity, Owner

UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"

FILES: Dict[str, bytes] = {
    "weights.pt": b"w" * 1000,
    "sub/deep/state": b"",
    "sub/ünïcode name": b"x",
    "metadata.json": b"{}",
}
LISTED = {"sub/": 0, "sub/deep/": 0, **{name: len(content) for name, content in FILES.items()}}


def _of(files: Any) -> bytes:
    return json.dumps({"version": 1, "block": manifest.BLOCK, "files": files}).encode()


HOSTILE: Dict[str, bytes] = {
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "empty": b"",
    "no object": b"[]",
    "no UTF-8": _of({"w": {"size": 1}}).replace(b'"w"', b'"\xff"'),
    "UTF-16": _of({"w": {"size": 1}}).decode().encode("utf-16"),
    "NaN": _of({"w": {"size": float("nan")}}),
    "infinity": _of({"w": {"size": float("inf")}}),
    "no files": _of(None),
    "a list of files": _of([["w", 1]]),
    "a file that is nothing": _of({"w": None}),
    "a negative size": _of({"w": {"size": -1}}),
    "a size that is text": _of({"w": {"size": "1"}}),
    "half a byte": _of({"w": {"size": 1.5}}),
    "a size that is a truth": _of({"weights.pt": {"size": True}}),
    "a size that no disk has": _of({"w": {"size": 1 << 62}}),
    "a size that no word holds": _of({"w": {"size": 10**400}}),
    "a number that is not read": _of({"w": {"size": 0}}).replace(b"0", b"9" * 5000),
    "a name twice": _of({"w": {"size": 1}, "x": {"size": 1}}).replace(b'"x"', b'"w"'),
    "a file in a file": _of({"weights.pt": {"size": 1000}, "weights.pt/x": {"size": 1}}),
    "a folder with bytes": _of({"sub/": {"size": 5}}),
    "too few checksums": _of({"w": {"size": 1, "crc32": []}}),
    "too many checksums": _of({"w": {"size": 1, "crc32": ["00000000"] * 3}}),
    "a checksum that is none": _of({"w": {"size": 1, "crc32": ["-1"]}}),
    "checksums that are nothing": _of({"w": {"size": 1, "crc32": None}}),
    "a long name": _of({"w" * 300: {"size": 1}}),
    "a long path": _of({"/".join(["w" * 200] * 30): {"size": 1}}),
    "a name that leads out": _of({"../a0/weights.pt": {"size": 1000}}),
    "half a surrogate pair": _of({"\ud800": {"size": 1}}),
    "its own name": _of({manifest.NAME: {"size": 1}}),
}


def fill(root: Path, files: Dict[str, bytes] = FILES) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


def content_of(root: Path) -> Dict[str, bytes]:
    found = {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}
    return {name: content for name, content in found.items() if not name.startswith(".dethpc")}


@contextlib.contextmanager
def stored(store: CheckpointStore, uuid: str) -> Iterator[Path]:
    """A directory to write into, published when the block ends well and discarded when it does not."""
    staged = store.stage(uuid)
    try:
        yield staged
        store.publish(uuid)
    except BaseException:
        store.discard(uuid)
        raise


def upload(store: CheckpointStore, source: Path, uuid: str, paths: Optional[Sequence[str]] = None) -> Dict[str, int]:
    store.stage(uuid)
    return store.publish(uuid, store.add(uuid, source, paths))


def whole_or_none(store: CheckpointStore, whole: Sequence[str], others: Sequence[str]) -> None:
    """Each of the ``others`` is there whole, or nothing of it can be read; ``whole`` are there in any case."""
    for uuid in [*whole, *others]:
        if uuid in whole or store.exists(uuid):
            with store.restore(uuid) as path:
                assert content_of(path) == FILES, uuid
        else:
            with pytest.raises(CheckpointError), store.restore(uuid):
                pass
    assert {one.uuid for one in store.names() if one.whole} == {u for u in [*whole, *others] if store.exists(u)}


class CheckpointStoreContract:
    @pytest.fixture
    def store(self, tmp_path: Path) -> CheckpointStore:
        raise NotImplementedError

    def elsewhere(self, store: CheckpointStore) -> CheckpointStore:
        """The same store, as another machine has it."""
        found: CheckpointStore = pickle.loads(pickle.dumps(store))
        return found

    def damage(self, store: CheckpointStore, uuid: str, path: str) -> None:
        """Turn a bit of the file over, behind the store's back."""
        raise NotImplementedError

    def replace_manifest(self, store: CheckpointStore, uuid: str, text: bytes) -> None:
        """Behind the store's back."""
        raise NotImplementedError

    def beside(self, store: CheckpointStore, folder: str) -> Dict[str, bytes]:
        """The files of a folder beside the checkpoints, behind the store's back."""
        raise NotImplementedError

    # --- one writer -----------------------------------------------------------------------------------------------------

    def test_a_checkpoint_names_its_owner_who_alone_may_delete_it(self, store: CheckpointStore) -> None:
        mine, others = Owner("cluster", "of-mine", 5, 7), Owner("cluster", "of-others", 6, 8)
        store.owner = mine
        with stored(store, UUID) as path:
            fill(path)
        assert self.elsewhere(store).identity(UUID) == Identity(True, True, mine)
        foreign = [Claim("cluster", others.experiment, True), Claim("copy", mine.experiment, True), Claim("", "", True)]
        for claim in foreign:
            with pytest.raises(CheckpointNotOwned, match=f"{UUID}.*experiment 5 of cluster cluster"):
                store.check_claim(UUID, claim)
            for globs in (("**/*",), ("*.pt",)):
                with pytest.raises(CheckpointNotOwned):
                    store.delete(UUID, globs, claim=claim)
        assert store.files(UUID) == LISTED
        store.delete(UUID, ("*.pt",), claim=Claim("cluster", "of-mine"))
        assert store.identity(UUID).owner == mine and "weights.pt" not in store.files(UUID)
        store.delete(UUID, claim=Claim("cluster", "of-mine"))
        assert not store.exists(UUID) and store.identity(UUID) == Identity(False)
        store.delete(UUID, claim=foreign[0])  # what is not there is nobody's

    def test_one_who_publishes_anothers_checkpoint_names_the_other(self, store: CheckpointStore) -> None:
        other = Owner("cluster", "of-others", 6, 8)
        store.owner = Owner("cluster", "of-mine", 5, 7)
        store.stage(UUID)
        store.publish(UUID, owner=other)
        assert store.identity(UUID).owner == other

    def test_what_names_nobody_is_deleted_by_who_is_known_to_have_published_it(self, store: CheckpointStore) -> None:
        for name in (UUID, "thesis"):
            with stored(store, name) as path:
                fill(path)
            assert store.identity(name) == Identity(True, True)
            with pytest.raises(CheckpointNotOwned, match="names no experiment"):
                store.delete(name, claim=Claim("cluster", "of-mine"))
        store.delete(UUID, claim=Claim("cluster", "of-mine", published=True))
        with pytest.raises(CheckpointNotOwned, match="names no experiment"):  # no release has ever called one so
            store.delete("thesis", claim=Claim("cluster", "of-mine", published=True))
        assert not store.exists(UUID) and store.files("thesis") == LISTED

    def test_a_damaged_manifest_still_names_its_owner(self, store: CheckpointStore) -> None:
        store.owner = Owner("cluster", "of-mine", 5, 7)
        with stored(store, UUID) as path:
            fill(path)
        text = manifest.encoded({"w": manifest.Checksum(1, (2,))}, store.owner)
        self.replace_manifest(store, UUID, text[:-20])
        assert store.identity(UUID).owner == store.owner
        unknown = [text.replace(b'"trial": 7', b'"trial": "7"'), text.replace(b"of-mine", b"of-m/ne")]
        for wrong in (b"", b"{", *unknown):
            self.replace_manifest(store, UUID, wrong)
            assert store.identity(UUID) == Identity(True, True, UNKNOWN if wrong in unknown else None)
            with pytest.raises(CheckpointNotOwned):
                store.delete(UUID, claim=Claim("cluster", "of-mine", published=wrong in unknown))

    def test_what_was_stored_is_restored(self, store: CheckpointStore) -> None:
        with stored(store, "a1") as path:
            fill(path)
        assert store.files("a1") == LISTED
        with store.restore("a1") as path:
            assert content_of(path) == FILES

    def test_a_checkpoint_is_invisible_until_it_is_whole(self, store: CheckpointStore) -> None:
        with stored(store, "a1") as path:
            fill(path)
            store.flush("a1", ["weights.pt"])
            assert not store.exists("a1")
            with pytest.raises(CheckpointError, match="a1"):
                store.files("a1")
        assert store.exists("a1") and self.elsewhere(store).exists("a1")

    def test_what_is_discarded_leaves_nothing(self, store: CheckpointStore) -> None:
        with pytest.raises(KeyError), stored(store, "a1") as path:
            fill(path)
            store.flush("a1", ["weights.pt"])
            raise KeyError
        assert not store.exists("a1")
        with stored(store, "a1") as path:
            assert not list(path.iterdir())
        assert store.files("a1") == {}

    def test_a_published_checkpoint_is_not_discarded(self, store: CheckpointStore) -> None:
        with stored(store, "a1") as path:
            fill(path)
        store.discard("a1")
        store.leave("a1")
        with store.restore("a1") as path:
            assert content_of(path) == FILES

    def test_a_name_is_published_once(self, store: CheckpointStore, tmp_path: Path) -> None:
        late = self.elsewhere(store)
        late.stage("a1")
        with stored(store, "a1") as path:
            fill(path)
        with pytest.raises(CheckpointError, match="exists"):
            store.stage("a1")
        with pytest.raises(CheckpointError):
            late.publish("a1")
        assert store.files("a1") == LISTED

    def test_adding_and_downloading_copy_everything(self, store: CheckpointStore, tmp_path: Path) -> None:
        fill(tmp_path / "src")
        assert upload(store, tmp_path / "src", "a1") == LISTED
        store.download("a1", tmp_path / "dst")
        assert content_of(tmp_path / "dst") == FILES
        assert content_of(tmp_path / "src") == FILES

    def test_the_named_paths_alone_are_added(self, store: CheckpointStore, tmp_path: Path) -> None:
        fill(tmp_path / "src")
        listed = {"sub/": 0, "sub/deep/": 0, "weights.pt": 1000}
        assert upload(store, tmp_path / "src", "a1", ["sub/deep/", "weights.pt"]) == listed
        assert store.files("a1") == listed

    def test_what_is_no_directory_is_not_added(self, store: CheckpointStore, tmp_path: Path) -> None:
        store.stage("a1")
        with pytest.raises(CheckpointError, match="nowhere"):
            store.add("a1", tmp_path / "nowhere")

    # --- several writers ------------------------------------------------------------------------------------------------

    def test_machines_write_one_checkpoint(self, store: CheckpointStore, tmp_path: Path) -> None:
        other = self.elsewhere(store)
        fill(store.stage("a1"), {"rank0": b"0"})
        fill(other.stage("a1"), {"sub/rank1": b"1"})
        fill(tmp_path / "src", {"copied": b"2"})
        safe = {**other.flush("a1", ["sub/rank1"]), **other.add("a1", tmp_path / "src")}
        assert set(safe) == {"sub/rank1", "copied"}
        listed = {"rank0": 1, "sub/": 0, "sub/rank1": 1, "copied": 1}
        assert store.publish("a1", {**safe, **store.flush("a1", ["rank0"])}, listed) == listed
        other.leave("a1")
        assert store.files("a1") == other.files("a1") == listed
        for reader in (store, other):
            with reader.restore("a1") as path:
                assert content_of(path) == {"rank0": b"0", "sub/rank1": b"1", "copied": b"2"}
        self.damage(store, "a1", "sub/rank1")
        with pytest.raises(CheckpointDamaged, match="sub/rank1 is damaged"), store.restore("a1"):
            pass

    def test_processes_of_a_machine_stage_in_one_directory(self, store: CheckpointStore) -> None:
        assert store.stage("a1") == pickle.loads(pickle.dumps(store)).stage("a1")

    def test_checksums_come_later_where_that_is_asked_for(self, store: CheckpointStore) -> None:
        large = {name: name[-1].encode() * (2 << 20) for name in ("rank0", "rank1")}
        fill(store.stage("a1"), large)
        store.publish("a1", defer_checksums=True)
        missing = store.without_checksums("a1")
        store.add_checksums("a1", missing[:1], part=0)
        self.elsewhere(store).add_checksums("a1", missing[1:], part=1)
        assert store.without_checksums("a1") == []
        assert store.files("a1") == {"rank0": 2 << 20, "rank1": 2 << 20}
        self.damage(store, "a1", "rank1")
        with pytest.raises(CheckpointDamaged, match="rank1 is damaged"), store.restore("a1"):
            pass

    def test_threads_store_at_the_same_time(self, store: CheckpointStore) -> None:
        failures: List[BaseException] = []

        def save(name: str) -> None:
            try:
                with stored(store, name) as path:
                    fill(path, {"me": name.encode()})
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=save, args=(f"c{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        for n in range(8):
            with store.restore(f"c{n}") as path:
                assert content_of(path) == {"me": f"c{n}".encode()}

    # --- reading --------------------------------------------------------------------------------------------------------

    def test_the_selector_says_what_is_needed(self, store: CheckpointStore, tmp_path: Path) -> None:
        with stored(store, "a1") as path:
            fill(path)
        store.download("a1", tmp_path / "dst", lambda path: path == "sub/ünïcode name")
        assert content_of(tmp_path / "dst") == {"sub/ünïcode name": b"x"}
        with store.restore("a1", lambda path: path == "weights.pt") as path:
            assert (path / "weights.pt").read_bytes() == FILES["weights.pt"]

    def test_damage_is_found_and_the_file_named(self, store: CheckpointStore, tmp_path: Path) -> None:
        with stored(store, "a1") as path:
            fill(path)
        self.damage(store, "a1", "weights.pt")
        with pytest.raises(CheckpointDamaged, match=r"weights\.pt is damaged"), store.restore("a1"):
            pass
        with pytest.raises(CheckpointDamaged, match=r"weights\.pt is damaged"):
            store.download("a1", tmp_path / "dst")
        with store.restore("a1", lambda path: path == "metadata.json") as path:
            assert (path / "metadata.json").read_bytes() == b"{}"

    def test_files_are_read_in_order_and_compared_at_their_end(self, store: CheckpointStore) -> None:
        large = bytes(range(256)) * (36 << 12)
        with stored(store, "a1") as path:
            fill(path, {**FILES, "z": large})
        found = {content.path: b"".join(content.pieces) for content in store.read("a1")}
        assert list(found) == sorted(found) and set(found) == {"z", *LISTED}
        assert {n: c for n, c in found.items() if not n.endswith("/")} == {**FILES, "z": large}
        assert [content.path for content in store.read("a1", lambda path: path > "sub/")] == sorted(found)[2:]
        self.damage(store, "a1", "weights.pt")
        with pytest.raises(CheckpointDamaged, match="weights.pt is damaged"):
            for content in store.read("a1", lambda path: not path.startswith("z")):
                assert sum(map(len, content.pieces)) == content.size
        with pytest.raises(CheckpointError, match="nope"):
            next(store.read("nope"))

    def test_machines_that_share_the_comparison_find_damage_together(self, store: CheckpointStore) -> None:
        with stored(store, "a1") as path:
            fill(path)
        self.damage(store, "a1", "weights.pt")
        with pytest.raises(CheckpointDamaged, match="damaged"), contextlib.ExitStack() as stack:
            stack.enter_context(store.restore("a1", verify=lambda path: path != "weights.pt"))
            stack.enter_context(self.elsewhere(store).restore("a1", verify=lambda path: path == "weights.pt"))

    def test_metadata_are_read_from_the_checkpoint(self, store: CheckpointStore) -> None:
        for uuid, files in (
            ("a1", {"metadata.json": b'{"steps_completed": 3}'}),
            ("a2", {}),
            ("a3", {"metadata.json": b"{"}),
        ):
            with stored(store, uuid) as path:
                fill(path, files)
        assert (store.metadata("a1"), store.metadata("a2")) == ({"steps_completed": 3}, {})
        with pytest.raises(CheckpointDamaged, match="damaged"):
            store.metadata("a3")

    def test_a_missing_checkpoint_is_named(self, store: CheckpointStore, tmp_path: Path) -> None:
        assert not store.exists("nope")
        for use in (store.files, store.metadata, store.without_checksums):
            with pytest.raises(CheckpointError, match="nope"):
                use("nope")
        with pytest.raises(CheckpointError, match="nope"), store.restore("nope"):
            pass
        with pytest.raises(CheckpointError, match="nope"):
            store.download("nope", tmp_path / "dst")

    @pytest.mark.parametrize("name", ["", "..", "../x", "a/b", ".hidden", "a\n"])
    def test_a_name_cannot_leave_the_store(self, store: CheckpointStore, name: str) -> None:
        assert not store.exists(name)
        for use in (store.files, store.stage, store.delete, store.discard, store.publish):
            with pytest.raises(CheckpointError):
                use(name)

    def test_names_are_of_what_is_whole_and_of_what_is_not_and_of_nothing_beside(self, store: CheckpointStore) -> None:
        assert list(store.names()) == []
        began = time.time()
        with stored(store, "a1") as path:
            fill(path)
        with store.synced_folder("c1/tensorboard") as path:
            fill(path, {"events": b"1"})
        fill(store.stage("a2"), {"part": b"22"})
        store.flush("a2", ["part"])
        held = {one.uuid: one for one in store.names()}
        assert store.is_there()
        assert {uuid: one.whole for uuid, one in held.items()} == {"a1": True, "a2": False}
        assert held["a1"].size >= sum(map(len, FILES.values())) and held["a2"].size >= 2
        assert abs(held["a1"].changed - began) < 3600
        self.elsewhere(store).discard("a2")
        store.discard("a1")
        assert [one.uuid for one in store.names()] == ["a1"]

    def test_a_manifest_that_cannot_be_right_is_damage_of_its_checkpoint_alone(
        self, store: CheckpointStore, tmp_path: Path
    ) -> None:
        for uuid in ("a0", "a1"):
            with stored(store, uuid) as path:
                fill(path)
        for name, text in HOSTILE.items():
            self.replace_manifest(store, "a1", text)
            uses: List[Callable[[], object]] = [
                lambda: store.restore("a1").__enter__(),
                lambda: store.download("a1", tmp_path / "there"),
                lambda: list(store.read("a1")),
            ]
            for use in uses:
                with pytest.raises(CheckpointDamaged, match="checkpoint a1: "):
                    use()
                    pytest.fail(f"{name} was read")
            assert store.exists("a1") and {one.uuid for one in store.names() if one.whole} == {"a0", "a1"}, name
            assert name == "a size that no disk has" or store.surviving("a1", ["nope"]) == LISTED, name
        assert "weights.pt" not in store.delete("a1", ["*.pt"]) and "metadata.json" in store.surviving("a1", [])
        assert store.delete("a1") == {} and not store.exists("a1")
        assert [one.uuid for one in store.names()] == ["a0"]
        with store.restore("a0") as path:
            assert content_of(path) == FILES

    # --- deleting -------------------------------------------------------------------------------------------------------

    def test_deleting_by_glob_returns_what_is_left(self, store: CheckpointStore) -> None:
        with stored(store, "a1") as path:
            fill(path)
        left = {"sub/": 0, "sub/ünïcode name": 1, "metadata.json": 2}
        globs = ["*.pt", "sub/deep", "../*", "nothing"]
        assert store.surviving("a1", globs) == left and store.files("a1") == LISTED
        assert store.delete("a1", globs) == store.files("a1") == left
        with store.restore("a1") as path:
            assert set(content_of(path)) == {"sub/ünïcode name", "metadata.json"}
        assert store.surviving("a1", ["**/*"]) == {}
        assert store.delete("a1") == {}
        assert not store.exists("a1")

    def test_deleting_what_is_not_there_is_no_error(self, store: CheckpointStore) -> None:
        assert store.delete("a1") == {}

    # --- what is no checkpoint ------------------------------------------------------------------------------------------

    def test_files_beside_the_checkpoints_are_none_of_them(self, store: CheckpointStore) -> None:
        with stored(store, "a1") as path:
            fill(path)
        for files in ({"events": b"1", "sub/x": b"1"}, {"events": b"22"}):
            with store.synced_folder("c1/tensorboard") as path:
                fill(path, files)
        assert store.files("a1") == LISTED
        assert self.beside(store, "c1/tensorboard") == {"events": b"22", "sub/x": b"1"}
        for folder in ("c1/other", "c1/tensorboard", "c1/tensorboard"):
            store.remove_folder(folder)
        assert self.beside(store, "c1/tensorboard") == {}

    def test_a_mirror_shows_what_is_beside_the_checkpoints_and_files_grow_in_place(
        self, store: CheckpointStore, tmp_path: Path
    ) -> None:
        other, target = self.elsewhere(store), tmp_path / "mirror"
        other.mirror("c1/tensorboard", target)
        with store.synced_folder("c1/tensorboard") as path:
            fill(path, {"trial/1/events": b"one", "trial/1/empty": b""})
        other.mirror("c1/tensorboard", target)
        assert content_of(target) == {"trial/1/events": b"one", "trial/1/empty": b""}
        with open(target / "trial/1/events", "rb") as reader:
            assert reader.read() == b"one"
            with store.synced_folder("c1/tensorboard") as path:
                fill(path, {"trial/1/events": b"one and two", "trial/2/events": b"3"})
            other.mirror("c1/tensorboard", target)
            assert reader.read() == b" and two"
        with store.synced_folder("c1/tensorboard") as path:
            fill(path, {"trial/2/events": b""})
        other.mirror("c1/tensorboard", target)
        other.mirror("c1/tensorboard", target)
        assert content_of(target) == {"trial/1/events": b"one and two", "trial/1/empty": b"", "trial/2/events": b""}

    def test_a_mark_is_found_by_other_machines(self, store: CheckpointStore) -> None:
        with store.mark() as mark:
            self.elsewhere(store).find_mark(mark)
        with pytest.raises(OSError):
            self.elsewhere(store).find_mark(mark)

    def test_it_says_where_it_is(self, store: CheckpointStore) -> None:
        assert str(store) == str(self.elsewhere(store)) and "object at" not in str(store)


def flip(path: Path, at: int) -> None:
    """Turn one bit of a file over, as a failing disk does."""
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
        os.fsync(file.fileno())
