"""What an ended trial leaves on the file system, counted after ``det`` has trained it on this machine."""

from __future__ import annotations

import re

import pytest

from tests import folders
from tests.e2e.conftest import User
from tests.waiting import wait_until

SHARED = re.compile(
    r"(dethpc\.db.*|cluster\.json|master\..*|token|site\.yaml|records\.jsonl|nodes\.jsonl|tasks\.jsonl|changing\..*|log/.*|harness/.*"
    r"|local/.*|runs/[0-9a-f-]{36}\.\d+/.*|contexts/.*|environments/.*|experiments/\d+/changes\.jsonl|checkpoints/.*)"
)
"""What a home, a context or an experiment has once, checkpoints, which are kept as the experiment says, and the run of the last
garbage collection, which the next one removes."""

RUN = re.compile(r"\d+\.\d+\.\d")


def left_by_trials(user: User) -> list[str]:
    found = sorted(str(path.relative_to(user.home)) for path in folders.files(user.home))
    return [path for path in found if not SHARED.fullmatch(path)]


def folded(user: User, *archives: str) -> bool:
    return sorted(path.name for path in (user.home / "runs").iterdir() if RUN.match(path.name)) == sorted(archives)


@pytest.mark.everything
def test_an_ended_trial_leaves_at_most_four_files_and_all_of_it_is_served(user: User) -> None:
    """One trial that ran once, and one that was paused and went on twice, in three runs."""
    user.home.mkdir(mode=0o700, exist_ok=True)
    (user.home / "site.yaml").write_text("fold_after_hours: 0\n")
    once = user.create(hyperparameters={"lr": 0.1, "steps": 6})
    user.det("experiment", "wait", str(once))
    thrice = user.create(hyperparameters={"lr": 0.1, "steps": 12, "hold": 3})
    user.wait_steps(thrice, 3)
    user.det("experiment", "pause", str(thrice))
    user.wait_state(thrice, "PAUSED")
    wait_until(lambda: "stopping at step" in user.log(thrice))
    user.det("experiment", "activate", str(thrice))
    user.det("experiment", "wait", str(thrice))
    user.det("experiment", "continue", str(thrice), "--config", "hyperparameters.steps=14")
    user.det("experiment", "wait", str(thrice))
    logs = [user.log(once), user.log(thrice)]
    archives = [f"{once}.{once}.1.zip", f"{thrice}.{thrice}.3.zip"]
    wait_until(lambda: folded(user, *archives))
    left = left_by_trials(user)
    for trial in (once, thrice):
        of_trial = [path for path in left if re.search(rf"(^|[^0-9]){trial}\.{trial}\.\d", path)]
        assert 1 <= len(of_trial) <= 4, of_trial
    assert len(left) <= 2 * 4, left

    assert [user.log(once), user.log(thrice)] == logs
    assert re.findall(r"starting at step (\d+)", logs[1]) == ["0", "3", "12"]
    assert "final state" in user.det("trial", "logs", str(thrice), "--tail", "40")
    assert user.det("master", "check").strip() == "The database and the files agree (2 experiments)"
    (trial,) = user.trials(thrice)
    metrics = user.metrics(trial["id"], "training")
    user.det("master", "down")
    for path in user.home.glob("dethpc.db*"):
        path.unlink()
    user.det("master", "rebuild", "--yes")
    assert [user.log(once), user.log(thrice)] == logs
    assert user.metrics(trial["id"], "training") == metrics and len(metrics) == 14

    user.det("experiment", "export", str(thrice), "copy.zip")
    copy = int(user.json("experiment", "import", "copy.zip")["experiment"]["id"])
    assert re.findall(r"at step (\d+)", user.log(copy)) == re.findall(r"at step (\d+)", logs[1])
    user.det("experiment", "continue", str(once), "--config", "hyperparameters.steps=8")
    user.det("experiment", "wait", str(once))
    assert re.findall(r"starting at step (\d+)", user.log(once)) == ["0", "6"]
    user.det("experiment", "delete", str(thrice), "--yes")
    wait_until(lambda: not (user.home / "runs" / archives[1]).exists())
