"""Guesses cost who makes them, a password goes to nobody but the master, and logins end when their owner wants it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import argon2
import pytest
from click.testing import CliRunner

from dethpc.cli import main
from dethpc.client import Session
from dethpc.client.address import stored_login
from dethpc.client.login import login, remember
from dethpc.client.nouns import users
from dethpc.domain.roles import Role
from dethpc.errors import Refused, Unauthorized
from dethpc.experimental import Determined
from dethpc.master.durable.records import Records
from dethpc.master.http import passwords
from dethpc.master.http.auth import Auth, salted
from dethpc.master.http.passwords import Delays, Passwords, TooManyLogins
from dethpc.rundir.home import Home
from dethpc.state.store import SqlStore, open_store
from tests.master.conftest import Served
from tests.master.http.test_proof import Stranger

PASSWORD = "Correct-horse-1"


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(passwords, "time", made)
    return made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    with open_store(tmp_path / "db") as store:
        yield store


@pytest.fixture
def auth(tmp_path: Path, store: SqlStore) -> Auth:
    made = auth_of(tmp_path, store)
    made.set_password(PASSWORD, hashed=False)
    return made


def auth_of(home: Path, store: SqlStore) -> Auth:
    return Auth(home, "ada", store, Records(store, Home(home)))


# --- guesses


def test_the_delay_after_failures_grows_and_ends_with_a_success(clock: Clock) -> None:
    delays, key = Delays(), ("user 1001", "ada")
    for _ in range(2):
        delays.failed(key)
    assert delays.remaining_seconds(key) == 0
    waits = []
    for _ in range(10):
        delays.failed(key)
        waits.append(delays.remaining_seconds(key))
        clock.now += waits[-1]
        assert delays.remaining_seconds(key) <= 0
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    delays.succeeded(key)
    delays.failed(key)
    assert delays.remaining_seconds(key) == 0


def test_what_is_remembered_of_failures_is_bounded(clock: Clock) -> None:
    delays = Delays()
    for number in range(2 * passwords._REMEMBERED):
        delays.failed(("10.0.0.1", str(number)))
    assert len(delays._failures) == passwords._REMEMBERED


def test_others_do_not_feel_the_delay_of_who_guesses(auth: Auth, clock: Clock) -> None:
    for _ in range(3):
        with pytest.raises(Unauthorized):
            auth.login("ada", "guess", hashed=False, peer="user 1001")
    with pytest.raises(TooManyLogins, match="too many wrong passwords for 'ada': try again in 1 s"):
        auth.login("ada", PASSWORD, hashed=False, peer="user 1001")
    assert auth.login("ada", PASSWORD, hashed=False, peer="user 1000")
    with pytest.raises(Unauthorized):
        auth.login("grace", "guess", hashed=False, peer="user 1001")
    clock.now += 1
    assert auth.login("ada", PASSWORD, hashed=False, peer="user 1001")


def test_who_comes_while_others_are_checked_is_told_so_at_once() -> None:
    checks = Passwords()
    kept = checks.hash("secret")
    with checks._turn("user 1001"):
        with pytest.raises(TooManyLogins, match="too many logins at once: try again in 1 s"):
            checks.check("secret", kept, user_exists=True, peer="user 1001", name="ada")
        assert checks.check("secret", kept, user_exists=True, peer="user 1000", name="ada")
        with checks._turn("user 1002"), pytest.raises(TooManyLogins):
            checks.check("secret", kept, user_exists=True, peer="user 1000", name="ada")
    assert checks.check("secret", kept, user_exists=True, peer="user 1001", name="ada")


def test_an_unknown_name_takes_the_same_work_and_gets_the_same_answer(
    auth: Auth, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = []
    verify = argon2.PasswordHasher.verify

    def counted(self: argon2.PasswordHasher, kept: str, given: str) -> bool:
        checked.append(kept)
        return verify(self, kept, given)

    monkeypatch.setattr(argon2.PasswordHasher, "verify", counted)
    for name in ("ada", "grace"):
        with pytest.raises(Unauthorized, match="^invalid credentials$"):
            auth.login(name, "guess", hashed=False)
    with pytest.raises(Unauthorized, match="^invalid credentials$"):
        auth.login("grace", PASSWORD, hashed=False)
    assert checked == [auth.user.password] * 3


def test_checking_a_password_takes_little_memory_also_where_it_was_kept_at_other_costs(
    auth: Auth, store: SqlStore, tmp_path: Path
) -> None:
    older = argon2.PasswordHasher(time_cost=1, memory_cost=8 << 10, parallelism=4)
    assert auth.login("ada", PASSWORD, hashed=False)
    from dethpc.master.http.auth import salted

    auth._passwords.hash = older.hash  # type: ignore[method-assign]
    auth._keep_password(salted(PASSWORD))
    del auth._passwords.hash
    assert "m=8192,t=1,p=4" in auth.user.password
    assert auth.login("ada", PASSWORD, hashed=False)
    assert "m=7168,t=5,p=1" in auth.user.password
    assert auth.login("ada", PASSWORD, hashed=False)


def test_a_login_that_is_refused_says_when_to_come_again(served: Served) -> None:
    checks = served.daemon.services.auth._passwords
    users.change(served.session, 1, password=PASSWORD)
    with checks._turn("one"), checks._turn("another"):
        with pytest.raises(Refused, match="try again in 1 s"):
            login(served.url, served.owner, PASSWORD)
        assert login(served.url, served.owner, served.token), "by the token file, one logs in at once"
        import http.client

        connection = http.client.HTTPConnection(served.url.partition("//")[2])
        connection.request("POST", "/api/v1/auth/login", json.dumps({"username": "x", "password": "y"}))
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        connection.close()


@pytest.mark.parametrize("field", ["username", "password"])
@pytest.mark.parametrize("hashed", [False, True])
def test_text_that_is_no_text_is_refused(served: Served, field: str, hashed: bool) -> None:
    body = {"username": served.owner, "password": "x", "isHashed": hashed, field: "\ud800"}
    with pytest.raises(Refused, match="out of range"):
        Session(served.url).post("/api/v1/auth/login", body)


# --- to whom a password goes


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stranger]:
    """A stranger where the home's own master was."""
    made = Stranger(lambda path: b'{"token": "stranger\'s"}')
    home = tmp_path / "own"
    home.mkdir()
    monkeypatch.setenv("DETHPC_HOME", str(home))
    (home / "token").write_text("t" * 43 + "\n")
    (home / "token").chmod(0o600)
    (home / "master.json").write_text(json.dumps({"url": made.url, "pid": 1, "host": "x"}))
    yield made
    made.stop()


def test_a_password_goes_to_no_server_that_does_not_prove_to_be_the_master(there: Stranger) -> None:
    for password in (PASSWORD, "t" * 43):
        with pytest.raises(Unauthorized, match="does not prove to be your master"):
            Determined(there.url, "ada", password)
    assert there.bodies == [] and there.tokens == []


def test_the_token_files_text_goes_to_no_other_address_as_a_password(
    there: Stranger, tmp_path: Path, served: Served
) -> None:
    (tmp_path / "own" / "master.json").write_text(json.dumps({"url": "http://elsewhere:1", "pid": 1, "host": "x"}))
    with pytest.raises(Unauthorized, match="does not prove to be your master"):
        Determined(there.url, "ada", "t" * 43)
    assert there.bodies == []
    users.change(served.session, 1, password=PASSWORD)
    assert Determined(served.url, served.owner, PASSWORD).whoami().username == served.owner


def test_the_owner_logs_in_where_the_server_proves_itself(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETHPC_HOME", str(served.daemon.installation.home.root))
    assert Determined(served.url, served.owner, served.token).whoami().username == served.owner


# --- how logins end


def logins(served: Served) -> list[Session]:
    """A login and an access token."""
    made = served.session.post("/api/v1/tokens", {"lifespan": "-1"})["token"]
    return [Session(served.url, login(served.url, served.owner, served.token)), Session(served.url, made)]


def assert_ended(sessions: list[Session]) -> None:
    for session in sessions:
        with pytest.raises(Unauthorized, match="was ended: log in again, or make another token") as refused:
            users.me(session)
        assert refused.value.status == 401
        session.close()


def test_a_new_password_ends_every_login_and_access_token(served: Served) -> None:
    sessions = logins(served)
    assert [users.me(session)["username"] for session in sessions] == [served.owner] * 2
    users.change(sessions[0], 1, password=PASSWORD)
    assert_ended(sessions)
    assert users.me(served.session)["username"] == served.owner
    assert login(served.url, served.owner, PASSWORD)


def test_a_short_password_is_refused_in_words_where_it_can_be_seen(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_MASTER", served.url)
    monkeypatch.setenv("DET_USER_TOKEN", served.token)
    done = CliRunner().invoke(main, ["user", "change-password"], input="a\na\n")
    assert done.exit_code != 0 and "the password has 1 characters; it needs at least 8" in done.output
    for path, body in (("/users/1/password", "seven77"), ("/users/1/password", "")):
        with pytest.raises(Refused, match="at least 8"):
            served.session.post(f"/api/v1{path}", body)
    assert not served.daemon.services.auth.user.password
    users.change(served.session, 1, password=salted("x"), isHashed=True)  # as the published client sends it
    assert login(served.url, served.owner, "x")


def test_all_logins_end_by_the_command_line(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_MASTER", served.url)
    monkeypatch.setenv("DET_USER_TOKEN", served.token)
    sessions = logins(served)
    done = CliRunner().invoke(main, ["user", "logout", "--all"])
    assert done.exit_code == 0 and done.output == f"Every login and access token of {served.owner} has ended\n"
    assert_ended(sessions)


def test_one_login_ends_by_the_command_line(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_MASTER", served.url)
    first, second = logins(served)
    monkeypatch.setenv("DET_USER_TOKEN", str(first._token))
    assert CliRunner().invoke(main, ["user", "logout"]).output == f"{served.owner} is logged out\n"
    with pytest.raises(Unauthorized):
        users.me(first)
    assert users.me(second)["username"] == served.owner
    first.close(), second.close()


def test_a_new_token_file_ends_every_login_and_access_token(tmp_path: Path, auth: Auth, store: SqlStore) -> None:
    from dethpc.domain.records import TokenKind

    session = auth.login("ada", PASSWORD, hashed=False)
    access, _ = auth.make_token(TokenKind.ACCESS, None)
    assert auth_of(tmp_path, store).principal(session).role is Role.ADMIN, "a restart ends none"
    (tmp_path / "token").unlink()
    for _ in range(2):
        again = auth_of(tmp_path, store)
        for token in (session, access):
            with pytest.raises(Unauthorized, match="was ended"):
                again.principal(token)
    assert again.principal(again.login("ada", PASSWORD, hashed=False)).role is Role.ADMIN


def test_nobody_logs_in_by_a_password_that_was_changed_meanwhile(auth: Auth, monkeypatch: pytest.MonkeyPatch) -> None:
    check = auth._passwords.check

    def changed_meanwhile(*given: str, **who: object) -> bool:
        right = check(*given, **who)  # type: ignore[arg-type]
        changing = threading.Thread(target=auth.set_password, args=("Another-1",), kwargs={"hashed": False})
        changing.start()
        changing.join()
        return right

    monkeypatch.setattr(auth._passwords, "check", changed_meanwhile)
    with pytest.raises(Unauthorized, match="changed meanwhile"):
        auth.login("ada", PASSWORD, hashed=False)


def test_at_ones_own_master_the_login_of_a_named_user_ends_and_the_token_file_stays(
    served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = served.daemon.installation.home
    home.master_file.write_text(json.dumps({"url": served.url}))
    monkeypatch.setenv("DETHPC_HOME", str(home.root))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("DET_MASTER", served.url)
    users.create(served.session, "grace", PASSWORD)
    remember(served.url, "grace", login(served.url, "grace", PASSWORD))
    refused = CliRunner().invoke(main, ["user", "logout"])
    assert refused.exit_code == 1 and "you use your token file" in refused.output
    assert CliRunner().invoke(main, ["-u", "grace", "user", "logout"]).output == "grace is logged out\n"
    with pytest.raises(Unauthorized):
        users.me(Session(served.url, stored_login(served.url, "grace")))
