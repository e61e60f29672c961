"""Whether checkpoints can be written, from the login node and from a compute node, by any kind of store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dethpc.doctor import probe, read_login
from dethpc.storage import CheckpointStore
from dethpc.storage.files import FileStore
from tests.storage.remote import RemoteStore


@pytest.mark.parametrize("kind", ["a folder to be made", "no folder"])
def test_what_the_login_node_leaves_a_compute_node_finds(tmp_path: Path, kind: str) -> None:
    folder, server = tmp_path / "to/be/made", RemoteStore(str(tmp_path / "server"), str(tmp_path / "disk"))
    store: CheckpointStore = FileStore(folder) if kind == "a folder to be made" else server
    assert read_login._writing(store) == ""
    with store.mark() as mark:
        assert probe._find(store, mark) == ""
    assert probe._find(store, mark) != ""
    assert not folder.parent.exists() and not list(tmp_path.glob(".doctor*"))


@pytest.mark.skipif(os.getuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert read_login._writing(FileStore(tmp_path / "x")) == f"{tmp_path}: Permission denied"


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert read_login._writing(FileStore(tmp_path / "file")) == f"{tmp_path / 'file'}: Not a directory"
