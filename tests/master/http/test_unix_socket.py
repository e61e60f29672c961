"""A master's listener on a Unix socket."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from dethpc.errors import Refused
from dethpc.master.http.peer import Peers
from dethpc.master.http.unix_socket import LONGEST, UnixListener


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # so that the path is short wherever temporary files lie
    return Path("s")


def test_what_a_dead_master_left_is_replaced_and_what_another_one_put_there_stays(path: Path) -> None:
    left = UnixListener(path)
    left.socket.close()
    ours = UnixListener(path)
    left.remove()
    assert path.is_socket(), "it is not what it made"
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        accepted, _ = ours.socket.accept()
        peers = Peers()
        assert peers.name(accepted) == f"user {os.geteuid()}"
        peers.close()
        accepted.close()
    ours.remove()
    ours.socket.close()
    assert not path.exists()


def test_a_file_is_not_overwritten(path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(Refused, match="is no socket"):
        UnixListener(path)
    assert path.read_text() == "precious"


def test_a_path_that_the_kernel_does_not_take_is_refused_in_words(path: Path) -> None:
    with pytest.raises(Refused, match=f"at most {LONGEST}"):
        UnixListener(path / ("x" * 120))
    with pytest.raises(Refused, match="No such file"):
        UnixListener(path / "missing")
