"""Bytes of change log per trial: written in all, on the disk at the end, and written by a second start.

    python benchmarks/change_log.py [TRIALS] [REPORTS]

One random search of so many trials (2,000 unless told otherwise), 16 at a time. Each reports so many times (10), each time in a
commit of its own. The engine decides, the store commits, the change log appends: all as in a master.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.end_report import EndReport
from dethpc.domain.reports import Report
from dethpc.engine import ClusterState, events, step
from dethpc.master.durable import row_file
from dethpc.master.durable.change_log import ChangeLog
from dethpc.rundir.home import Home
from dethpc.searcher.methods import build
from dethpc.state import open_store

CONFIG = {
    "entrypoint": "train",
    "hyperparameters": {
        "lr": {"type": "double", "minval": 0, "maxval": 1},
        "width": {"type": "int", "minval": 1, "maxval": 100},
    },
    "resources": {"slots_per_trial": 1, "resource_pool": "main"},
}


def main(trials: int = 2000, reports: int = 10) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Home(folder)
        home.make()
        searcher = {"name": "random", "metric": "loss", "max_trials": trials, "max_concurrent_trials": 16}
        written = _Written()
        with open_store(home.database) as store:
            state, log = ClusterState(build), ChangeLog(home)

            def do(event: events.Event) -> None:
                rows = step(state, event)
                log.announce(rows)
                store.commit(rows)
                log.append(rows)
                state.evict_ended()

            config = ExperimentConfig.from_json({**CONFIG, "searcher": searcher})
            uuid = "00000000-0000-4000-8000-000000000001"
            do(events.CreateExperiment("me", config, "", "", seed=1, queue_id=uuid, activate=True, at=1.0))
            at = 1.0
            while run := next(iter(state.runs.values()), None):
                at += 1
                do(events.Submitted(run.id, "7", at))
                do(events.AttemptStarted(run.id, 0, ["n0"], None, 0, at))
                for n in range(1, reports + 1):
                    group = "validation" if n == reports else "training"
                    said = {"group": group, "steps_completed": n, "metrics": {"loss": 1 / n}}
                    do(events.Reported(run.id, 0, [Report(n, at, "metrics", said)], at, 100 * n))
                do(events.AttemptEnded(run.id, 0, EndReport(finished=True, exit_code=0), None, at))
            left, appended = _size(home), written.bytes
            ChangeLog(home).catch_up(store)
            print(f"{trials} trials of {reports} reports: {appended / trials:.0f} bytes appended per trial,")
            print(f"{left / trials:.0f} bytes per trial left; a second start wrote {written.bytes - appended} bytes")


class _Written:
    """Counts what is appended."""

    def __init__(self) -> None:
        self.bytes = 0
        line = row_file.to_line

        def counted(row: object, *, dropped: bool = False) -> str:
            made = line(row, dropped=dropped)
            self.bytes += len(made)
            return made

        row_file.to_line = counted


def _size(home: Home) -> int:
    return sum(path.stat().st_size for path in Path(home.root).rglob("*.jsonl"))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
