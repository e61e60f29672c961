"""Tokens, passwords, and the file in which Determined's clients keep tokens."""

from __future__ import annotations

import contextlib
import json
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dethpc.cli import main
from dethpc.client.session import Session
from dethpc.domain.records import Token, TokenKind
from dethpc.domain.roles import Role
from dethpc.domain.states import RunState
from dethpc.errors import NotFound, Refused, RunOver, Unauthorized
from dethpc.master.durable.records import Records
from dethpc.master.http import auth as auth_module
from dethpc.master.http.auth import (
    RUN_GRACE_SECONDS,
    Auth,
    digest,
    mint_run_token,
    salted,
)
from dethpc.master.rebuild import recreate
from dethpc.rundir.home import Home
from dethpc.state.store import SqlStore, open_store
from tests.master.conftest import Published, Served, experiment, run_of, task_of, trained, trial, uuid_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    with open_store(tmp_path / "db") as store:
        yield store


def auth_of(home: Path, store: SqlStore) -> Auth:
    return Auth(home, "ada", store, Records(store, Home(home)))


@pytest.fixture
def auth(tmp_path: Path, store: SqlStore) -> Auth:
    return auth_of(tmp_path, store)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_owners_token_is_made_once_and_for_the_owner_alone(tmp_path: Path, auth: Auth, store: SqlStore) -> None:
    token = (tmp_path / "token").read_text().strip()
    assert len(token) >= 32 and mode(tmp_path / "token") == 0o600
    assert auth.principal(token).role is Role.ADMIN
    assert auth_of(tmp_path, store).principal(token).role is Role.ADMIN
    assert [path.name for path in tmp_path.iterdir() if "token" in path.name] == ["token"]
    for wrong in ("", "x", token[:-1], token + "x", "run:1.1.1:x", "\u00e9"):
        with pytest.raises(Unauthorized):
            auth.principal(wrong)


def test_a_login_is_a_token_of_its_own_and_ends_with_the_logout(tmp_path: Path, auth: Auth, store: SqlStore) -> None:
    token = (tmp_path / "token").read_text().strip()
    session = auth.login("ada", token, hashed=False)
    assert session != token and auth.principal(session).role is Role.ADMIN
    assert auth_of(tmp_path, store).principal(session).role is Role.ADMIN  # a restart ends no login
    auth.logout(session)
    with pytest.raises(Unauthorized):
        auth.principal(session)
    auth.logout(token)
    assert auth.principal(token).role is Role.ADMIN


@pytest.mark.parametrize("name, password", [("ada", ""), ("ada", "x"), ("determined", ""), ("admin", ""), ("", "")])
def test_no_door_is_open_by_default(auth: Auth, name: str, password: str) -> None:
    for hashed in (False, True):
        with pytest.raises(Unauthorized, match="^invalid credentials$"):
            auth.login(name, password, hashed=hashed)


def test_a_password_is_kept_as_argon2(tmp_path: Path, auth: Auth) -> None:
    auth.set_password("Correct-horse-1", hashed=False)
    kept = (tmp_path / "records.jsonl").read_text()
    assert "$argon2" in kept and "horse" not in kept and mode(tmp_path / "records.jsonl") == 0o600
    assert auth.login("ada", salted("Correct-horse-1"), hashed=True)
    assert auth.login("ada", "Correct-horse-1", hashed=False)
    with pytest.raises(Unauthorized):
        auth.login("determined", "Correct-horse-1", hashed=False)
    with pytest.raises(Refused):
        auth.set_password("", hashed=True)


def test_a_runs_token_names_its_run_and_is_kept_as_digest(auth: Auth, store: SqlStore) -> None:
    run = run_of(trial(3, 2))
    token, sha256 = mint_run_token(run.id)
    with pytest.raises(Unauthorized):
        auth.principal(token)
    run.token_sha256, run.state = sha256, RunState.RUNNING
    store.commit([experiment(2), trial(3, 2), task_of(trial(3, 2)), run])
    who = auth.principal(token)
    assert (who.run_id, who.experiment_id, who.trial_id, who.is_run) == ("2.3.1", 2, 3, True)
    assert sha256 == digest(token) and token not in sha256
    with pytest.raises(Unauthorized):
        auth.principal(mint_run_token(run.id)[0])


def test_a_runs_token_ends_with_its_run_and_a_grace(
    auth: Auth, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth_module, "_MEMORY_SECONDS", 0.0)  # what was found out is asked again after half a minute
    run, now = run_of(trial(3, 2)), time.time()
    token, run.token_sha256 = mint_run_token(run.id)
    for state, ended_at, good in (
        (RunState.RUNNING, None, True),
        (RunState.ENDED, now - RUN_GRACE_SECONDS / 2, True),
        (RunState.ENDED, now - RUN_GRACE_SECONDS - 1, False),
        (RunState.ENDED, None, False),
    ):
        run.state, run.ended_at = state, ended_at
        store.commit([experiment(2), trial(3, 2), task_of(trial(3, 2)), run])
        with contextlib.nullcontext() if good else pytest.raises(RunOver, match="has ended"):
            assert auth.principal(token).run_id == run.id


def test_the_token_of_a_run_that_ended_long_ago_opens_nothing(served: Served) -> None:
    run = run_of(trial(1), ended_at=time.time() - 2 * RUN_GRACE_SECONDS)
    served.put([experiment(1), *trained(trial(1))])
    token, _ = mint_run_token(run.id)
    session = served.as_run(run, token)
    for ask in (
        lambda: session.get("/api/v1/trials/1"),
        lambda: session.get(f"/api/v1/checkpoints/{uuid_of(1, 2)}"),
        lambda: session.post(f"/api/v1/runs/{run.id}/attempts/0/events", {"lines": []}),
    ):
        with pytest.raises(RunOver, match=f"run {run.id} has ended"):
            ask()


def test_an_access_token_is_made_listed_described_and_revoked(served: Served) -> None:
    session = served.session
    made = session.post("/api/v1/tokens", {"userId": 1, "lifespan": "48h", "description": "nightly"})
    script = Session(served.url, made["token"])
    assert script.get("/api/v1/me")["user"]["username"] == served.owner
    session.post("/api/v1/tokens", {"lifespan": "-1"})
    first, second = session.get("/api/v1/tokens")["tokenInfo"]
    assert (first["id"], first["description"], first["tokenType"]) == (
        made["tokenId"],
        "nightly",
        "TOKEN_TYPE_ACCESS_TOKEN",
    )
    assert first["expiry"] and second.get("expiry") is None, "one is good for ever"
    assert made["token"] not in (served.daemon.installation.home.records).read_text()
    told = session.patch(f"/api/v1/tokens/{made['tokenId']}", {"description": "weekly"})["tokenInfo"]
    assert (told["description"], told["revoked"]) == ("weekly", False)
    assert session.patch(f"/api/v1/tokens/{made['tokenId']}", {"setRevoked": True})["tokenInfo"]["revoked"]
    with pytest.raises(Unauthorized):
        script.get("/api/v1/me")
    listed = [token["id"] for token in session.get("/api/v1/tokens")["tokenInfo"]]
    assert listed == [second["id"]]
    assert len(session.get("/api/v1/tokens", params={"showInactive": True})["tokenInfo"]) == 2
    assert session.get("/api/v1/tokens", params={"tokenIds": [first["id"]]})["tokenInfo"][0]["revoked"]
    with pytest.raises(Refused, match="48h"):
        session.post("/api/v1/tokens", {"lifespan": "2 days"})
    with pytest.raises(NotFound):
        session.post("/api/v1/tokens", {"userId": 7})


def test_logins_tokens_and_the_password_are_good_after_a_rebuild(served: Served, tmp_path: Path) -> None:
    served.daemon.services.auth.set_password("Correct-horse-1", hashed=False)
    token = served.session.post("/api/v1/tokens", {})["token"]
    login = served.daemon.services.auth.login(served.owner, served.token, hashed=False)
    home = served.daemon.installation.home
    with open_store(tmp_path / "again.db") as again:
        recreate(home, again)
        auth = Auth(home.root, served.owner, again, Records(again, home))
        assert auth.principal(token).role is Role.ADMIN and auth.principal(login).role is Role.ADMIN
        assert auth.login(served.owner, "Correct-horse-1", hashed=False)


def test_users_and_tokens_on_the_command_line(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETHPC_HOME", str(served.daemon.installation.home.root))
    monkeypatch.setenv("DET_MASTER", served.url)
    monkeypatch.setenv("DET_USER_TOKEN", served.token)

    def det(*words: str, input: str | None = None) -> Any:
        done = CliRunner().invoke(main, words, input=input, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return json.loads(done.output) if "--json" in words else done.output

    assert det("user", "list", "--json")[0]["username"] == served.owner
    det("user", "edit", served.owner, "--display-name", "Ada")
    assert "Ada" in det("user", "list")
    det("user", "change-password", input="Correct-horse-1\nCorrect-horse-1\n")
    assert served.daemon.services.auth.login(served.owner, "Correct-horse-1", hashed=False)
    made = det("token", "create", "-e", "-1", "-d", "nightly", "--json")
    assert Session(served.url, made["token"]).get("/api/v1/me")["user"]["displayName"] == "Ada"
    number = str(made["tokenId"])
    det("token", "edit", number, "-d", "weekly")
    assert det("token", "list", "--json")[0]["description"] == "weekly"
    det("token", "revoke", number)
    assert det("token", "list", "--json") == []
    assert det("token", "list", "--show-inactive", "--json") == det("token", "describe", number, "--json")


def test_what_is_no_access_token_is_not_said_to_be_revoked(served: Served) -> None:
    auth = served.daemon.services.auth
    login = auth.login(served.owner, served.token, hashed=False)
    others = [token for token in auth._records.find(Token) if token.kind is not TokenKind.ACCESS]
    assert {token.kind for token in others} == {TokenKind.OWNER, TokenKind.SESSION}
    for token in others:
        with pytest.raises(NotFound, match=f"access token {token.id}"):
            served.session.patch(f"/api/v1/tokens/{token.id}", {"setRevoked": True})
    assert auth.principal(login).role is Role.ADMIN and auth.principal(served.token).role is Role.ADMIN


def test_mistakes_with_tokens_are_told_in_the_words_of_the_command_line(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETHPC_HOME", str(served.daemon.installation.home.root))
    monkeypatch.setenv("DET_MASTER", served.url)
    monkeypatch.setenv("DET_USER_TOKEN", served.token)
    for days in ("0", "-2"):
        done = CliRunner().invoke(main, ["token", "create", "-e", days])
        assert done.exit_code == 2 and "must be 1 or more days, or -1" in done.output
    done = CliRunner().invoke(main, ["token", "list", "nobody"])
    assert done.exit_code == 1 and "there is no user 'nobody'" in done.output
    assert served.session.get("/api/v1/tokens", params={"showInactive": True})["tokenInfo"] == []


def test_the_published_client_makes_lists_and_revokes_access_tokens(published: Published) -> None:
    made = published.det("token", "create", "--expiration-days", "2", "--description", "nightly", "--json")
    assert "nightly" in published.det("token", "list") and json.loads(made)["token"]
    assert "Successfully revoked token" in published.det("token", "revoke", str(json.loads(made)["tokenId"]))
    assert "nightly" not in published.det("token", "list")
    assert json.loads(published.det("token", "list", "--show-inactive", "--json"))[0]["revoked"]
    published.det("user", "edit", published.served.owner, "--display-name", "Ada")
    assert "Ada" in published.det("user", "list")
