"""A training whose checkpoints are in a bucket: paused, killed while it saves, downloaded and deleted."""

from __future__ import annotations

import hashlib
import json

import pytest

from dethpc import storage
from tests import folders
from tests.e2e.conftest import TRAIN, User, wait_until
from tests.storage.proxy import Proxy
from tests.storage.servers import S3, s3_server

__all__ = ["s3_server"]

DIES = """
if info.latest_checkpoint is not None and not os.path.exists(hparams["died"]):
    from dethpc.storage import driver

    def die(self, name, data, **options):
        open(hparams["died"], "x").close()
        os.kill(os.getpid(), 9)

    driver.Driver.replace = die  # with which a checkpoint is published
"""

KEY = "a-very-secret-key"
KEYS = {"AWS_ACCESS_KEY_ID": "access_key", "AWS_SECRET_ACCESS_KEY": "secret_key"}


def end_of(steps: int, lr: float) -> str:
    state = "seed"
    for step in range(steps):
        state = hashlib.sha256(f"{state}:{step}:{lr}".encode()).hexdigest()
    return state


def test_a_trial_in_a_bucket_pauses_is_killed_while_saving_and_goes_on_from_whole_checkpoints(
    user: User, s3_server: S3
) -> None:
    section = s3_server.section(secret_key=KEY)
    start = "with det.core.init() as core:"
    user.write("context/train.py", TRAIN.replace(start, DIES + start))
    died = user.folder / "died"
    hyperparameters = {"lr": 0.1, "steps": 20, "hold": 7, "died": str(died)}
    kept = {**section, "save_trial_latest": 100}  # or most go by the policy as soon as the experiment has ended
    experiment = user.create(checkpoint_storage=kept, hyperparameters=hyperparameters, max_restarts=1)
    user.wait_steps(experiment, 7)
    user.det("experiment", "pause", str(experiment))
    user.wait_state(experiment, "PAUSED")
    user.det("experiment", "activate", str(experiment))
    user.det("experiment", "wait", str(experiment))

    (trial,) = user.trials(experiment)
    log = user.log(experiment)
    assert died.exists() and (trial["state"], trial["restarts"]) == ("STATE_COMPLETED", 1)
    assert log.count("starting at step 7\n") == 2 and f"final state {end_of(20, 0.1)}\n" in log
    known = user.api("GET", f"/api/v1/experiments/{experiment}/checkpoints?limit=100")["checkpoints"]
    held = {one.uuid: one.whole for one in storage.build(section).names()}
    assert {one["uuid"] for one in known} == {uuid for uuid, whole in held.items() if whole}
    assert list(held.values()).count(False) == 1, "what was brought when it was killed"

    user.env["AWS_ACCESS_KEY_ID"], user.env["AWS_SECRET_ACCESS_KEY"] = "AKIATEST", KEY
    last = max(known, key=lambda one: one["metadata"]["steps_completed"])
    user.det("checkpoint", "download", last["uuid"], "-o", "there")
    assert json.loads((user.folder / "there" / "state.json").read_text())["step"] == 20

    assert KEY not in user.det("experiment", "config", str(experiment)) + json.dumps(known) + log
    shows = [file for file, content in folders.contents(user.home) if KEY.encode() in content]
    assert shows and all(file.stat().st_mode & 0o077 == 0 for file in shows), "they show the key to others"

    user.det("experiment", "delete", "--yes", str(experiment))
    wait_until(lambda: user.det("experiment", "describe", str(experiment), code=None) == "")
    left = s3_server.objects(section)
    assert {name.split("/")[0] for name in left} == {uuid for uuid, whole in held.items() if not whole}


def test_keys_among_the_experiments_own_variables_reach_all_that_needs_them(user: User, s3_server: S3) -> None:
    """The look at the storage before a training, the training, its pause, and the job that deletes."""
    whole = s3_server.section()
    section = {field: value for field, value in whole.items() if field not in KEYS.values()}
    variables = [f"{name}={whole[field]}" for name, field in KEYS.items()]
    experiment = user.create(
        checkpoint_storage={**section, "save_trial_latest": 100},
        environment={"environment_variables": variables},
        hyperparameters={"lr": 0.1, "steps": 10, "hold": 7},
    )
    user.wait_steps(experiment, 7)
    user.det("experiment", "pause", str(experiment))
    user.wait_state(experiment, "PAUSED")
    user.det("experiment", "activate", str(experiment))
    user.det("experiment", "wait", str(experiment))
    assert "starting at step 7\n" in user.log(experiment)
    assert s3_server.objects(whole)
    user.det("experiment", "delete", "--yes", str(experiment))
    wait_until(lambda: user.det("experiment", "describe", str(experiment), code=None) == "")
    assert not s3_server.objects(whole)


AWAY = """
from dethpc.storage.objects import ObjectStore

ObjectStore.__init__.__kwdefaults__["patience"] = 0.5
"""


@pytest.mark.everything
def test_a_bucket_that_is_away_at_the_end_of_a_trial_loses_no_checkpoint(user: User, s3_server: S3) -> None:
    """The trial ends, and goes on from there, while it is away; what it saved goes up when it is back."""
    away = False
    with Proxy(s3_server.url, lambda *_: "away" if away else None) as proxy:
        section = {**s3_server.section(), "endpoint_url": proxy.url, "save_trial_latest": 100}
        user.write("context/train.py", AWAY + TRAIN)
        hyperparameters = {"lr": 0.1, "steps": 20, "hold": 7}
        experiment = user.create(checkpoint_storage=section, hyperparameters=hyperparameters)
        user.wait_steps(experiment, 7)
        away = True
        user.det("experiment", "pause", str(experiment))
        user.wait_state(experiment, "PAUSED")
        user.det("experiment", "activate", str(experiment))
        user.det("experiment", "wait", str(experiment))
        log = user.log(experiment)
        # Where one of its trials has saved a checkpoint, others begin while the storage is away, too.
        specs = [json.loads((user.home / "runs" / run / "spec.json").read_text()) for run in ("1.1.1", "1.1.2")]
        assert [spec["storage_worked"] for spec in specs] == [False, True]
        assert "starting at step 7\n" in log and f"final state {end_of(20, 0.1)}\n" in log
        found = user.json("checkpoint", "list", str(experiment))
        assert {one["state"].removeprefix("STATE_") for one in found} == {"COMPLETED"}
        waiting = [one["uuid"] for one in found if "waits for its storage" in one["reason"]]
        assert len(waiting) == 4, "at steps 7, 10, 15 and 20"
        user.det("checkpoint", "download", waiting[-1], "-o", "there")
        away = False
        held = storage.build({**section, "endpoint_url": s3_server.url})
        wait_until(lambda: all(held.exists(uuid) for uuid in waiting))
        wait_until(lambda: not any(one["reason"] for one in user.json("checkpoint", "list", str(experiment))))
    assert not any((user.home / "spool").iterdir())
