"""How much processor time it takes to simulate a search, and with it the engine's decisions.

``random`` validates ten times a trial. One process on one core; the production engine's decisions take nearly all of the time.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from benchmarks.frame import Figure, Row, run, timed
from dethpc.config.experiment import ExperimentConfig
from dethpc.simulator import Pace, Site, simulate

SEARCHES: dict[str, dict[str, Any]] = {
    "random": {"name": "random", "max_time": 100},
    "adaptive_asha": {"name": "adaptive_asha", "max_time": 256, "divisor": 4, "max_rungs": 5},
}


def config(searcher: dict[str, Any], trials: int) -> ExperimentConfig:
    common = {"metric": "loss", "smaller_is_better": True, "time_metric": "batches", "max_trials": trials}
    stored = {
        "entrypoint": "train",
        "searcher": {**common, "max_concurrent_trials": 64, **searcher},
        "hyperparameters": {"lr": {"type": "log", "minval": -4, "maxval": -1, "base": 10}},
        "resources": {"slots_per_trial": 1},
    }
    return ExperimentConfig.from_json(stored)


def rows(options: argparse.Namespace) -> Iterator[Row]:
    for trials in [1000] if options.quick else [1000, 10_000, 100_000]:
        for name, searcher in SEARCHES.items():
            took = timed(lambda: simulate(config(searcher, trials), Site(8, 8), Pace())).cpu  # noqa: B023
            yield Row(f"a trial of {trials:,}, {name}", "ms", Figure(1e3 * took / trials))


if __name__ == "__main__":
    run(__doc__, rows)
