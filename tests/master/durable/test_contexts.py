"""A context that is stored is read as far as it is whole."""

from __future__ import annotations

import random
import tarfile
from base64 import b64encode
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from dethpc.errors import ContextError
from dethpc.master.durable import contexts
from dethpc.rundir.home import Home


def test_a_context_that_is_cut_off_or_altered_is_damaged_and_no_fault_of_the_master() -> None:
    numbers = random.Random(7)
    files = []
    for path in ("1.py", "2.py"):
        code = b64encode(" ".join(str(numbers.random()) for _ in range(10_000)).encode()).decode()
        files.append(SimpleNamespace(path=path, type=ord(tarfile.REGTYPE), content=code, mtime=0, mode=0o600))
    whole = contexts.pack(files)
    assert [member.name for member in contexts.members(whole)] == ["1.py", "2.py"]
    altered = whole[:10] + b"\xff" + whole[11:]
    for damaged in (whole[: len(whole) // 2], whole[:5], b"", altered):
        with pytest.raises(ContextError, match="is damaged"):
            contexts.members(damaged)
        with pytest.raises(ContextError, match="is damaged"):
            contexts.content(damaged, "2.py")


def test_what_a_master_that_was_killed_while_it_stored_a_context_has_left_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    stored = contexts.keep(home, b"one")

    class Killed(BaseException):
        pass

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("os.fsync", Mock(side_effect=Killed))
        contexts.keep(home, b"two")
    folder = home.context(stored).parent
    assert len(list(folder.iterdir())) == 2
    contexts.sweep(home)
    assert list(folder.iterdir()) == [home.context(stored)]
