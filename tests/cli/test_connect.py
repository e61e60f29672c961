"""Whose master a command talks to, and when it starts one."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from dethpc import errors
from dethpc.cli import connect, master_process
from dethpc.client import Session, http1
from tests.cli.conftest import Answers

NEW = "http://127.0.0.1:2"


class Own:
    """The user's own master, of which there is the file alone."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file, self.starts = home / "master.json", 0
        self.says("http://127.0.0.1:1", pid=1 << 22)
        monkeypatch.setenv("DETHPC_HOME", str(home))
        monkeypatch.delenv("DET_MASTER", raising=False)
        monkeypatch.setattr(master_process, "up", self.up)
        monkeypatch.setattr(master_process, "reached", Session)

    def says(self, url: str, **more: Any) -> None:
        self.file.write_text(json.dumps({"url": url, "host": socket.gethostname(), "pid_started": 0, **more}))

    def up(self) -> str:
        self.starts += 1
        self.says(NEW, pid=1 << 22)
        return NEW


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Own]:
    with click.Context(click.Command("det")):
        yield Own(tmp_path, monkeypatch)


def test_who_waits_starts_a_killed_master_again_but_not_twice_at_once(own: Own) -> None:
    again = connect.reconnect(connect.connect())
    assert again().url == NEW and again().url == NEW and own.starts == 1


def test_who_waits_leaves_a_stopped_master_stopped(own: Own) -> None:
    again = connect.reconnect(connect.connect())
    own.says("", pid=0)  # as `det master down` leaves it
    with pytest.raises(errors.MasterUnreachable, match="no master is running; start one with: det master up"):
        again()
    assert own.starts == 0


def test_a_list_that_is_watched_starts_a_killed_master_and_not_a_stopped_one(
    own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect.connect()
    monkeypatch.setattr(master_process, "reached", lambda url: None)
    assert connect.connect().url == NEW and own.starts == 1
    own.says("", pid=0)
    with pytest.raises(errors.MasterUnreachable, match="no master is running"):
        connect.connect()
    assert own.starts == 1


def test_a_command_starts_a_master_where_one_was_stopped_before(own: Own) -> None:
    own.says("", pid=0)
    assert connect.connect().url == NEW


def test_a_command_goes_on_over_the_connection_on_which_its_master_answered(
    own: Own, master: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("DETHPC_HOME", str(own.file.parent))
    monkeypatch.delenv("DET_MASTER", raising=False)
    own.says(master.url, pid=1 << 22)
    opened = []
    monkeypatch.setattr(http1, "connect", lambda *to, do=http1.connect: opened.append(do(*to)) or opened[-1])
    assert connect.connect().get("/api/v1/master")["clusterName"] and len(opened) == 1
