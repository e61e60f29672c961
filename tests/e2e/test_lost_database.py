"""A database that is lost, older than the files, or being made again: nobody is given old results, and nothing is lost."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import User
from tests.waiting import wait_until

GRID = {
    "searcher": {"name": "grid", "metric": "validation_loss"},
    "hyperparameters": {"lr": {"type": "categorical", "vals": [0.1, 0.2]}, "steps": 3},
}


def trained(user: User, **changes: Any) -> int:
    experiment = user.create(**{**GRID, **changes})
    user.det("experiment", "wait", str(experiment))
    return experiment


def seen(user: User, experiment: int) -> list[Any]:
    """What a user would miss: states, hyperparameters, and every report."""
    found = user.trials(experiment)
    return [
        (t["id"], t["hparams"], t["state"], [m["metrics"] for m in user.metrics(t["id"], "training")]) for t in found
    ]


def databases(user: User) -> list[Path]:
    return sorted(user.home.glob("dethpc.db*"))


def delete_database(user: User) -> None:
    user.det("master", "down")
    for path in databases(user):
        path.unlink()


def lose_the_write_ahead_log(user: User) -> None:
    user.kill_master()
    assert (user.home / "dethpc.db-wal").stat().st_size > 0
    for name in ("dethpc.db-wal", "dethpc.db-shm"):
        (user.home / name).unlink()


@pytest.mark.parametrize(
    "lose", [delete_database, pytest.param(lose_the_write_ahead_log, marks=pytest.mark.everything)]
)
def test_a_database_that_knows_less_than_the_files_is_not_served(user: User, lose: Any) -> None:
    experiment = trained(user)
    before = seen(user, experiment)
    lose(user)
    user.config(hyperparameters={"lr": 0.7, "steps": 3})
    for words in (["experiment", "list"], ["experiment", "create", "config.yaml", "context"]):
        user.det(*words, code=1)
        assert "is older than the files" in user.errors and "experiment 1" in user.errors, user.errors
        assert "det master rebuild" in user.errors
    user.det("master", "rebuild", "--yes")
    assert user.create(hyperparameters={"lr": 0.7, "steps": 3}) == 2
    assert seen(user, experiment) == before


def test_a_lost_database_loses_no_command_that_runs_and_no_user(user: User) -> None:
    go = user.folder / "go"
    task = user.det("command", "run", "--detach", f"while ! test -e {go}; do sleep 0.1; done; echo it went on").strip()
    user.det("user", "create", "grace", "--password", "correct horse")
    user.kill_master()
    for path in databases(user):
        path.unlink()
    user.det("command", "list", code=1)
    assert "is older than the files" in user.errors and "det master rebuild" in user.errors, user.errors
    user.det("master", "rebuild", "--yes")
    go.touch()
    wait_until(lambda: "success" in user.det("command", "list", "--all"))
    assert "it went on" in user.det("command", "logs", task)
    assert "grace" in user.det("user", "list")


@pytest.mark.everything
def test_an_older_copy_of_the_database_is_not_served(user: User) -> None:
    trained(user)
    user.det("master", "down")
    shutil.copy(user.home / "dethpc.db", user.folder / "backup.db")
    second = trained(
        user, hyperparameters={"lr": 0.3, "steps": 3}, searcher={"name": "single", "metric": "validation_loss"}
    )
    user.det("master", "down")
    shutil.copy(user.folder / "backup.db", user.home / "dethpc.db")
    user.det("experiment", "list", code=1)
    assert f"does not know experiment {second} and run {second}.3.1" in user.errors, user.errors
    user.det("master", "rebuild", "--yes")
    assert [t["state"] for t in (user.det("experiment", "list"), user.trials(second))[1]] == ["STATE_COMPLETED"]


def test_a_rebuild_reads_over_damaged_lines_and_names_them(user: User) -> None:
    for _ in "ab":
        trained(user)
    before = [seen(user, experiment) for experiment in (1, 2)]
    user.det("master", "down")
    log = user.home / "experiments" / "2" / "changes.jsonl"
    with open(log, "ab") as file:
        file.write(
            b'\n[1,2]\n{"table": "Trial", "key": [9], "row": {"id": "\xff"}}\n' + bytes(range(128, 256)) * 2 + b"\n"
        )
    out = user.det("master", "rebuild", "--yes", code=1)
    assert "2 experiments, 4 trials, 4 runs, 16 metric reports" in out
    assert f"{log}: 3 lines could not be read" in user.errors
    user.det("experiment", "list")
    assert [seen(user, experiment) for experiment in (1, 2)] == before


def test_a_damaged_line_of_a_journal_costs_itself_alone(user: User) -> None:
    experiment = trained(user)
    user.det("master", "down")
    journal = user.home / "runs" / f"{experiment}.1.1" / "attempts" / "0" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0].replace(b"loss", b"l\xffss"), *lines[1:]]))
    user.det("master", "rebuild", "--yes", code=1)
    assert f"{journal}: 1 line could not be read (line 1)" in user.errors
    user.det("experiment", "list")
    assert [m["totalBatches"] for m in user.metrics(1, "training")] == [2, 3]
    assert [m["totalBatches"] for m in user.metrics(2, "training")] == [1, 2, 3]


@pytest.mark.everything
def test_an_experiment_without_its_change_log_is_named_and_its_id_is_not_given_again(user: User) -> None:
    for _ in "ab":
        trained(user)
    user.det("master", "down")
    (user.home / "experiments" / "2" / "changes.jsonl").unlink()
    out = user.det("master", "rebuild", "--yes", code=1)
    assert "1 experiment, " in out
    assert "experiment 2 could not be recreated" in user.errors and "changes.jsonl is missing" in user.errors
    assert [row["id"] for row in user.json("experiment", "list")] == [1]
    assert user.create(hyperparameters={"lr": 0.7, "steps": 3}) == 3
    user.det("experiment", "wait", "3")
    assert [t["id"] for t in user.trials(3)] == [5]


@pytest.mark.everything
def test_a_rebuild_that_is_killed_leaves_the_old_database_as_it_was(user: User) -> None:
    for _ in "abc":
        trained(user)
    before = [seen(user, experiment) for experiment in (1, 2, 3)]
    user.kill_master()  # so that its database has a log to keep
    # The second experiment's change log is a pipe that nobody fills: the rebuild waits in the middle.
    log = user.home / "experiments" / "2" / "changes.jsonl"
    log.rename(log.with_name("aside"))
    os.mkfifo(log)
    command = [sys.executable, "-m", "dethpc.master", "--home", str(user.home), "--rebuild"]
    with subprocess.Popen(command, env=user.env) as process:
        end: list[int | None] = []
        wait_until(lambda: end.append(open_pipe(log)) or end[-1])
        process.send_signal(signal.SIGKILL)
    os.close(end[-1] or 0)
    assert (user.home / "dethpc.db.new").exists()
    log.unlink()
    log.with_name("aside").rename(log)
    user.det("experiment", "list")
    assert [seen(user, experiment) for experiment in (1, 2, 3)] == before
    user.det("master", "down")
    user.det("master", "rebuild", "--yes")
    user.det("experiment", "list")
    assert [seen(user, experiment) for experiment in (1, 2, 3)] == before
    assert not (user.home / "dethpc.db.new").exists()


def open_pipe(path: Path) -> int | None:
    """The end to write into, once somebody reads."""
    try:
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


@pytest.mark.everything
def test_the_old_database_is_kept_and_can_be_opened(user: User) -> None:
    trained(user)
    user.kill_master()  # all of it is in the write-ahead log
    user.det("master", "rebuild", "--yes")
    user.det("master", "rebuild", "--yes")
    kept = sorted(user.home.glob("dethpc.*.old.db"))
    assert len(kept) == 2 and not list(user.home.glob("*.old.*.old*"))
    for path in kept:
        with sqlite3.connect(path) as connection:
            assert connection.execute("SELECT count(*) FROM trials").fetchone() == (2,)
    assert re.findall(r"kept: (\S+)", user.det("master", "rebuild", "--yes"))[0] not in map(str, kept)


@pytest.mark.everything
def test_a_database_that_cannot_be_read_is_kept_as_it_is(user: User) -> None:
    experiment = trained(user)
    before = seen(user, experiment)
    user.det("master", "down")
    (user.home / "dethpc.db").write_bytes(b"garbage" * 1000)
    user.det("master", "rebuild", "--yes")
    (kept,) = user.home.glob("dethpc.*.old.db")
    assert kept.read_bytes().startswith(b"garbage")
    user.det("experiment", "list")
    assert seen(user, experiment) == before


def test_a_run_directory_of_another_run_is_neither_adopted_nor_written_over(user: User) -> None:
    trained(user)
    created = user.create("--paused", hyperparameters={"lr": 0.7, "steps": 3})
    (waits,) = user.trials(created)
    foreign = user.home / "runs" / f"{created}.{waits['id']}.1"
    shutil.copytree(user.home / "runs" / "1.1.1", foreign)
    before = contents(foreign)
    user.det("experiment", "activate", str(created))
    user.det("experiment", "wait", str(created), code=1)
    assert f"{foreign} holds files of another run 1.1.1" in user.det("experiment", "describe", str(created))
    assert contents(foreign) == before and user.metrics(waits["id"], "training") == []


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
