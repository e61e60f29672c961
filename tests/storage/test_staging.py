"""Where a machine stages what it brings to a store that is no folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from dethpc.errors import CheckpointError
from dethpc.storage.staging import Staging


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def planted(temporary: Path) -> Path:
    """What another user has put where this user's staging would be: here a folder that others may enter."""
    folder = temporary / f"dethpc-staging-{os.geteuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def test_all_processes_of_a_user_stage_in_one_folder(temporary: Path) -> None:
    assert Staging().folder() == Staging().folder() == temporary / f"dethpc-staging-{os.geteuid()}"


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_another_user_planted_is_passed_by_and_the_folder_in_its_place_found_again(
    planted: Path, kind: str
) -> None:
    if kind != "folder":
        planted.rmdir()
        planted.write_text("") if kind == "file" else planted.symlink_to("/tmp")
    found = Staging().folder()
    assert found.name.startswith(f"{planted.name}-") and found.stat().st_mode & 0o777 == 0o700
    (Staging().path("left-over")).mkdir(parents=True)  # by a process that died
    assert Staging().folder() == found
    planted.with_name(f"{planted.name}-0").mkdir(mode=0o755)  # nor does a second plant help
    planted.with_name(f"{planted.name}-0").chmod(0o755)
    assert Staging().folder() == found
    Staging().leave("left-over")
    assert not list(found.iterdir())


def test_a_folder_that_takes_no_other_is_named(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkdtemp", refused)
    with pytest.raises(CheckpointError, match=f"{planted} is not this user's alone.*Permission denied.*set TMPDIR"):
        Staging().folder()
