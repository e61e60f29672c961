"""What the engine's memory holds after many trials have ended: as much as after none.

python benchmarks/memory.py [EXPERIMENTS [TRIALS]]
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
import uuid

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.end_report import EndReport
from dethpc.engine import ClusterState, events, step
from dethpc.searcher.methods import build


def search(state: ClusterState, trials: int, n: int) -> None:
    """One experiment, from its creation to the end of its last trial."""
    config = ExperimentConfig.from_json(
        {
            "name": "ends",
            "entrypoint": "train",
            "searcher": {"name": "random", "metric": "loss", "max_trials": trials, "max_concurrent_trials": 16},
            "hyperparameters": {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}},
        }
    )
    at = float(n * 1000)
    step(state, events.CreateExperiment("me", config, "", "", n, str(uuid.UUID(int=n)), True, at))
    while state.runs:
        run = next(iter(state.runs.values()))
        step(state, events.Submitted(run.id, run.id, at))
        step(state, events.AttemptStarted(run.id, 0, ["n0"], None, 0, at))
        step(state, events.AttemptEnded(run.id, 0, EndReport(finished=True, exit_code=0), None, at + 1))
    state.evict_ended()


def held() -> float:
    """Megabytes."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0] / 1e6


def main() -> None:
    experiments, trials = (int(word) for word in (sys.argv[1:] + ["100", "100"][len(sys.argv) - 1 :]))
    state = ClusterState(build)
    tracemalloc.start()
    search(state, trials, 0)  # what is imported and cached once is not the trials'
    before = held()
    for n in range(1, experiments + 1):
        search(state, trials, n)
    after = held()
    print(
        f"{experiments * trials:,} ended trials: {before:.2f} MB before, {after:.2f} MB after, {after - before:+.2f} MB"
    )


if __name__ == "__main__":
    main()
