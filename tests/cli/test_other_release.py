"""``det`` of one build, the master of another."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dethpc.cli import main
from dethpc.client import release
from dethpc.rundir import process


@pytest.fixture
def home(tmp_path: Path, master: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That of the canned master, which answers here."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("DETHPC_HOME", str(home))
    monkeypatch.delenv("DET_MASTER", raising=False)
    monkeypatch.setenv("DET_USER_TOKEN", "t")
    monkeypatch.setattr(release, "build", lambda: "new")
    return home


def publish(home: Path, url: str, **more: Any) -> None:
    held = {"url": url, "host": socket.gethostname(), "pid": os.getpid(), "pid_started": process.started(os.getpid())}
    (home / "master.json").write_text(json.dumps({**held, **more}))


@pytest.mark.parametrize("build", [{}, {"build": "old"}])
def test_what_another_build_of_the_master_refuses_comes_with_what_to_do(home: Path, master: Any, build: Any) -> None:
    publish(home, master.url, **build)
    master.refuse = 501, {"error": {"code": 12, "error": "models are not supported yet"}}
    answer = CliRunner().invoke(main, ["model", "list"])
    assert answer.exit_code == 1
    first, second = answer.output.splitlines()
    assert first.startswith("det: error:") and first.endswith("models are not supported yet")
    assert "det master down" in second
    assert "det master down" in CliRunner().invoke(main, ["version"]).output


def test_of_the_same_build_nothing_is_added(home: Path, master: Any) -> None:
    publish(home, master.url, build="new")
    master.refuse = 501, {"error": {"code": 12, "error": "models are not supported yet"}}
    for command in (["model", "list"], ["version"]):
        assert "det master down" not in CliRunner().invoke(main, command).output
