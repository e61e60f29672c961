from __future__ import annotations

from pathlib import Path

import pytest

from dethpc.errors import RunDirError
from dethpc.rundir.token import read


@pytest.mark.parametrize("content", [b"\xff\xfe\0", b"one\ntwo\n", b"two words", "h\u00e9".encode()])
def test_what_is_no_token_is_damage(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(RunDirError, match=rf"holds no token. Remove it \(rm -r {path}\)"):
        read(path)


def test_an_empty_file_is_none_yet(tmp_path: Path) -> None:
    path = tmp_path / "token"
    assert read(path) is None
    path.touch()
    assert read(path) is None
    path.write_text("k3y-_x\n")
    assert read(path) == "k3y-_x"
