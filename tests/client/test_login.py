"""Whose token a client uses: DET_USER, DET_USER_TOKEN, DET_PASS, the owner's token file and logins that were remembered."""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import Any

import pytest

from dethpc.client import Session, login
from dethpc.client.login import remember, token_at
from dethpc.client.nouns import users
from dethpc.common.api.errors import UnauthenticatedException
from dethpc.errors import MasterUnreachable
from tests.master.conftest import Served, served, site

__all__ = ["served", "site"]

MASTER = "http://login1:1234"
ME = getpass.getuser()


@pytest.fixture(autouse=True)
def _own_master(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There is a home, whose master is at MASTER, and carol has logged in there."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("DETHPC_HOME", str(tmp_path))
    (tmp_path / "master.json").write_text(json.dumps({"url": MASTER}))
    (tmp_path / "token").write_text("owners\n")
    remember(MASTER, "carol", "carols")


def test_the_token_of_the_environment_is_not_given_to_another_than_det_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_USER_TOKEN", "environments")
    assert token_at(MASTER) == token_at(MASTER, ME) == "environments"
    monkeypatch.setenv("DET_USER", ME)
    assert token_at(MASTER) == token_at(MASTER, ME) == "environments"
    monkeypatch.setenv("DET_USER", "bob")
    assert token_at(MASTER) == token_at(MASTER, "bob") == "environments"
    assert token_at(MASTER, ME) == "owners" and token_at(MASTER, "carol") == "carols"
    with pytest.raises(UnauthenticatedException, match="no login of user 'dave'"):
        token_at(MASTER, "dave")


def test_before_the_first_start_of_a_master_only_its_owner_has_a_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "master.json").unlink()
    assert token_at(None) == token_at(None, ME) == "owners"
    with pytest.raises(MasterUnreachable, match="no master is known"):
        token_at(None, "bob")
    monkeypatch.setenv("DET_USER", "bob")
    monkeypatch.setenv("DET_USER_TOKEN", "bobs")
    assert token_at(None) == "bobs" and token_at(None, ME) == "owners"


def test_a_login_is_checked_over_a_connection_that_is_closed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    users.create(served.session, "grace", "Correct-horse-1")
    sessions: list[Any] = []

    class Noted(Session):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            sessions.append(self)

        def close(self) -> None:
            sessions.remove(self)
            super().close()

    monkeypatch.setattr(login, "Session", Noted)
    monkeypatch.setenv("DET_USER", "grace")
    monkeypatch.setenv("DET_PASS", "Correct-horse-1")
    assert token_at(served.url) == token_at(served.url)
    assert sessions == []
