"""A training that betrays every fault: its state is a chain of hashes over its steps and its hyperparameters.

A step that is lost, doubled, or resumed from another place gives other values from there on. Each trial also holds a lock while it
trains, and writes down when it finds that another execution of the same trial holds it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TRAIN = """
import fcntl, hashlib, json, os, pathlib, time
import determined as det

info = det.get_cluster_info()
hparams, trial = info.trial.hparams, info.trial.trial_id
MOST, EVERY, PAUSE = hparams["most"], hparams["every"], hparams["pause"]
own = {"trial": trial, "attempt": info.allocation_id, "node": os.environ.get("SLURMD_NODENAME", ""), "at": time.time()}
place = pathlib.Path(os.environ["MONKEY_NOTES"])

lock = open(place / f"trial-{trial}.lock", "a+")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    lock.seek(0)
    holder = json.loads(lock.read() or "{}")
    with open(place / "overlaps.jsonl", "a") as overlaps:
        overlaps.write(json.dumps({**own, "holder": holder}) + "\\n")
else:
    lock.truncate(0)
    lock.write(json.dumps(own))
    lock.flush()

def loss(state):
    return int(state[:12], 16) / 2**48

state, step = "seed", 0
with det.core.init() as core:
    if info.latest_checkpoint is not None:
        with core.checkpoint.restore_path(info.latest_checkpoint) as path:
            kept = json.loads((path / "state.json").read_text())
            state, step = kept["state"], kept["step"]
    kept_at = step
    print(f"starting at step {step}", flush=True)
    while True:
        stop = step >= MOST or core.preempt.should_preempt()
        if step != kept_at and (stop or step % EVERY == 0):
            with core.checkpoint.store_path({"steps_completed": step}) as (path, uuid):
                (path / "state.json").write_text(json.dumps({"state": state, "step": step}))
            kept_at = step
        if stop:
            break
        time.sleep(PAUSE)
        state = hashlib.sha256(f"{state}:{step}:{hparams['lr']}".encode()).hexdigest()
        step += 1
        core.train.report_training_metrics(step, {"loss": loss(state)})
        if step % EVERY == 0:
            core.train.report_validation_metrics(step, {"loss": loss(state), "batches": step})
    print(f"ending at step {step}", flush=True)
"""

EVERY = 3
"""Steps between two validations (and checkpoints)."""


def config(trials: int, most: int, notes: Path, *, pause: float = 0.15) -> dict[str, Any]:
    """An adaptive search whose trials train the chain. ``most``: steps of a trial that is never stopped. ``notes``: a folder on a
    disk that the monkey leaves alone."""
    return {
        "searcher": {
            "name": "adaptive_asha",
            "metric": "loss",
            "time_metric": "batches",
            "max_time": most,
            "max_trials": trials,
            "divisor": 3,
            "max_rungs": 3,
            "max_concurrent_trials": 12,
        },
        "hyperparameters": {
            "lr": {"type": "double", "minval": 0.0, "maxval": 1.0},
            "most": most,
            "every": EVERY,
            "pause": pause,
        },
        "environment": {"environment_variables": [f"MONKEY_NOTES={notes}"]},
        "max_restarts": 1000,
        "checkpoint_storage": {"save_trial_latest": most},  # all of them: a checkpoint that is gone is lost
    }


def states(lr: float, most: int) -> Iterator[tuple[int, str]]:
    """Each step of an undisturbed training, and the state after it."""
    state = "seed"
    for step in range(most):
        state = hashlib.sha256(f"{state}:{step}:{lr}".encode()).hexdigest()
        yield step + 1, state


def loss(state: str) -> float:
    return int(state[:12], 16) / 2**48
