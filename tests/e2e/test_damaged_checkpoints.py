"""Checkpoints that are damaged while their trial is paused: it goes on from the one before, and is told."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.conftest import TRAIN, User, wait_until

MANIFEST = ".dethpc-manifest.json"
STEPS = 20


def flip(checkpoint: Path) -> None:
    state = checkpoint / "state.json"
    content = bytearray(state.read_bytes())
    content[len(content) // 2] ^= 1
    state.write_bytes(content)


def truncate(checkpoint: Path) -> None:
    state = checkpoint / "state.json"
    state.write_bytes(state.read_bytes()[:-9])


def lose_a_file(checkpoint: Path) -> None:
    (checkpoint / "state.json").unlink()


def garble_the_manifest(checkpoint: Path) -> None:
    (checkpoint / MANIFEST).write_bytes((checkpoint / MANIFEST).read_bytes()[:30])


DAMAGES: list[tuple[Callable[[Path], Any], str]] = [
    (flip, "state.json is damaged: its checksum differs"),
    (truncate, "state.json has"),
    (lose_a_file, "state.json is missing"),
    (shutil.rmtree, "is missing, while an earlier one of the trial is there"),
    (garble_the_manifest, "its manifest is damaged"),
]


def checkpoints(user: User, trial: int) -> list[dict[str, Any]]:
    """Latest first."""
    found = user.api("GET", f"/api/v1/trials/{trial}/checkpoints?limit=100")["checkpoints"]
    return sorted(found, key=lambda each: -each["metadata"]["steps_completed"])


def paused_with_checkpoints(user: User, trials: int) -> int:
    """An experiment whose trials have checkpoints at 5, 10 and 13 steps, and train no more."""
    user.env["DETHPC_LOCAL_SLOTS"] = str(trials)
    go = user.folder / "go"
    pause = "time.sleep(pause)"
    assert TRAIN.count(pause) == 1
    wait = f"{pause}\n        while step == 12 and not os.path.exists({str(go)!r}) and not core.preempt.should_preempt(): {pause}"
    user.write("context/train.py", TRAIN.replace(pause, wait))
    lr = {"type": "categorical", "vals": [0.1 * (n + 1) for n in range(trials)]}
    experiment = user.create(
        searcher={"name": "grid", "metric": "validation_loss", "max_concurrent_trials": trials},
        hyperparameters={"lr": lr, "steps": STEPS},
        checkpoint_storage={"save_trial_latest": 100},  # all are looked at when it has ended
    )
    wait_until(lambda: [user._steps(trial) for trial in user.trials(experiment)] == [12] * trials, 240)
    user.det("experiment", "pause", str(experiment))
    ends = user.home / "runs"
    wait_until(lambda: len(list(ends.glob("*/attempts/0/end.json"))) == trials, 120)  # the last checkpoint is reported
    user.wait_state(experiment, "PAUSED")
    go.touch()
    return experiment


def folder(user: User, checkpoint: dict[str, Any]) -> Path:
    return user.home / "checkpoints" / checkpoint["uuid"]


def test_a_trial_goes_on_from_the_checkpoint_before_the_damaged_ones(user: User) -> None:
    experiment = paused_with_checkpoints(user, 7)
    before = {t["id"]: checkpoints(user, t["id"]) for t in user.trials(experiment)}
    five, (several, every) = list(before)[:5], list(before)[5:]
    for id, (damage, _) in zip(five, DAMAGES):
        damage(folder(user, before[id][0]))
    for damaged in (before[several][:-1], before[every]):
        for checkpoint in damaged:
            flip(folder(user, checkpoint))
    user.det("experiment", "activate", str(experiment))
    user.det("experiment", "wait", str(experiment))

    for trial in user.trials(experiment):
        id = trial["id"]
        assert (trial["state"], trial["restarts"]) == ("STATE_COMPLETED", 0)
        steps = [m["totalBatches"] for m in user.metrics(id, "training")]
        assert steps == list(range(1, STEPS + 1)), "no step is lost, and none counts twice"
        assert [c["metadata"]["steps_completed"] for c in before[id]] == [13, 10, 5]
    for id, (_, words) in zip(five, DAMAGES):
        marked = user.json("checkpoint", "describe", before[id][0]["uuid"])
        assert marked["state"] == "STATE_ERROR" and words in marked["reason"]
        assert [c["state"] for c in checkpoints(user, id) if c["uuid"] == before[id][1]["uuid"]] == ["STATE_COMPLETED"]
        if words != DAMAGES[3][1]:
            assert words in user.det("trial", "logs", str(id))
        assert "starting at step 10\n" in user.det("trial", "logs", str(id))
    assert "starting at step 5\n" in user.det("trial", "logs", str(several))
    assert user.det("trial", "logs", str(every)).count("starting at step 0\n") == 2
    listed = user.det("checkpoint", "list", str(experiment))
    assert "ERROR" in listed and "its manifest is damaged" in listed


def test_a_folder_that_is_not_mounted_for_a_while_costs_no_restart_and_marks_nothing(user: User) -> None:
    experiment = paused_with_checkpoints(user, 1)
    (trial,) = user.trials(experiment)
    home, away = user.home / "checkpoints", user.home / "elsewhere"
    home.rename(away)
    home.mkdir()  # a mount point
    user.det("experiment", "activate", str(experiment))
    wait_until(lambda: "nor is anything else; is it mounted on" in user.det("experiment", "describe", str(experiment)))
    home.rmdir()
    away.rename(home)
    user.det("experiment", "wait", str(experiment))
    (trial,) = user.trials(experiment)
    assert (trial["state"], trial["restarts"]) == ("STATE_COMPLETED", 0)
    assert {c["state"] for c in checkpoints(user, trial["id"])} == {"STATE_COMPLETED"}
