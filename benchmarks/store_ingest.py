"""Metric values per second into the store, over raw sqlite3 inserts of the same rows in the same run.

Each trial reports in batches of ten, as a doorbell call carries them, from eight threads; every batch is one durable commit with
its attempt's applied sequence number. Raw sqlite3 writes the metric rows alone, one transaction and one fsync per ten batches:
no summaries, no fencing, no threads.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.frame import Row, alternate, median, ratio, run
from dethpc.domain.facts import Attempt, Metric
from dethpc.domain.ids import task_id
from dethpc.domain.states import AttemptState
from dethpc.state import open_store, queries

BATCH = 10
VALUES = {"loss": 0.731, "accuracy": 0.912, "learning_rate": 1e-3, "throughput": 1234.5}


def batches(trials: int, reports: int) -> list[list[list[Metric]]]:
    """Per trial, batches of metrics."""
    return [
        [
            [
                Metric(f"1.{trial}.1", 0, seq, 1, trial, "training", seq, 1.7e9 + seq, dict(VALUES))
                for seq in range(start, start + BATCH)
            ]
            for start in range(1, reports, BATCH)
        ]
        for trial in range(1, trials + 1)
    ]


def raw(path: Path, work: list[list[list[Metric]]]) -> float:
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute(
        "CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_id, k, seq, experiment_id, trial_id, grp, steps, at, metrics, "
        "UNIQUE (run_id, k, seq))"
    )
    database.execute("CREATE INDEX by_trial ON metrics (trial_id, grp, steps)")
    every = [batch for trial in work for batch in trial]
    began = time.perf_counter()
    for start in range(0, len(every), 10):
        rows = [
            (
                m.run_id,
                m.attempt,
                m.seq,
                m.experiment_id,
                m.trial_id,
                m.group,
                m.steps_completed,
                m.reported_at,
                json.dumps(m.metrics),
            )
            for batch in every[start : start + 10]
            for m in batch
        ]
        with database:
            database.executemany("INSERT INTO metrics VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    return time.perf_counter() - began


def store(path: Path, work: list[list[list[Metric]]]) -> float:
    with open_store(path) as database:

        def report(trial: list[list[Metric]]) -> None:
            for batch in trial:
                last = batch[-1]
                attempt = Attempt(
                    last.run_id, 0, 1, task_id(1, last.trial_id), AttemptState.RUNNING, 1.7e9, applied_seq=last.seq
                )
                database.commit([*batch, attempt])

        began = time.perf_counter()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(report, work))
        took = time.perf_counter() - began
        with database.read() as connection:
            series = queries.series(connection, [work[0][0][0].trial_id], (), None, None)
            assert len(list(series)) == len(work[0]) * BATCH
    return took


def rows(options: argparse.Namespace) -> Iterator[Row]:
    work = batches(*((16, 200) if options.quick else (64, 500)))
    values = sum(len(batch) for trial in work for batch in trial) * len(VALUES)
    with tempfile.TemporaryDirectory() as folder:
        paths = (Path(folder, f"{n}.db") for n in range(100))
        ways = {"ours": lambda: values / store(next(paths), work), "raw": lambda: values / raw(next(paths), work)}
        found = alternate(ways, 3)
    peers = {"raw sqlite3": median(found["raw"])}
    yield Row(
        "values into the store", "a second", median(found["ours"]), peers, ratio=ratio(found["ours"], found["raw"])
    )


if __name__ == "__main__":
    run(__doc__, rows)
