"""Tokens, passwords, and the file in which Determined's clients keep tokens."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from dethpc.errors import Refused, Unauthorized
from dethpc.master.http.auth import (
    Auth,
    Forbidden,
    digest,
    mint_run_token,
    salted,
)
from dethpc.state.store import SqlStore, open_store
from tests.master.conftest import experiment, run_of, trial


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    with open_store(tmp_path / "db") as store:
        yield store


@pytest.fixture
def auth(tmp_path: Path, store: SqlStore) -> Auth:
    return Auth(tmp_path, "ada", store)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_owners_token_is_made_once_and_for_the_owner_alone(tmp_path: Path, auth: Auth, store: SqlStore) -> None:
    token = (tmp_path / "token").read_text().strip()
    assert len(token) >= 32 and mode(tmp_path / "token") == 0o600
    assert auth.principal(token).is_owner
    assert Auth(tmp_path, "ada", store).principal(token).is_owner
    assert [path.name for path in tmp_path.iterdir() if "token" in path.name] == ["token"]
    for wrong in ("", "x", token[:-1], token + "x", "run:1.1.1:x", "\u00e9"):
        with pytest.raises(Unauthorized):
            auth.principal(wrong)


def test_a_login_is_a_token_of_its_own_and_ends_with_the_logout(tmp_path: Path, auth: Auth, store: SqlStore) -> None:
    token = (tmp_path / "token").read_text().strip()
    session = auth.login("ada", token, hashed=False)
    assert session != token and auth.principal(session).is_owner
    assert Auth(tmp_path, "ada", store).principal(session).is_owner  # a restart ends no login
    auth.logout(session)
    with pytest.raises(Unauthorized):
        auth.principal(session)
    auth.logout(token)
    assert auth.principal(token).is_owner


@pytest.mark.parametrize("name, password", [("ada", ""), ("ada", "x"), ("determined", ""), ("admin", ""), ("", "")])
def test_no_door_is_open_by_default(auth: Auth, name: str, password: str) -> None:
    for hashed in (False, True):
        with pytest.raises(Forbidden, match="^invalid credentials$"):
            auth.login(name, password, hashed=hashed)


def test_a_password_is_kept_as_argon2(tmp_path: Path, auth: Auth) -> None:
    auth.set_password("Correct-horse-1", hashed=False)
    kept = (tmp_path / "passwords.json").read_text()
    assert "$argon2" in kept and "horse" not in kept and mode(tmp_path / "passwords.json") == 0o600
    assert auth.login("ada", salted("Correct-horse-1"), hashed=True)
    assert auth.login("ada", "Correct-horse-1", hashed=False)
    with pytest.raises(Forbidden):
        auth.login("determined", "Correct-horse-1", hashed=False)
    with pytest.raises(Refused):
        auth.set_password("", hashed=True)


def test_a_runs_token_names_its_run_and_is_kept_as_digest(auth: Auth, store: SqlStore) -> None:
    run = run_of(trial(3, 2))
    token, sha256 = mint_run_token(run.id)
    with pytest.raises(Unauthorized):
        auth.principal(token)
    run.token_sha256 = sha256
    store.commit([experiment(2), trial(3, 2), run])
    who = auth.principal(token)
    assert (who.run_id, who.experiment_id, who.trial_id, who.is_owner) == ("2.3.1", 2, 3, False)
    assert sha256 == digest(token) and token not in sha256
    with pytest.raises(Unauthorized):
        auth.principal(mint_run_token(run.id)[0])
