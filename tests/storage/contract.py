"""What every checkpoint storage must do. A test class for an adapter inherits from ``CheckpointStorageContract``."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, Dict, List

import pytest

from dethpc.errors import CheckpointError

FILES: Dict[str, bytes] = {
    "weights.pt": b"w" * 1000,
    "sub/deep/state": b"",
    "sub/ünïcode name": b"x",
    "metadata.json": b"{}",
}
LISTED = {"sub/": 0, "sub/deep/": 0, **{name: len(content) for name, content in FILES.items()}}


def fill(root: Path, files: Dict[str, bytes] = FILES) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


def content_of(root: Path) -> Dict[str, bytes]:
    found = {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}
    return {name: content for name, content in found.items() if not name.startswith(".dethpc")}


class CheckpointStorageContract:
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Any:
        raise NotImplementedError

    def test_what_was_stored_is_restored(self, storage: Any) -> None:
        with storage.store_path("a1") as path:
            fill(path)
        assert storage.resources("a1") == LISTED
        with storage.restore_path("a1") as path:
            assert content_of(Path(path)) == FILES

    def test_a_checkpoint_is_invisible_until_it_is_whole(self, storage: Any) -> None:
        with storage.store_path("a1") as path:
            fill(path)
            with pytest.raises(CheckpointError, match="a1"):
                storage.resources("a1")
        storage.resources("a1")

    def test_a_failed_block_leaves_nothing(self, storage: Any) -> None:
        with pytest.raises(KeyError), storage.store_path("a1") as path:
            fill(path)
            raise KeyError
        with pytest.raises(CheckpointError):
            storage.resources("a1")
        with storage.store_path("a1") as path:
            assert not list(Path(path).iterdir())

    def test_a_name_is_published_once(self, storage: Any, tmp_path: Path) -> None:
        with storage.store_path("a1") as path:
            fill(path)
        fill(tmp_path / "src", {"other": b"1"})
        with pytest.raises(CheckpointError, match="exists"):
            storage.upload(tmp_path / "src", "a1")
        with pytest.raises(CheckpointError, match="exists"), storage.store_path("a1"):
            pass
        assert storage.resources("a1") == LISTED

    def test_upload_and_download_copy_everything(self, storage: Any, tmp_path: Path) -> None:
        fill(tmp_path / "src")
        assert storage.upload(tmp_path / "src", "a1") == LISTED
        storage.download("a1", tmp_path / "dst")
        assert content_of(tmp_path / "dst") == FILES
        assert content_of(tmp_path / "src") == FILES

    def test_upload_takes_the_named_paths_alone(self, storage: Any, tmp_path: Path) -> None:
        fill(tmp_path / "src")
        assert storage.upload(tmp_path / "src", "a1", ["sub/deep/", "weights.pt"]) == {
            "sub/": 0,
            "sub/deep/": 0,
            "weights.pt": 1000,
        }

    def test_download_takes_what_the_selector_wants(self, storage: Any, tmp_path: Path) -> None:
        with storage.store_path("a1") as path:
            fill(path)
        storage.download("a1", tmp_path / "dst", lambda path: path == "sub/ünïcode name")
        assert content_of(tmp_path / "dst") == {"sub/ünïcode name": b"x"}

    def test_deleting_by_glob_returns_what_is_left(self, storage: Any, tmp_path: Path) -> None:
        with storage.store_path("a1") as path:
            fill(path)
        assert storage.delete("a1", ["*.pt", "sub/deep", "../*", "nothing"]) == {
            "sub/": 0,
            "sub/ünïcode name": 1,
            "metadata.json": 2,
        }
        with storage.restore_path("a1"):
            pass
        assert storage.delete("a1") == {}
        with pytest.raises(CheckpointError):
            storage.resources("a1")

    def test_deleting_what_is_not_there_is_no_error(self, storage: Any) -> None:
        assert storage.delete("a1") == {}

    def test_a_missing_checkpoint_is_named(self, storage: Any, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match="nope"), storage.restore_path("nope"):
            pass
        with pytest.raises(CheckpointError, match="nope"):
            storage.download("nope", tmp_path / "dst")

    @pytest.mark.parametrize("name", ["", "..", "../x", "a/b", ".hidden", "a\n"])
    def test_a_name_cannot_leave_the_storage(self, storage: Any, name: str) -> None:
        with pytest.raises(CheckpointError):
            storage.resources(name)
        with pytest.raises(CheckpointError), storage.store_path(name):
            pass

    def test_threads_store_at_the_same_time(self, storage: Any) -> None:
        failures: List[BaseException] = []

        def store(name: str) -> None:
            try:
                with storage.store_path(name) as path:
                    fill(path, {"me": name.encode()})
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=store, args=(f"c{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        for n in range(8):
            with storage.restore_path(f"c{n}") as path:
                assert content_of(Path(path)) == {"me": f"c{n}".encode()}


def flip(path: Path, at: int) -> None:
    """Turn one bit of a file over, as a failing disk does."""
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
        os.fsync(file.fileno())
