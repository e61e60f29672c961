"""The contract, by a store that is no folder. ``tests/core/test_checkpoint_elsewhere.py`` trains with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import pytest

from dethpc.storage import CheckpointStore
from tests.storage.contract import CheckpointStoreContract
from tests.storage.remote import RemoteStore


class TestRemote(CheckpointStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> CheckpointStore:
        return RemoteStore(str(tmp_path / "server"), str(tmp_path / "disk"))

    def elsewhere(self, store: Any) -> CheckpointStore:
        return RemoteStore(store.server, f"{store.disk}-of-another-machine")

    def damage(self, store: Any, uuid: str, path: str) -> None:
        store.damage(uuid, path)

    def replace_manifest(self, store: Any, uuid: str, text: bytes) -> None:
        pytest.skip("it keeps its listings in tables of its own")

    def beside(self, store: Any, folder: str) -> Dict[str, bytes]:
        return store.beside_of(folder)  # type: ignore[no-any-return]
