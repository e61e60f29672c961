"""``det experiment create --local --test-mode``, on real node processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import LONG_ENOUGH

ROOT = Path(__file__).parents[3]
SCRIPT = """
import json, time
import determined as det
from determined import core

info = det.get_cluster_info()
with core.init() as context:
    steps = 0
    if info.latest_checkpoint:
        with context.checkpoint.restore_path(info.latest_checkpoint) as path:
            steps = json.loads((path / "steps").read_text())
    print("from", steps, info.trial.hparams, flush=True)
    while True:
        steps += 1
        context.train.report_training_metrics(steps, {"loss": 1 / steps})
        time.sleep(0.2)
        if context.preempt.should_preempt():
            context.train.report_validation_metrics(steps, {"loss": 1.0})
            with context.checkpoint.store_path({"steps_completed": steps}) as (path, _):
                (path / "steps").write_text(json.dumps(steps))
            break
"""


def det(
    tmp_path: Path, entrypoint: str, name: str, source: str, metric: str = "loss"
) -> subprocess.CompletedProcess[str]:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / name).write_text(source)
    (tmp_path / "c.yaml").write_text(
        f"name: t\nentrypoint: {entrypoint}\nsearcher: {{name: random, max_trials: 2, metric: {metric}}}\n"
        "hyperparameters: {lr: {type: double, minval: 0.01, maxval: 1}, global_batch_size: 8}\n"
    )
    env = {n: v for n, v in os.environ.items() if not n.startswith(("DET_", "DETHPC_"))}
    env.update(
        PYTHONPATH=str(ROOT),
        PATH=f"{os.path.dirname(sys.executable)}:{env['PATH']}",
        DETHPC_HOME=str(tmp_path / "home"),
        TMPDIR=str(tmp_path),
        OMP_NUM_THREADS="1",
    )
    command = [sys.executable, "-m", "dethpc.cli", "experiment", "create", "--local", "--test-mode", "c.yaml", "code"]
    return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=LONG_ENOUGH)


def steps(output: str) -> dict[str, str]:
    lines = output[output.rindex("\nStep") :].splitlines()[2:]
    return {line.split()[0]: line.split()[1] for line in lines if line.strip()}


def test_a_trial_class_trains_validates_saves_and_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    source = (ROOT / "tests/pytorch/small.py").read_text()
    source += "\n\nimport logging\n\nlogging.getLogger('dethpc.core').setLevel('DEBUG')  # which tells of each report\n"
    done = det(tmp_path, "model_def:SmallTrial", "model_def.py", source)
    assert done.returncode == 0, done.stdout + done.stderr
    assert steps(done.stdout) == dict.fromkeys(("start", "train", "validate", "checkpoint", "restore"), "ok")
    for at in (1, 2):  # a batch, and after the restore another
        assert done.stdout.count(f"report_training_metrics(steps_completed={at},") == 1
    assert not list(tmp_path.glob("det-test-*")), "nothing stays"
    assert not (tmp_path / "home").exists(), "no master was started"


def test_other_code_is_asked_to_stop_once_it_has_reported(tmp_path: Path) -> None:
    done = det(tmp_path, "python3 train.py", "train.py", SCRIPT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(steps(done.stdout).values()) == {"ok"}
    starts = [line for line in done.stdout.splitlines() if line.startswith("from ")]
    assert starts[0].startswith("from 0 {'lr': 0.01,") and not starts[1].startswith("from 0")


def test_code_that_trains_to_its_end_may_save_no_checkpoint_as_the_example_of_the_readme(tmp_path: Path) -> None:
    (source,) = re.findall(r"<!-- file: train.py -->\n```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    done = det(tmp_path, "python3 train.py", "train.py", source, metric="validation_loss")
    assert done.returncode == 0, done.stdout + done.stderr
    assert steps(done.stdout) == {"start": "ok", "train": "ok", "validate": "ok", "checkpoint": "-"}
    assert "none was saved: after a pause, training would start over" in done.stdout


def test_code_that_leaves_when_asked_without_a_checkpoint_fails_the_test(tmp_path: Path) -> None:
    forgetful = SCRIPT.partition("            with context.checkpoint.store_path")[0] + "            break\n"
    done = det(tmp_path, "python3 train.py", "train.py", forgetful)
    assert (done.returncode, steps(done.stdout)["checkpoint"]) == (1, "failed"), done.stdout


def test_what_failed_is_said(tmp_path: Path) -> None:
    done = det(tmp_path, "python3 train.py", "train.py", "raise ValueError('no data')\n")
    assert done.returncode == 1
    assert "ValueError: no data" in done.stdout[done.stdout.rindex("\nStep") :]
    assert steps(done.stdout)["train"] == "failed"


def test_it_runs_the_python3_of_the_shell_without_what_is_installed_beside_det(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("shell", "wanted"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "python3").symlink_to(sys._base_executable)  # type: ignore[attr-defined]
        (tmp_path / name / "pyvenv.cfg").write_text(f"home = {os.path.dirname(sys._base_executable)}\n")  # type: ignore[attr-defined]
    source = "import os, sys, determined\nprint('SEEN', sys.executable, os.environ['MINE'], sys.path)\n" + SCRIPT
    setup = f"environment: {{setup: export MINE=1, python: {tmp_path}/wanted/bin/python3}}"
    monkeypatch.setenv("PATH", f"{tmp_path}/shell/bin:{os.environ['PATH']}")
    done = det(tmp_path, f"python3 train.py\n{setup}", "train.py", source)
    seen = next(line for line in done.stdout.splitlines() if "SEEN" in line)
    assert f"SEEN {tmp_path}/wanted/bin/python3 1 " in seen and os.path.dirname(pytest.__file__) not in seen
    assert steps(done.stdout)["restore"] == "ok", done.stdout


def test_a_metric_that_is_named_otherwise_fails_the_test(tmp_path: Path) -> None:
    source = (
        "from determined import core\n"
        "with core.init() as context:\n"
        "    context.train.report_validation_metrics(1, {'losss': 1.0})\n"
    )
    done = det(tmp_path, "python3 train.py", "train.py", source)
    assert done.returncode == 1, done.stdout + done.stderr
    assert steps(done.stdout)["validate"] == "failed"
    assert "loss, the searcher's metric, is not among the reported validation metrics (losss)" in done.stdout
