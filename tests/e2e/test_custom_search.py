"""A search method of the user's own: its process is killed, the master is killed, and nothing is done twice."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.conftest import User, make_user, take_down
from tests.e2e.test_generations import OPERATIONS
from tests.waiting import wait_until

SEARCH = '''
"""Six trials for 2 epochs; the better half goes on to 6. Every call is written down."""
import json, logging, sys, uuid
from dethpc.client.custom_search import Close, Create, LocalSearchRunner, SearchMethod, Shutdown, ValidateAfter

logging.basicConfig(level=logging.INFO)
LRS = [0.08, 0.05, 0.009, 0.03, 0.02, 0.001]

class Halving(SearchMethod):
    def __init__(self):
        self.lr, self.found, self.open = {}, {}, 6

    def note(self, *words):
        with open("calls", "a") as file:
            file.write(json.dumps(words) + "\\n")

    def initial_operations(self, state):
        operations = []
        for lr in LRS:
            request = uuid.uuid4()
            self.lr[str(request)] = lr
            operations += [Create(request, {"lr": lr}), ValidateAfter(request, 2)]
        return operations

    def on_trial_created(self, state, request_id):
        self.note("created", str(request_id))
        return []

    def on_validation_completed(self, state, request_id, metric, train_length):
        self.note("validated", str(request_id), train_length)
        if train_length == 6:
            return [Close(request_id)]
        self.found[str(request_id)] = metric
        if len(self.found) < 6:
            return []
        ranked = sorted(self.found, key=self.found.get)
        return [ValidateAfter(uuid.UUID(r), 6) for r in ranked[:3]] + [Close(uuid.UUID(r)) for r in ranked[3:]]

    def on_trial_closed(self, state, request_id):
        self.note("closed", str(request_id))
        self.open -= 1
        return [] if self.open else [Shutdown()]

    def progress(self, state):
        return len(state.trials_closed) / 6

    def save_method_state(self, path):
        (path / "state.json").write_text(json.dumps([self.lr, self.found, self.open]))

    def load_method_state(self, path):
        self.lr, self.found, self.open = json.loads((path / "state.json").read_text())

config = {
    "name": "own search",
    "entrypoint": "python3 train.py",
    "searcher": {"name": "custom", "metric": "loss", "unit": "epochs"},
    "hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": 1}},
    "max_restarts": 0,
}
print("searched", LocalSearchRunner(Halving(), "kept").run(config, "context"))
'''


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    user = make_user(tmp_path, DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="4")
    (user.folder / "context" / "train.py").write_text(OPERATIONS)
    (user.folder / "search.py").write_text(SEARCH)
    yield user
    take_down(user)


def start(user: User) -> subprocess.Popen[str]:
    with open(user.folder / "search.log", "a") as log:
        return subprocess.Popen(
            [sys.executable, "search.py"], cwd=user.folder, env=user.env, stdout=log, stderr=log, text=True
        )


def calls(user: User) -> list[tuple[str | int, ...]]:
    try:
        return [tuple(json.loads(line)) for line in (user.folder / "calls").read_text().splitlines()]
    except FileNotFoundError:
        return []


def has_called(user: User, searching: subprocess.Popen[str], count: int) -> bool:
    return len(calls(user)) >= count or searching.poll() is not None


def test_the_best_of_six_is_found_though_everything_is_killed(user: User) -> None:
    user.det("experiment", "list")  # a master
    rng = random.Random(os.urandom(8))
    searching = start(user)
    # Before it has made its experiment, at any moment while trials train, and when only the end is left.
    for count in (0, rng.randint(1, 6), rng.randint(7, 12), rng.randint(13, 16)):
        wait_until(partial(has_called, user, searching, count))
        time.sleep(rng.uniform(0, 0.3))
        searching.send_signal(signal.SIGKILL)
        searching.wait()
        if count == 0 or rng.random() < 0.5:
            user.kill_master()
            user.det("experiment", "list")
        searching = start(user)
    wait_until(lambda: searching.poll() is not None)
    log = (user.folder / "search.log").read_text()
    assert searching.returncode == 0, log
    assert log.splitlines()[-1] == "searched 1"
    (experiment,) = user.json("experiment", "list")
    assert experiment["state"] == "STATE_COMPLETED" and experiment["numTrials"] == 6
    trained = {
        trial["hparams"]["lr"]: [
            int(n) for n in re.findall(r"completed (\d+)", user.det("trial", "logs", str(trial["id"])))
        ]
        for trial in user.trials(1)
    }
    assert trained == {0.009: [2, 6], 0.001: [2, 6], 0.02: [2, 6], 0.03: [2], 0.05: [2], 0.08: [2]}
    best = min(user.trials(1), key=lambda trial: float(trial["searcherMetricValue"]))
    assert best["hparams"]["lr"] == 0.009
    assert {trial["state"] for trial in user.trials(1)} == {"STATE_COMPLETED"}
    # A call that was cut off comes again; what it was about happened once.
    assert set(Counter(call[0] for call in set(calls(user))).items()) == {
        ("created", 6),
        ("validated", 9),
        ("closed", 6),
    }


AT_ONCE = """
import uuid
from determined import searcher

class Two(searcher.SearchMethod):
    def initial_operations(self, state):
        operations = []
        for lr in (0.05, 0.02):
            request = uuid.uuid4()
            operations += [
                searcher.Create(request, {"lr": lr}), searcher.ValidateAfter(request, 3), searcher.Close(request)
            ]
        return [*operations, searcher.Shutdown()]

    def on_validation_completed(self, state, request_id, metric, train_length):
        return []

print("searched", searcher.LocalSearchRunner(Two()).run("config.yaml", model_dir="context", includes=["beside.txt"]))
"""


def test_a_file_is_searched_by_operations_that_are_all_given_at_once(user: User) -> None:
    user.config(
        entrypoint="cat beside.txt && test ! -e big && python3 train.py",
        searcher={"name": "custom", "metric": "loss", "unit": "epochs"},
        hyperparameters={},
    )
    user.write("beside.txt", "sent beside the directory")
    user.write("context/.detignore", "big")
    user.write("context/big", "not sent")
    user.det("experiment", "list")  # a master
    done = subprocess.run(
        [sys.executable, "-c", AT_ONCE], cwd=user.folder, env=user.env, capture_output=True, text=True, check=False
    )
    assert done.stdout == "searched 1\n", done.stderr
    assert user.experiment(1)["state"] == "STATE_COMPLETED"
    for trial in user.trials(1):
        assert trial["state"] == "STATE_COMPLETED"
        log = user.det("trial", "logs", str(trial["id"]))
        assert "completed 3" in log and "sent beside the directory" in log
    assert len(user.trials(1)) == 2


REMOTE = SEARCH.replace('LocalSearchRunner(Halving(), "kept")', "RemoteSearchRunner(Halving(), core)").replace(
    "LocalSearchRunner, SearchMethod", "RemoteSearchRunner, SearchMethod"
)
"""The same search in a job of its own, as published programs write it; its trials are an experiment beside that of the search."""


def test_a_search_in_a_job_of_its_own_goes_on_after_a_pause(user: User) -> None:
    remote = REMOTE.replace('"calls"', repr(str(user.folder / "calls")))
    decisions, _, run = remote.replace('"context")', '".")').rpartition("print(")
    user.write("runner/train.py", (user.folder / "context" / "train.py").read_text())
    program = f"{decisions}import determined as det\nwith det.core.init() as core:\n    print({run}"
    (user.folder / "runner" / "search.py").write_text(program)
    user.config(
        "runner.yaml",
        entrypoint="python3 search.py",
        resources={"slots_per_trial": 0},
        searcher={"name": "single", "metric": "none"},
        hyperparameters=None,
        max_restarts=0,
    )
    runner = int(user.det("experiment", "create", "runner.yaml", "runner").split()[-1])
    wait_until(lambda: len(calls(user)) >= 6)
    user.det("experiment", "pause", str(runner))
    wait_until(lambda: not any(run["state"] == "RUNNING" for run in user.json("trial", "describe", "1")["runs"]))
    user.det("experiment", "activate", str(runner))
    user.wait_state(runner, "COMPLETED")
    (searched,) = (e for e in user.json("experiment", "list", "--all") if e["id"] != runner)
    assert searched["name"] == "own search" and searched["state"] == "STATE_COMPLETED"
    assert len(user.trials(searched["id"])) == 6
    assert Counter(what for what, *_ in calls(user))["closed"] == 6
