"""A bit flips in a file of a home while nobody looks: what notices it, and what becomes of the trials that need the file."""

from __future__ import annotations

import fnmatch
import json
from pathlib import Path
from typing import NamedTuple

import pytest

from dethpc.master.durable import harness
from tests import folders
from tests.bits import flip
from tests.e2e.conftest import User
from tests.waiting import wait_until


class Kind(NamedTuple):
    """A kind of file below a home. ``where`` is what ``det master check`` says of it; "" where it verifies no such file, and
    ``why`` not."""

    pattern: str
    where: str
    why: str = ""
    at: bytes = b""  # the bit flips in this text; empty: in the middle of the file


KINDS = (
    Kind("harness/harness-*.zip", "harness"),
    Kind("contexts/*.tar.gz", "context"),
    Kind("environments/*", "environment"),
    Kind("cluster.json", "installation"),
    Kind("scheduler.json", "installation"),
    Kind("local/machine.json", "installation"),
    Kind("local/jobs.db", "", "most of it is in SQLite's journal yet; see tests/master/durable/test_at_rest.py"),
    Kind("dethpc.db", "change log", at=b"python3 train.py"),
    Kind("experiments/*/changes.jsonl", "change log"),
    Kind("records.jsonl", "change log"),
    Kind("runs/*.zip", "archive"),
    Kind("runs/*/spec.json", "run directory"),
    Kind("runs/*/claim", "run directory"),
    Kind("runs/*/submitting", "run directory"),
    Kind("runs/*/attempts/*/started.json", "run directory"),
    Kind("runs/*/attempts/*/end.json", "run directory"),
    Kind("runs/*/attempts/*/usage-*.json", "run directory"),
    Kind("runs/*/attempts/*/journal.jsonl", "journal"),
    Kind("checkpoints/*/state.json", "", "det checkpoint audit reads checkpoints; this looks at their sizes alone"),
    Kind("checkpoints/*/metadata.json", "", "the same"),
    Kind("checkpoints/*/.dethpc-manifest.json", "", "the same"),
    Kind("checkpoints/*/tensorboard/*", "", "pictures of what the database has"),
    Kind("contexts/by-files/*", "", "a link; what it leads to is verified when it is followed"),
    Kind("runs/*/closed", "", "that it is there is what counts; its form alone is looked at"),
    Kind(
        "runs/*/attempts/*/info-*.json",
        "",
        "read while the attempt starts, and never again; its form alone is looked at",
    ),
    Kind("runs/*/attempts/*/stop.json", "", "read while the attempt runs; its form alone is looked at"),
    Kind("runs/*/attempts/*/ack.json", "", "the same"),
    Kind("runs/*/job.sbatch", "", "Slurm has a copy of its own from the submission on"),
    Kind("runs/*/*.log", "", "text of the user's"),
    Kind("runs/*/attempts/*/logs/*", "", "the same"),
    Kind("log/master.log", "", "text for people"),
    Kind("local/supervisor.log", "", "the same"),
    Kind("token", "", "det says that the master does not take it, and how to make another"),
    Kind("site.yaml", "", "the user's own"),
    Kind("changing.*", "", "ids of experiments, whose change logs the next master compares with the database"),
    Kind("master.json", "", "written again every few seconds, and removed at the end"),
    Kind("master.lock", "", "empty"),
    Kind("*.db-wal", "", "SQLite has checksums of its own there"),
    Kind("*.db-shm", "", "made anew from the file beside it"),
    Kind("*.jsonl", "change log"),
)


def kind_of(path: str) -> Kind | None:
    return next((kind for kind in KINDS if fnmatch.fnmatch(path, kind.pattern)), None)


def home_with_files_of_every_kind(user: User) -> None:
    """An experiment that has ended, whose trial is folded, and one that is paused."""
    user.home.mkdir(mode=0o700, exist_ok=True)
    (user.home / "site.yaml").write_text("fold_after_hours: 0\n")
    user.det("experiment", "wait", str(user.create(hyperparameters={"lr": 0.1, "steps": 6})))
    pause_in_the_middle(user)
    wait_until(lambda: list((user.home / "runs").glob("1.1.1.zip")))
    user.det("master", "down")


def pause_in_the_middle(user: User) -> int:
    paused = user.create(hyperparameters={"lr": 0.1, "steps": 12, "hold": 3})
    user.wait_steps(paused, 3)
    user.det("experiment", "pause", str(paused))
    user.wait_state(paused, "PAUSED")
    wait_until(lambda: list((user.home / "runs").glob(f"{paused}.*/attempts/0/end.json")))
    return paused


@pytest.mark.everything
def test_every_kind_of_file_is_verified_or_has_a_reason_not_to_be(user: User) -> None:
    home_with_files_of_every_kind(user)
    assert user.det("master", "check").strip() == "The database and the files agree (2 experiments)"
    files = sorted(str(path.relative_to(user.home)) for path in folders.files(user.home))
    assert [file for file in files if kind_of(file) is None] == [], "the table lacks their kinds"
    for kind in KINDS:
        for file in [file for file in files if kind.where and kind_of(file) is kind][:1]:
            path = user.home / file
            if not path.stat().st_size:
                continue
            whole = flip(path, kind.at)
            found = json.loads(user.det("master", "check", "--json", code=1))["differences"]
            path.write_bytes(whole)
            said = [each["what"] for each in found if each["where"] == kind.where]
            assert said, (file, found)
            assert kind.at or any(str(path) in each for each in said), (file, said)
    assert user.det("master", "check").strip() == "The database and the files agree (2 experiments)"


def bundle(user: User) -> Path:
    (found,) = (user.home / "harness").glob("harness-*.zip")
    return found


def test_a_bundle_that_is_damaged_while_a_master_runs_is_written_again_when_a_run_fails_with_it(user: User) -> None:
    user.det("experiment", "wait", str(user.create(hyperparameters={"lr": 0.1, "steps": 3})))
    flip(bundle(user), at=b"dethpc/exec/node.pyc", behind=400)
    created = user.create(hyperparameters={"lr": 0.1, "steps": 3})
    user.det("experiment", "wait", str(created))
    assert harness.damage(bundle(user)) == ""
    log = user.log(created)
    assert "was damaged" in log and "has been written again" in log and "final state" in log


def test_a_bundle_that_was_damaged_is_written_again_by_the_next_master(user: User) -> None:
    user.det("experiment", "wait", str(user.create(hyperparameters={"lr": 0.1, "steps": 3})))
    user.det("master", "down")
    flip(bundle(user))
    assert "harness" in user.det("master", "check", code=1)
    user.det("master", "up")
    assert harness.damage(bundle(user)) == ""
    assert "is written again" in (user.home / "log" / "master.log").read_text()


def test_a_trial_whose_context_is_damaged_waits_until_its_folder_is_sent_again(user: User) -> None:
    paused = pause_in_the_middle(user)
    (context,) = (user.home / "contexts").glob("*.tar.gz")
    whole = flip(context)
    user.det("experiment", "activate", str(paused))
    wait_until(lambda: "is damaged: checksum mismatch" in user.det("experiment", "describe", str(paused)))
    assert "det experiment create" in user.det("experiment", "describe", str(paused))
    assert "checksum mismatch" in user.det("experiment", "download-model-def", str(paused), code=None) + user.errors
    user.create("--paused", hyperparameters={"lr": 0.2})
    assert context.read_bytes() == whole
    user.det("experiment", "wait", str(paused))
    (trial,) = user.trials(paused)
    assert trial["state"].endswith("COMPLETED") and int(trial["restarts"]) == 0
