"""``det experiment export`` and ``import``, between two installations on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dethpc.cli import master_process
from tests.cli.test_end_to_end import CONFIG, TRAIN
from tests.waiting import wait_until


@pytest.fixture
def two(det: Any, environment: dict[str, str], tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """``det`` of either installation."""

    def of(home: str) -> Any:
        def run(*words: Any) -> Any:
            environment["DETHPC_HOME"] = str(tmp_path / home)
            return det(*words)

        return run

    yield of("one"), of("other")
    for home in ("one", "other"):
        pid = int(master_process.read_master_file(tmp_path / home).get("pid") or 0)
        if pid:
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: subprocess.run(["ps", "-o", "stat=", str(pid)], capture_output=True).stdout[:1] in b"Z")  # noqa: B023


def test_an_experiment_moves_to_another_installation(two: tuple[Any, Any], tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    one, other = two
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(TRAIN)
    (tmp_path / "config.yaml").write_text(CONFIG)
    assert one("e", "create", "config.yaml", "code").returncode == 0
    assert one("e", "wait", 1, "--polling-interval", 0.2).returncode == 0

    made = one("e", "export", 1, "--checkpoints", "best")
    assert made.returncode == 0 and made.stdout.startswith("Experiment 1 is in experiment-1.zip ("), made.stderr
    again = one("e", "export", 1)
    assert again.returncode == 2 and "experiment-1.zip exists; give another name, or --force" in again.stderr
    assert [path.name for path in tmp_path.glob("*.zip*")] == ["experiment-1.zip"]

    taken = other("e", "import", "experiment-1.zip", "--json")
    assert taken.returncode == 0, taken.stderr
    assert json.loads(taken.stdout)["experiment"]["state"] == "STATE_COMPLETED"
    for words in (("e", "lt", 1), ("e", "config", 1)):
        assert one(*words).stdout.replace(str(tmp_path / "one"), "") == other(*words).stdout.replace(
            str(tmp_path / "other"), ""
        )
    best = json.loads(other("e", "lc", 1, "--best", 1, "--json").stdout)[0]
    assert other("checkpoint", "download", best["uuid"], "-o", "here", "-q").returncode == 0
    assert (tmp_path / "here" / "weights.txt").read_text() == "0.25"
    failed = other("checkpoint", "download", best["uuid"], "-o", "config.yaml/below")
    assert failed.returncode == 1 and failed.stderr.startswith("det: error: ") and "Traceback" not in failed.stderr
    assert "trained with 0.25" in other("trial", "logs", best["training"]["trialId"]).stdout
    lost = other("checkpoint", "list", 1).stdout
    assert "DELETED" in lost and "its files were not copied with its experiment" in lost

    # Its code came along, and the environment does not matter: the same training, from here.
    forked = other("e", "fork", 1, "--config", "description=again")
    assert forked.returncode == 0, forked.stderr
    assert other("e", "wait", 2, "--polling-interval", 0.2).returncode == 0, other("e", "logs", 2).stdout

    # To a bucket, and back into the installation that it came from, where its checkpoints have their names already.
    (tmp_path / "bucket").mkdir()
    url = f"file://{tmp_path}/bucket/two.zip"
    assert other("e", "export", 2, url, "--checkpoints", "all").returncode == 0
    assert "two.zip exists; give another name" in other("e", "export", 2, url).stderr
    assert one("e", "import", url).stdout == "Imported as experiment 2\n"
    assert one("checkpoint", "list", 2).stdout.count("COMPLETED") == 2
    unknown = one("e", "export", 1, "nowhere://x/y")
    assert unknown.returncode == 2 and "Traceback" not in unknown.stderr

    damaged = json.loads(one("checkpoint", "list", 2, "--json").stdout)[0]["uuid"]
    weights = tmp_path / "one" / "checkpoints" / damaged / "weights.txt"
    weights.write_text("x" * len(weights.read_text()))
    partly = one("e", "export", 2, "partly.zip", "--checkpoints", "all")
    assert (
        partly.returncode == 1
        and "Experiment 2 is in partly.zip (" in partly.stdout
        and ", with 1 checkpoint" in partly.stdout
    )
    assert f"checkpoint {damaged}: weights.txt is damaged" in partly.stderr
    again = json.loads(one("e", "export", 2, "partly.zip", "--checkpoints", "all", "--force", "--json").stdout)
    assert list(again["leftOut"]) == [damaged] and len(again["checkpoints"]) == 1
    assert other("e", "import", "partly.zip").returncode == 0
    assert other("checkpoint", "list", 3).stdout.count("COMPLETED") == 1

    nothing = other("e", "import", "nothing.zip")
    assert nothing.returncode == 2 and "nothing.zip is neither an archive nor a run directory" in nothing.stderr
