"""A context that is stored is read as far as it is whole."""

from __future__ import annotations

import random
import tarfile
from base64 import b64encode
from types import SimpleNamespace

import pytest

from dethpc.errors import ContextError
from dethpc.master.durable import contexts


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
