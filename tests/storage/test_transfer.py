"""Files on their way to an object store, without one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Dict

import pytest

from dethpc.storage import manifest, transfer
from dethpc.storage.driver import Driver


class Parts:
    def __init__(self, size: int) -> None:
        self.size = size
        self.data: Dict[int, bytes] = {}

    def put(self, n: int, data: bytes, crc: int) -> None:
        self.data[n] = data

    def finish(self) -> None:
        pass

    def abandon(self) -> None:
        pass


class Memory(Driver):
    """Takes large files in parts of ``size`` bytes."""

    def __init__(self, size: int) -> None:
        super().__init__("memory", "", {})
        self._size = size

    def put(self, name: str, data: bytes, **_: Any) -> None:
        pass

    def parts(self, name: str, size: int, **_: Any) -> Parts:
        return Parts(self._size)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for name, size in {
        "blocks": manifest.BLOCK,
        "more": manifest.BLOCK + (17 << 20) + 1,
        "small": 5,
        "empty": 0,
    }.items():
        (folder / name).write_bytes(random.Random(size).randbytes(size))
    return folder


@pytest.mark.parametrize("mebibytes", [16, 17, 64])
def test_what_is_sent_has_the_sums_of_its_files_whatever_its_parts(files: Path, mebibytes: int) -> None:
    names = [path.name for path in files.iterdir()]
    assert transfer.send(Memory(mebibytes << 20), files, "there", names) == manifest.measure(files, names)


def test_what_goes_up_in_parts_is_read_once(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "measure", lambda *_, **__: pytest.fail("it is read once more"))
    assert transfer.send(Memory(16 << 20), files, "there", ["more"])["more"].size == manifest.BLOCK + (17 << 20) + 1
