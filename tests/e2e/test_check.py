"""``det master check`` over the database and files of real experiments."""

from __future__ import annotations

import json
import shutil
import sqlite3

import pytest

from tests.e2e.conftest import User


def differences(user: User, code: int = 1) -> dict[tuple[int | None, str], str]:
    found = json.loads(user.det("master", "check", "--json", code=code))["differences"]
    return {(each["experimentId"], each["where"]): each["what"] for each in found}


def test_what_differs_is_said_for_each_experiment(user: User) -> None:
    for _ in range(4):
        user.det("experiment", "wait", str(user.create(hyperparameters={"lr": 0.1, "steps": 3})))
    user.det("master", "down")
    files = {path: path.stat().st_mtime_ns for path in user.home.rglob("*.json*")}
    assert user.det("master", "check").strip() == "The database and the files agree (4 experiments)"
    with sqlite3.connect(user.home / "dethpc.db") as connection:
        connection.execute("UPDATE trials SET best_validation = 7 WHERE id = 1")
        connection.execute("DELETE FROM metrics WHERE id = (SELECT min(id) FROM metrics WHERE trial_id = 2)")
        connection.execute(
            "UPDATE metrics SET steps_completed = 9 WHERE id = (SELECT min(id) FROM metrics WHERE trial_id = 1)"
        )
        connection.execute("UPDATE users SET admin = 1 - admin")
    shutil.rmtree(user.home / "runs" / "3.3.1")
    (checkpoint,) = (path for path in (user.home / "checkpoints").iterdir() if path.name in user_checkpoints(user, 4))
    shutil.rmtree(checkpoint)
    (cleaned,) = (path for path in (user.home / "checkpoints").iterdir() if path.name in user_checkpoints(user, 3))
    for path in cleaned.iterdir():
        path.unlink()
    (cleaned / "state.json").write_text("{}")
    with open(user.home / "experiments" / "4" / "changes.jsonl", "a") as log:
        log.write("garbage\n")
    found = differences(user)
    assert found[1, "change log"] == "Trial 1 is not the same in the database and the change log"
    assert found[2, "journal"].endswith("has 4 reports of metrics that count, the database 3")
    assert "3.3.1 is missing" in found[3, "run directory"] and "journal.jsonl is missing" in found[3, "journal"]
    assert f"checkpoint {checkpoint.name} is not in" in found[4, "checkpoint"]
    assert (
        f"checkpoint {cleaned.name}: metadata.json is missing, and 1 more of its 2 files differ"
        in found[3, "checkpoint"]
    )
    assert "damaged lines: " in found[4, "change log"]
    assert found[None, "change log"] == "User 1 is not the same in the database and the change log"
    assert "database and journal differ in report 1" in found[1, "journal"]
    assert len(found) == 9
    assert "Where" in user.det("master", "check", code=1) and "det master rebuild" in user.errors
    damaged = {user.home / "experiments" / "4" / "changes.jsonl", cleaned / "state.json"}
    left = {path: at for path, at in files.items() if path.exists() and path not in damaged}
    assert left == {path: path.stat().st_mtime_ns for path in left}
    shutil.rmtree(user.home / "runs" / "2.2.1")
    (user.home / "runs" / "2.2.1" / "attempts" / "0" / "journal.jsonl").mkdir(parents=True)
    shutil.rmtree(user.home / "experiments" / "4")
    (user.home / "experiments" / "4" / "changes.jsonl").mkdir(parents=True)
    found = differences(user)
    assert found[2, "journal"].endswith("journal.jsonl cannot be read: Is a directory")
    assert found[4, "change log"].endswith("changes.jsonl cannot be read: Is a directory")


def user_checkpoints(user: User, experiment: int) -> set[str]:
    with sqlite3.connect(user.home / "dethpc.db") as connection:
        return {
            row[0] for row in connection.execute("SELECT uuid FROM checkpoints WHERE experiment_id = ?", (experiment,))
        }


def test_what_the_database_does_not_know_is_said(user: User) -> None:
    user.det("experiment", "wait", str(user.create(hyperparameters={"lr": 0.1, "steps": 3})))
    user.det("master", "down")
    (user.home / "experiments" / "9").mkdir()
    (user.home / "runs" / "1.1.2").mkdir()
    assert differences(user) == {
        (9, "database"): "has files, but is not in the database",
        (1, "database"): "run 1.1.2 has files, but is not in the database",
    }
    for path in user.home.glob("dethpc.db*"):
        path.unlink()
    assert differences(user) == {(None, "database"): f"{user.home / 'dethpc.db'} is missing"}
    assert not (user.home / "dethpc.db").exists()


def test_a_busy_master_is_not_taken_for_a_difference(user: User) -> None:
    created = user.create(
        searcher={"name": "random", "metric": "validation_loss", "max_trials": 8, "max_concurrent_trials": 4},
        hyperparameters={"lr": 0.1, "steps": 40, "pause": 0.01},
    )
    for steps in (1, 10, 20):
        user.wait_steps(created, steps)
        assert differences(user, code=0) == {}
    user.det("experiment", "wait", str(created))
    assert differences(user, code=0) == {}


@pytest.mark.everything
def test_a_damaged_change_log_of_an_ended_experiment_is_written_again_when_asked(user: User) -> None:
    for _ in "ab":
        user.det("experiment", "wait", str(user.create(hyperparameters={"lr": 0.1, "steps": 3})))
    log, other = (user.home / "experiments" / id / "changes.jsonl" for id in "12")
    user.det("master", "check", "--mend", code=1)
    assert "det master down" in user.errors, "a master runs"
    user.det("master", "down")
    whole = {path: path.read_bytes() for path in (log, other)}
    first, *rest = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([first, *rest[:2], b"garbage\n", rest[-1][:40] + b"?" + rest[-1][41:], *rest[2:-1]]))
    damaged = log.read_bytes()
    assert "damaged lines" in differences(user)[1, "change log"]
    assert "damaged lines" in user.det("master", "check", code=1) and "det master check --mend" in user.errors
    assert log.read_bytes() == damaged

    assert user.det("master", "check", "--mend").strip() == "The database and the files agree (2 experiments)"
    assert str(log) in user.errors and str(other) not in user.errors
    assert [path.read_bytes() for path in log.parent.glob("*.damaged")] == [damaged]
    assert other.read_bytes() == whole[other] and not list(other.parent.glob("*.damaged"))
    before = user.json("experiment", "describe", "1")
    user.det("master", "down")
    user.det("master", "rebuild", "--yes")
    assert user.json("experiment", "describe", "1") == before

    user.det("master", "down")
    with sqlite3.connect(user.home / "dethpc.db") as connection:  # an older database: the file knows more
        connection.execute("DELETE FROM trials WHERE experiment_id = 1")
    with open(log, "a") as file:
        file.write("garbage\n")
    ahead = log.read_bytes()
    user.det("master", "check", "--mend", code=1)
    assert log.read_bytes() == ahead
