"""How much CPU time it takes to simulate a search, and with it the engine's decisions: 1,000 to 100,000 trials.

python benchmarks/simulation.py [TRIALS ...]
"""

from __future__ import annotations

import sys
import time
from typing import Any

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


def main() -> None:
    print("| search | trials | seconds of CPU | per trial |\n|---|---|---|---|")
    for trials in [int(word) for word in sys.argv[1:]] or [1000, 10_000, 100_000]:
        for name, searcher in SEARCHES.items():
            began = time.process_time()
            result = simulate(config(searcher, trials), Site(8, 8), Pace())
            took = time.process_time() - began
            assert len(result.trials) == trials
            print(f"| {name} | {trials:,} | {took:.1f} | {took / trials * 1000:.2f} ms |", flush=True)


if __name__ == "__main__":
    main()
