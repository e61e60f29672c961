"""A user whose site configuration names a PostgreSQL database: masters are killed, the server restarts and is away."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from dethpc.domain.facts import Trial
from dethpc.state import reading, rows
from tests import folders, processes
from tests.e2e.conftest import TRAIN, User, make_user, take_down
from tests.e2e.test_lost_database import open_pipe, seen, trained
from tests.postgresql import IN_A_URL, PASSWORD, PostgresServer
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One that would acknowledge commits that are not on disk."""
    with PostgresServer("synchronous_commit=off") as running:
        yield running


@pytest.fixture
def user(tmp_path: Path, server: PostgresServer) -> Iterator[User]:
    user = make_user(tmp_path, DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="4")
    keep_in(user, server.database())
    yield user
    take_down(user)


def keep_in(user: User, url: str) -> None:
    user.home.mkdir(mode=0o700, exist_ok=True)
    (user.home / "site.yaml").write_text(f"database: {url}\n")


def losses(lr: float, steps: int) -> list[float]:
    """What the training of ``tests/e2e/conftest.py`` reports when no step is left out or done twice."""
    state, found = "seed", []
    for step in range(steps):
        state = hashlib.sha256(f"{state}:{step}:{lr}".encode()).hexdigest()
        found.append(int(state[:8], 16) / 2**32)
    return found


def test_masters_are_killed_and_the_server_restarts_and_is_away_and_results_are_exact(
    user: User, server: PostgresServer
) -> None:
    lrs, steps = [0.1, 0.2, 0.3, 0.4, 0.5], 70
    gates = user.folder / "gates"
    gates.mkdir()
    loop = "    for step in range(start, steps):\n"
    wait = "        while not pathlib.Path(hparams['gates'], str(step // 10)).exists(): time.sleep(0.05)\n"
    assert loop in TRAIN
    user.write("context/train.py", TRAIN.replace(loop, loop + wait))
    grid = {"lr": {"type": "categorical", "vals": lrs}, "steps": steps, "pause": 0, "gates": str(gates)}
    log = user.home / "log" / "master.log"

    def train_on(to: int) -> None:
        (gates / str(to // 10 - 1)).touch()

    experiment = user.create(hyperparameters=grid, searcher={"name": "grid", "metric": "validation_loss"})
    for to in (10, 20, 30):
        train_on(to)
        user.kill_master()
        user.det("experiment", "list")  # starts another
        user.wait_steps(experiment, to)

    pid = user.master()["pid"]
    train_on(40)
    server.restart()
    user.wait_steps(experiment, 40)

    with server.away():
        train_on(50)
        wait_until(lambda: "this master waits for it" in log.read_text())
        for words in (["list"], ["pause", str(experiment)]):
            user.det("experiment", *words, code=1)
            assert "the database server does not answer" in user.errors and "Traceback" not in user.errors, user.errors
    user.wait_steps(experiment, 50)
    assert "the database server answers again" in log.read_text()
    assert user.master()["pid"] == pid

    with server.away():
        for to in (60, 70):
            train_on(to)
        user.kill_master()
        user.det("experiment", "list", code=1)
        assert "the master did not start" in user.errors and "the database server does not answer" in user.errors
        assert "Traceback" not in user.errors
    user.det("experiment", "wait", str(experiment))
    trials = user.trials(experiment)
    assert sorted(trial["hparams"]["lr"] for trial in trials) == lrs
    for trial in trials:
        told = [(m["totalBatches"], m["metrics"]["avg_metrics"]["loss"]) for m in user.metrics(trial["id"], "training")]
        assert told == list(enumerate(losses(trial["hparams"]["lr"], steps), 1))
    assert "agree (1 experiments)" in user.det("master", "check")
    nobody_reads_the_password(user)


@pytest.mark.everything
def test_a_server_that_says_nothing_is_told_and_costs_no_master(user: User, server: PostgresServer) -> None:
    user.det("experiment", "list")
    pid = user.master()["pid"]
    with server.stopped():
        for _ in range(2):
            user.det("experiment", "list", code=1)
            assert "the database server does not answer" in user.errors and "Traceback" not in user.errors, user.errors
    wait_until(lambda: user.det("experiment", "list", code=None) and not user.errors)
    assert user.master()["pid"] == pid


def nobody_reads_the_password(user: User) -> None:
    shown = [user.det("master", *words) + user.errors for words in (["info"], ["logs"])]
    shown += [content.decode(errors="replace") for _, content in folders.contents(user.home)]
    (user.home / "site.yaml").unlink()
    for path in processes.files("cmdline"):
        try:
            mine = f"DETHPC_HOME={user.home}".encode() in path.with_name("environ").read_bytes()
            shown += [path.read_text(), path.with_name("environ").read_text()] if mine else []
        except OSError:
            continue
    assert sum(PASSWORD in text or IN_A_URL in text for text in shown) == 1, "site.yaml alone has it"


def test_a_wrong_password_is_refused_and_not_shown(user: User, server: PostgresServer) -> None:
    keep_in(user, f"postgresql://tester:hunter2@/postgres?host={server.folder}")
    for command in ("up", "check"):
        shown = user.det("master", command, code=1) + user.errors
        assert "password authentication failed" in shown and "Traceback" not in shown, shown
        assert "hunter2" not in shown + (user.home / "log" / "master.log").read_text()


def test_a_rebuild_fills_a_schema_beside_and_takes_the_place_of_the_old_one_in_one_step(
    user: User, server: PostgresServer
) -> None:
    for _ in "ab":
        trained(user)
    before = [seen(user, experiment) for experiment in (1, 2)]
    user.det("master", "down")
    # The second experiment's change log is a pipe that nobody fills: the rebuild waits in the middle, and is killed.
    log = user.home / "experiments" / "2" / "changes.jsonl"
    log.rename(log.with_name("aside"))
    os.mkfifo(log)
    for _ in range(2):
        command = [sys.executable, "-m", "dethpc.master", "--home", str(user.home), "--rebuild"]
        with subprocess.Popen(command, env=user.env) as process:
            end: list[int | None] = []
            wait_until(lambda: end.append(open_pipe(log)) or end[-1])  # noqa: B023
            process.send_signal(signal.SIGKILL)
        os.close(end[-1] or 0)
    log.unlink()
    log.with_name("aside").rename(log)
    user.det("experiment", "list")
    assert [seen(user, experiment) for experiment in (1, 2)] == before
    user.det("master", "down")

    with open(log, "ab") as file:
        file.write(b'\n[1,2]\n{"table": "Trial", "key": [9], "row": {"id": "\xff"}}\n')
    out = user.det("master", "rebuild", "--yes", code=1)
    assert "2 experiments, 4 trials, 4 runs, 16 metric reports" in out
    assert f"{log}: 2 lines could not be read" in user.errors
    (kept,) = (line.split()[-5] for line in out.splitlines() if line.startswith("the old database is kept"))
    user.det("experiment", "list")
    assert [seen(user, experiment) for experiment in (1, 2)] == before

    site = (user.home / "site.yaml").read_text().removeprefix("database: ").strip()
    old = make_url(site).update_query_dict({"options": f"-csearch_path={kept}"}).render_as_string(hide_password=False)
    with reading(old) as connection:
        assert len(rows.read(connection, Trial)) == 4


def test_a_database_on_a_server_that_knows_less_than_the_files_is_not_served(
    user: User, server: PostgresServer
) -> None:
    experiment = trained(user)
    user.det("master", "down")
    site = (user.home / "site.yaml").read_text().removeprefix("database: ").strip()
    copy = server.database(like=site)
    second = trained(user)
    before = [seen(user, each) for each in (experiment, second)]
    user.det("master", "down")
    keep_in(user, copy)
    user.det("experiment", "list", code=1)
    assert "does not know experiment 2" in user.errors and "det master rebuild" in user.errors, user.errors
    user.det("master", "rebuild", "--yes")
    user.det("experiment", "list")
    assert [seen(user, each) for each in (experiment, second)] == before
    user.det("master", "down")
    keep_in(user, server.database())
    assert "is empty" in user.det("master", "check", code=1)
    user.det("experiment", "list", code=1)
    assert "does not know experiments 1, 2" in user.errors and "det master rebuild" in user.errors, user.errors
