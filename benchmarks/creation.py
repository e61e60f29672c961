"""What it takes to create an experiment whose 10,000 trials all begin at once: rows of ``decisions``.

From the event to the end of its commit, as a wish from REST goes through the ledger: hyperparameters are drawn, rows decided,
written into SQLite and, one line each, into the change log. Beside it: raw sqlite3, which writes as many rows with the same
hyperparameters and nothing else, and Optuna's SQLite storage, which is given as many trials to come (it is measured with a
hundredth of them: each is a transaction of its own). Processor time; the clock also has what other work on the machine takes.
"""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.frame import Figure, Row, alternate, median, ratio, timed
from dethpc.config.experiment import ExperimentConfig
from dethpc.engine import events
from dethpc.master.durable.change_log import ChangeLog
from dethpc.master.durable.ledger import Ledger
from dethpc.rundir.home import Home
from dethpc.searcher.methods import build
from dethpc.state import open_store

TRIALS = 10_000
LIMIT = 1.0  # seconds
PART = 100

SPACE = {
    "lr": {"type": "log", "minval": -5, "maxval": -1, "base": 10},
    "width": {"type": "int", "minval": 8, "maxval": 512},
}

OPTUNA = """
import sys, time, optuna
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(storage=f"sqlite:///{sys.argv[1]}/optuna.db")
busy = time.process_time()
for n in range(int(sys.argv[2])):
    study.enqueue_trial({"lr": 1e-3, "width": n})
print(time.process_time() - busy)
"""


def ours(folder: Path) -> float:
    searcher = {"name": "random", "metric": "loss", "max_trials": TRIALS, "max_concurrent_trials": TRIALS}
    stored = {"entrypoint": "train", "searcher": searcher, "hyperparameters": SPACE}
    config = ExperimentConfig.from_json({**stored, "resources": {"slots_per_trial": 1, "resource_pool": "main"}})
    event = events.CreateExperiment("me", config, "", "", 7, str(uuid.UUID(int=7)), True, 0.0)
    home = Home(folder / "home")
    home.make()
    with open_store(home.database) as store:
        changes = ChangeLog(home)
        ledger = Ledger(store, build)
        ledger.announce = changes.announce
        ledger.listen(changes.append)
        ledger.start()
        spent = timed(lambda: ledger.do(event))
        ledger.stop()
        assert len(ledger.state.experiments[1].trials) == TRIALS
    return spent.cpu


def raw(folder: Path) -> float:
    database = sqlite3.connect(folder / "raw.db", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("CREATE TABLE trials (id INTEGER PRIMARY KEY, number, hparams)")
    given = [(n, json.dumps({"lr": 1 / (n + 1), "width": n})) for n in range(TRIALS)]

    def write() -> None:
        database.execute("BEGIN")
        database.executemany("INSERT INTO trials VALUES (NULL, ?, ?)", given)
        database.execute("COMMIT")

    spent = timed(write)
    database.close()
    return spent.cpu


def optuna(folder: Path) -> float:
    words = [sys.executable, "-c", OPTUNA, str(folder), str(TRIALS // PART)]
    return PART * float(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def begun(rounds: int) -> Iterator[Row]:
    def in_a_folder(way: Callable[[Path], float]) -> float:
        with tempfile.TemporaryDirectory() as folder:
            return way(Path(folder))

    ways = {"ours": lambda: in_a_folder(ours), "raw sqlite3": lambda: in_a_folder(raw)}
    found = alternate(ways, rounds)
    peers = {"raw sqlite3": median(found["raw sqlite3"])}
    if importlib.util.find_spec("optuna") is not None:
        peers["Optuna's SQLite storage"] = Figure(in_a_folder(optuna))
    of = ratio(found["ours"], found["raw sqlite3"])
    yield Row(f"{TRIALS:,} trials begin", "s of processor time", median(found["ours"]), peers, LIMIT, of)
