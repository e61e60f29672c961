"""Sweeps from scripts, as a user runs them: a real master, real trials on this machine, and one on a real Slurm."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dethpc.deploy.slurm_dev import Cluster
from tests.e2e.conftest import User
from tests.e2e.test_slurm import user_of
from tests.ports import free_port
from tests.waiting import LONG_ENOUGH

EXAMPLE = Path(__file__).parents[2] / "examples" / "sweep" / "tune.py"


def python(user: User, text: str) -> Any:
    """The JSON that a script prints in its last line."""
    done = subprocess.run(
        [sys.executable, user.write("script.py", text)],
        **{"env": user.env, "capture_output": True, "text": True, "timeout": LONG_ENOUGH, "check": False},
    )
    assert done.returncode == 0, done.stderr
    user.errors = done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.everything
def test_a_closure_of_main_is_searched_and_its_results_are_a_table(user: User) -> None:
    found = python(
        user,
        """
        import json, dethpc
        OFFSET = 3

        def around(scale):
            def fn(hparams):
                return {"loss": scale * (hparams["x"] - OFFSET) ** 2, "twice": 2 * hparams["net"]["y"] + 1 / hparams["cap"]}
            return fn

        if __name__ == "__main__":
            sweep = dethpc.sweep(around(10), {"x": [1, 2, 3, 4], "net": {"y": 5}, "cap": float("inf")}, searcher="grid")
            ended = [(trial.hparams["x"], trial.result()["loss"]) for trial in sweep.as_completed()]
            table = sweep.wait().table()
            rows = table.to_dict("records") if hasattr(table, "to_dict") else table
            best = sweep.best
            print(json.dumps({"ended": ended, "rows": rows, "best": [best.hparams, best.result()], "state": sweep.state}))
        """,
    )
    assert sorted(found["ended"]) == [[1, 40], [2, 10], [3, 0], [4, 10]]
    assert found["rows"][0] == {
        **{
            "trial": 1,
            "state": "COMPLETED",
            "x": 1,
            "net.y": 5,
            "cap": float("inf"),
            "loss": 40,
            "twice": 10,
            "reason": "",
        }
    }
    assert (
        found["best"] == [{"x": 3, "net": {"y": 5}, "cap": float("inf")}, {"loss": 0, "twice": 10}]
        and found["state"] == "COMPLETED"
    )
    assert user.errors.count("COMPLETED, loss ") == 4  # the progress where there is no terminal


def test_an_error_of_the_function_comes_back_with_its_traceback(user: User) -> None:
    user.write("beside.py", "def deep(k):\n    raise LookupError(f'there is no {k}')\n")
    found = python(
        user,
        """
        import json, dethpc, beside

        def fails(hparams):
            return {0: lambda: "a text", 1: lambda: beside.deep(1), 2: lambda: None}[hparams["k"]]()

        def reports_for_itself(hparams):
            with dethpc.core.init() as core:
                core.train.report_validation_metrics(7, {"loss": 0.5})

        if __name__ == "__main__":
            failed = dethpc.sweep(fails, {"k": [0, 1, 2]}, searcher="grid").wait(progress=False)
            told = {trial.hparams["k"]: str(trial.exception()) for trial in failed.trials}
            rows = failed.table()
            told["reasons"] = [row["reason"] for row in (rows if isinstance(rows, list) else rows.to_dict("records"))]
            try:
                failed.best
            except dethpc.sweeps.TrialFailed as error:
                told["best"] = str(error)
            try:
                list(failed.trials)[1].result()
            except dethpc.sweeps.TrialFailed as error:
                told["result"] = str(error)
            own = dethpc.sweep(reports_for_itself, {}, searcher="single").wait(progress=False)
            told["own"] = own.best.metrics
            print(json.dumps(told))
        """,
    )
    assert "LookupError: there is no 1" in found["1"] and 'beside.py", line 2, in deep' in found["1"]
    assert found["1"] == found["result"] and not found["1"].endswith("exit code 1: LookupError: there is no 1")
    assert "must return a number, or a dict in which 'loss' is one" in found["0"]
    assert found["2"].endswith(nothing := "finished without reporting loss, the searcher's metric, as a number")
    assert found["reasons"][2] == nothing
    assert found["best"].startswith("experiment 1: no trial has a loss that is a number\ntrial ")
    assert found["own"] == {"loss": 0.5}


def test_ctrl_c_ends_the_waiting_and_an_exception_in_the_block_ends_the_sweep(user: User) -> None:
    text = """
        import time, dethpc

        def fn(hparams, core):
            while not core.preempt.should_preempt():
                time.sleep(0.1)

        if __name__ == "__main__":
            sweep = dethpc.sweep(fn, {}, searcher="single")
            next(iter(sweep.trials), None)
            print("waiting", flush=True)
            sweep.wait()
        """
    command = [sys.executable, str(user.write("wait.py", text))]
    with subprocess.Popen(command, env=user.env, stdout=-1, stderr=-1, text=True, start_new_session=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "waiting\n"
        while process.poll() is None:  # it may not have begun to wait
            process.send_signal(signal.SIGINT)
            try:
                _, said = process.communicate(timeout=5)
            except subprocess.TimeoutExpired:
                continue
    assert "KeyboardInterrupt" in said and process.returncode != 0
    state = python(
        user,
        """
        import contextlib, io, dethpc, json, signal
        sweep = dethpc.sweeps.attach(1)
        before = sweep.state
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.suppress(KeyboardInterrupt):
            with sweep:
                signal.setitimer(signal.ITIMER_REAL, 1)
                sweep.wait(progress=False)
        sweep.wait(progress=False)
        print(json.dumps([before, dethpc.sweeps.attach(1).state, said.getvalue()]))
        """,
    )
    assert state[0] not in ("CANCELED", "COMPLETED", "ERROR") and state[1] == "CANCELED"
    assert state[2] == "experiment 1 is killed\n"


@pytest.mark.everything
def test_the_waiting_goes_on_when_the_master_comes_back_at_another_port(user: User) -> None:
    text = """
        import json, os, time, dethpc

        def fn(hparams):
            while not os.path.exists(hparams["go"]):
                time.sleep(0.1)
            return 0.5

        if __name__ == "__main__":
            sweep = dethpc.sweep(fn, {"go": os.path.abspath("go")}, searcher="single")
            print("waiting", flush=True)
            print(json.dumps([sweep.wait(progress=False).state, sweep.best.result()["loss"]]))
        """
    command = [sys.executable, str(user.write("wait.py", text))]
    with subprocess.Popen(
        command, cwd=user.folder, env=user.env, stdout=-1, stderr=-1, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "waiting\n"
        before = user.master()["url"]
        user.det("master", "down")
        with free_port() as port:
            user.det("master", "up", "--port", str(port))
            assert user.master()["url"] != before
            user.write("go", "")
            found, said = process.communicate(timeout=LONG_ENOUGH)
    assert process.returncode == 0, said
    assert json.loads(found) == ["COMPLETED", 0.5]


def test_what_cannot_be_swept_is_refused_before_anything_is_sent(user: User) -> None:
    told = python(
        user,
        """
        import dethpc, json, threading
        lock, told = threading.Lock(), []
        for fn, space, options in [
            (lambda hparams: lock, {}, {}),
            (print, {"x": (1, 2, "lin")}, {}),
            (print, {"x": (1, 2)}, {"searcher": "grit"}),
            (None, {}, {}),
            (print, {}, {"include": "helper.py"}),
        ]:
            try:
                dethpc.sweep(fn, space, **options)
            except (dethpc.errors.DethpcError, TypeError, ValueError) as error:
                told.append(f"{type(error).__name__}: {error}")
        print(json.dumps(told))
        """,
    )
    assert told[0].startswith("ContextError: ") and "cannot pickle" in told[0]
    assert told[1].startswith("ValueError: space['x']: ") and told[3].startswith("TypeError")
    assert (
        told[2].startswith("ConfigError: dethpc.sweep: searcher: 'grit' is not one of")
        and "did you mean 'grid'" in told[2]
    )
    assert "helper.py cannot be read" in told[4]
    assert user.api("GET", "/api/v1/experiments")["experiments"] == []


def test_the_example_ends_with_its_table_and_the_best(user: User) -> None:
    shutil.copy(EXAMPLE, user.folder / "tune.py")
    command = [sys.executable, str(user.folder / "tune.py")]
    done = subprocess.run(command, env=user.env, capture_output=True, text=True, timeout=LONG_ENOUGH, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("COMPLETED") == 8 and "best: {" in done.stdout
    assert max(trial["totalBatchesProcessed"] for trial in user.trials(1)) == 16


@pytest.fixture
def slurm_user(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    with user_of(slurm, tmp_path) as user:
        yield user


def test_a_sweep_runs_as_jobs_of_a_real_slurm(slurm_user: User) -> None:
    found = python(
        slurm_user,
        """
        import dethpc, json, os

        if __name__ == "__main__":
            def fn(hparams):
                return {"loss": hparams["x"], "job": int(os.environ["SLURM_JOB_ID"])}
            sweep = dethpc.sweep(fn, {"x": [2, 1]}, searcher="grid").wait()
            print(json.dumps([trial.result() for trial in sweep.trials]))
        """,
    )
    assert {row["loss"] for row in found} == {1, 2} and all(row["job"] > 0 for row in found)
    assert len({row["job"] for row in found}) == 2


def test_a_sweep_starts_its_master_again_where_it_was_killed(user: User) -> None:
    found = python(
        user,
        """
        import json, os, pathlib, signal, dethpc
        sweep = dethpc.sweep(lambda hparams: hparams["x"], {"x": [1, 2]}, searcher="grid")
        held = json.loads(pathlib.Path(os.environ["DETHPC_HOME"], "master.json").read_text())
        os.kill(held["pid"], signal.SIGKILL)
        sweep.wait()
        sweep.plot()
        print(json.dumps([sweep.best.metrics["loss"], sorted(trial.metrics["loss"] for trial in sweep.trials)]))
        """,
    )
    assert found == [1, [1, 2]]
