"""One experiment from ``det experiment create`` to its end, on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from datetime import datetime

import pytest

from dethpc.errors import NotFound
from tests import folders
from tests.e2e.conftest import SLEEPS, User, sleepers
from tests.waiting import wait_until

RANDOM = {
    "searcher": {"name": "random", "metric": "validation_loss", "max_trials": 4, "max_concurrent_trials": 4},
    "hyperparameters": {"lr": {"type": "log", "minval": -3, "maxval": -1, "base": 10}, "steps": 6},
}


def final_state(log: str) -> str:
    found = re.search(r"final state (\w+)", log)
    assert found, log
    return found[1]


def test_a_search_runs_from_create_to_the_table_of_its_trials(user: User) -> None:
    experiment = user.create(**RANDOM)
    user.det("experiment", "wait", str(experiment))
    trials = user.trials(experiment)
    assert [trial["state"] for trial in trials] == ["STATE_COMPLETED"] * 4
    assert "COMPLETED" in user.det("experiment", "list-trials", str(experiment))
    assert "final state" in user.log(experiment)
    for trial in trials:
        assert [m["totalBatches"] for m in user.metrics(trial["id"], "training")] == [1, 2, 3, 4, 5, 6]
    assert "for ever" in user.det("experiment", "set", "log-retention", str(experiment), "--forever")
    assert "for 0 days" in user.det("trial", "set", "log-retention", str(trials[0]["id"]), "--days", "0")
    user.det("experiment", "set", "log-retention", str(experiment), code=2)
    assert user.det("task", "cleanup-logs") == "Deleted the logs of 1 trial\n"


def test_an_argparse_script_gets_its_hyperparameters_by_name(user: User) -> None:
    user.write(
        "context/fit.py",
        """
        import argparse
        import determined as det

        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float, required=True)
        parser.add_argument("--name")
        parser.add_argument("--layers", type=int, nargs="+")
        args = parser.parse_args()
        with det.core.init() as core:
            core.train.report_validation_metrics(1, {"accuracy": args.lr, "layers": sum(args.layers)})
            print("name is", args.name)
        """,
    )
    hyperparameters = {
        "lr": {"type": "categorical", "vals": [0.1, 0.2, 0.4]},
        "model": {"name": "it's $HOME", "layers": [8, 4]},
    }
    searcher = {"name": "grid", "metric": "accuracy", "smaller_is_better": False}
    entrypoint = "python3 fit.py --lr {lr} --name={model.name} --layers 1 2"
    by_name = user.create(entrypoint=entrypoint, searcher=searcher, hyperparameters=hyperparameters)
    user.det("experiment", "wait", str(by_name))
    found = {trial["hparams"]["lr"]: user.metrics(trial["id"], "validation")[0] for trial in user.trials(by_name)}
    assert {lr: report["metrics"]["validation_metrics"]["accuracy"] for lr, report in found.items()} == {
        0.1: 0.1,
        0.2: 0.2,
        0.4: 0.4,
    }
    assert user.log(by_name).count("name is it's $HOME") == 1
    flat = {"lr": 0.3, "name": "all flags", "layers": [5, 6]}
    as_flags = user.create(
        entrypoint="python3 fit.py {hparams...}", searcher={**searcher, "name": "single"}, hyperparameters=flat
    )
    user.det("experiment", "wait", str(as_flags))
    (trial,) = user.trials(as_flags)
    assert user.metrics(trial["id"], "validation")[0]["metrics"]["validation_metrics"] == {
        "accuracy": 0.3,
        "layers": 11,
    }
    assert "name is all flags" in user.log(as_flags)


def test_a_paused_trial_resumes_from_its_last_checkpoint(user: User) -> None:
    undisturbed = user.create(hyperparameters={"lr": 0.1, "steps": 30})
    user.det("experiment", "wait", str(undisturbed))
    paused = user.create(hyperparameters={"lr": 0.1, "steps": 30, "hold": 7})
    user.wait_steps(paused, 7)
    user.det("experiment", "pause", str(paused))
    user.wait_state(paused, "PAUSED")
    wait_until(lambda: "stopping at step" in user.log(paused))
    user.det("experiment", "activate", str(paused))
    user.det("experiment", "wait", str(paused))
    log = user.log(paused)
    assert re.findall(r"stopping at step (\d+)", log) == re.findall(r"starting at step (\d+)", log)[1:] == ["7"]
    assert final_state(log) == final_state(user.log(undisturbed))
    assert re.findall(r"The trial (.*)", log) == [
        f"goes on from step 7 in job {user.runs_of(paused)[1]}; before, it ended at step 7: pause"
    ]
    (trial,) = user.trials(paused)
    shown = user.det("trial", "describe", str(trial["id"]))
    assert re.search(r"^1 .* 0-7 .* STOPPED +pause$", shown, re.M) and re.search(
        r"^2 .* 7-30 .* COMPLETED", shown, re.M
    )
    assert [m["totalBatches"] for m in user.metrics(trial["id"], "training")] == list(range(1, 31))


def test_what_a_trial_keeps_in_its_own_folder_stays_over_its_attempts_until_its_experiment_is_deleted(
    user: User,
) -> None:
    user.write(
        "context/keep.py",
        """
        import os, sys
        import determined as det

        own = os.environ["DET_TRIAL_DIR"]
        print("found", sorted(os.listdir(own)), flush=True)
        with open(os.path.join(own, f"attempt-{os.environ['DET_TRIAL_RUN_ID']}"), "x"):
            pass
        with det.core.init() as core:
            if det.get_cluster_info().trial.hparams["lr"] == 2:
                os.remove(os.path.join(own, "attempt-1"))
            elif len(os.listdir(own)) == 1:
                sys.exit("the first time")
            core.train.report_validation_metrics(1, {"validation_loss": 1.0})
        """,
    )
    grid = {"name": "grid", "metric": "validation_loss"}
    lr = {"lr": {"type": "categorical", "vals": [1, 2]}}
    experiment = user.create(entrypoint="python3 keep.py", searcher=grid, hyperparameters=lr, max_restarts=1)
    user.det("experiment", "wait", str(experiment))
    one, two = sorted(user.trials(experiment), key=lambda trial: trial["hparams"]["lr"])
    folder = user.home / "experiments" / str(experiment) / "trials"
    assert re.findall(r"found (.*)", user.det("trial", "logs", str(one["id"]))) == ["[]", "['attempt-1']"]
    assert sorted(os.listdir(folder / str(one["id"]))) == ["attempt-1", "attempt-2"]
    assert os.listdir(folder) == [str(one["id"])], f"an empty folder of trial {two['id']} is left"
    user.det("experiment", "delete", str(experiment), "-y")
    wait_until(lambda: not folder.exists())


@pytest.mark.everything
def test_a_master_without_work_ends_where_the_site_wants_it_and_the_next_command_starts_another(user: User) -> None:
    user.home.mkdir(exist_ok=True)
    (user.home / "site.yaml").write_text("master: {end_after_idle_hours: 0.0005}\n")
    storage = {"type": "shared_fs", "host_path": str(user.folder / "kept"), "save_trial_latest": 100}
    experiment = user.create(hyperparameters={"lr": 0.1, "steps": 6}, checkpoint_storage=storage)
    log = user.home / "log" / "master.log"
    wait_until(lambda: "nothing to do for" in log.read_text() and "master ended" in log.read_text())
    assert log.read_text().count("listens at") == 1, "it stayed while the trial ran"
    (shown,) = user.json("experiment", "list")
    assert (shown["id"], shown["state"]) == (experiment, "STATE_COMPLETED")
    assert log.read_text().count("listens at") == 2


def test_what_has_ended_goes_on_in_its_own_experiment_or_in_another(user: User) -> None:
    first = user.create(hyperparameters={"lr": 0.1, "steps": 6})
    user.det("experiment", "wait", str(first))
    user.det("experiment", "continue", str(first), "--config", "hyperparameters.steps=9")
    user.det("experiment", "wait", str(first))
    (trial,) = user.trials(first)
    assert [m["totalBatches"] for m in user.metrics(trial["id"], "training")] == list(range(1, 10))
    assert re.findall(r"starting at step (\d+)", user.log(first)) == ["0", "6"]
    user.write("more.yaml", "hyperparameters: {steps: 11}\n")
    moved = int(user.det("trial", "continue", str(trial["id"]), "--config-file", "more.yaml").split()[-1])
    user.det("experiment", "wait", str(moved))
    assert re.findall(r"starting at step (\d+)", user.log(moved)) == ["9"]
    assert user.experiment(moved)["forkedFrom"] == first


def test_the_master_stops_while_trials_wait_for_its_word(user: User) -> None:
    """Their long-polls for preemption, a minute each, are answered at once; the trials go on."""
    go = user.folder / "go"
    experiment = user.create(hyperparameters={"lr": 0.1, "steps": 100, "hold": 5, "go": str(go)})
    user.wait_steps(experiment, 5)
    user.det("master", "down", "--timeout", "45")
    go.touch()
    user.det("experiment", "wait", str(experiment))
    (trial,) = user.trials(experiment)
    assert [m["totalBatches"] for m in user.metrics(trial["id"], "training")] == list(range(1, 101))


def test_a_master_that_is_killed_is_replaced_and_nothing_is_lost(user: User) -> None:
    experiment = user.create(hyperparameters={"lr": 0.1, "steps": 60, "pause": 0.05})
    for steps in (5, 15, 30):
        user.wait_steps(experiment, steps)
        user.kill_master()
        user.det("experiment", "list")  # starts another
    user.det("experiment", "wait", str(experiment))
    (trial,) = user.trials(experiment)
    assert [m["totalBatches"] for m in user.metrics(trial["id"], "training")] == list(range(1, 61))
    assert user.log(experiment).count("starting at step 0") == 1


def test_a_trial_that_ends_while_no_master_runs_ended_then_and_not_when_the_next_one_notices(user: User) -> None:
    go = user.folder / "go"
    experiment = user.create(hyperparameters={"lr": 0.1, "steps": 6, "hold": 5, "go": str(go)})
    user.wait_steps(experiment, 5)
    user.kill_master()
    go.touch()
    (end,) = wait_until(lambda: list((user.home / "runs").glob(f"{experiment}.*/attempts/0/end.json")))
    at = json.loads(end.read_text())["at"]
    wait_until(lambda: time.time() > at + 3)  # nobody notices for a while
    user.det("experiment", "wait", str(experiment))  # starts another
    (trial,) = user.trials(experiment)
    ended = [_epoch(row["endTime"]) for row in (trial, user.experiment(experiment))]
    assert ended == [pytest.approx(at, abs=0.01)] * 2
    assert trial["wallClockTime"] == pytest.approx(at - _epoch(trial["startTime"]), abs=0.1)
    (said,) = [line for line in user.log(experiment).splitlines() if "Ended with exit code 0" in line]
    assert _epoch(re.findall(r"\d{4}-\d\d-\d\dT[\d:.]+Z", said)[0]) == pytest.approx(at, abs=1)


def _epoch(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def test_cancel_lets_the_trial_checkpoint_and_kill_does_not(user: User) -> None:
    cancelled = user.create(hyperparameters={"lr": 0.1, "steps": 10000, "pause": 0.05})
    killed = user.create(hyperparameters={"lr": 0.1, "steps": 10000, "pause": 0.05})
    user.wait_steps(cancelled, 3)
    user.wait_steps(killed, 3)
    user.det("experiment", "cancel", str(cancelled))
    user.det("experiment", "kill", str(killed))
    for experiment in (cancelled, killed):
        user.wait_state(experiment, "CANCELED")
    assert "stopping at step" in user.log(cancelled)
    assert "stopping at step" not in user.log(killed)
    user.det("experiment", "wait", str(killed), code=None)


def _deleted(user: User, experiment: int) -> bool:
    """Whether it is gone, or why it is not."""
    with contextlib.suppress(NotFound):
        found = user.experiment(experiment)
        assert found["state"] in ("STATE_DELETING", "STATE_DELETE_FAILED")
        return found["state"] == "STATE_DELETE_FAILED"
    return True


def _files(user: User) -> list[str]:
    """What a deletion removes: not what it leaves itself, and not the change logs, by which no id is given again."""
    found = [str(path.relative_to(user.home)) for path in folders.files(user.home)]
    wanted = re.compile(r"(checkpoints|contexts|experiments|runs/[0-9]+\.)")
    return [path for path in found if wanted.match(path) and not path.endswith("changes.jsonl")]


def test_a_deleted_experiments_files_go_by_a_task_that_a_killed_master_leaves_to_the_next(user: User) -> None:
    first, second = (user.create(hyperparameters={"lr": 0.1, "steps": 6}) for _ in "ab")
    for experiment in (first, second):
        user.det("experiment", "wait", str(experiment))
    (code,) = [path for path in _files(user) if path.startswith("contexts/")]
    (uuid, *_) = [one["uuid"] for one in user.api("GET", f"/api/v1/experiments/{first}/checkpoints")["checkpoints"]]
    user.det("experiment", "delete", "--yes", str(first))
    user.kill_master()
    user.det("experiment", "list")  # starts another
    wait_until(lambda: _deleted(user, first))
    with pytest.raises(NotFound, match="was deleted"):
        user.api("GET", f"/api/v1/checkpoints/{uuid}")
    left = _files(user)
    assert code in left, "the other experiment has the same code"
    assert not [path for path in left if path.startswith(f"runs/{first}.") or uuid in path]
    assert [path for path in left if "/tensorboard/" in path] and not [
        path for path in left if f"/tensorboard/experiment/{first}/" in path
    ]

    (user.home / "checkpoints").rename(user.home / "not-mounted")
    user.det("experiment", "delete", "--yes", str(second))
    wait_until(lambda: _deleted(user, second))
    assert re.search(r"could not be deleted.*storage .* is not there on", user.experiment(second)["reason"])
    (user.home / "not-mounted").rename(user.home / "checkpoints")
    user.det("experiment", "delete", "--yes", str(second))
    wait_until(lambda: user.det("experiment", "describe", str(second), code=None) == "")
    assert len(_files(user)) == 1, "the code of deletions themselves"
    assert "agree" in user.det("master", "check")


@pytest.mark.parametrize(
    ("entrypoint", "hook", "message"),
    [
        pytest.param("pyhton3 train.py", None, r"pyhton3", marks=pytest.mark.everything),
        ("python3 -c 'raise ValueError(\"bad lr\")'", None, r"ValueError: bad lr"),
        pytest.param("exit 7", None, r"exit code 7|exited with 7|7", marks=pytest.mark.everything),
        ("python3 train.py", "echo preparing\necho no such dataset >&2\nexit 3\n", r"startup-hook.sh.*3"),
    ],
)
def test_a_failure_gives_one_clear_message(user: User, entrypoint: str, hook: str | None, message: str) -> None:
    if hook is not None:
        user.write("context/startup-hook.sh", hook)
    experiment = user.create(entrypoint=entrypoint)
    user.det("experiment", "wait", str(experiment), code=1)
    assert user.experiment(experiment)["state"] == "STATE_ERROR"
    assert re.search(message, user.det("experiment", "describe", str(experiment)))
    assert re.search(message if hook is None else "no such dataset", user.log(experiment))


def test_a_faulty_trial_is_restarted_as_often_as_allowed_while_it_fails_otherwise(user: User) -> None:
    experiment = user.create(entrypoint="echo attempt; exit $((10 + DET_TRIAL_RUN_ID))", max_restarts=2)
    user.det("experiment", "wait", str(experiment), code=1)
    assert user.log(experiment).count("attempt") == 3
    (trial,) = user.trials(experiment)
    assert trial["restarts"] == 2


def test_a_trial_that_fails_alike_before_its_first_report_is_given_up_at_once(user: User) -> None:
    user.write("context/train.py", "print('attempt')\nsteps_done += 1\n")
    experiment = user.create(max_restarts=None)
    output = user.det("experiment", "wait", str(experiment), code=1)
    reason = "NameError: name 'steps_done' is not defined (failed twice in the same way"
    assert reason in output and reason in user.det("experiment", "describe", str(experiment))
    assert user.log(experiment).count("attempt") == 2


def test_a_trial_class_whose_module_is_missing_fails_twice_and_not_six_times(user: User) -> None:
    user.write("context/model_def.py", "import sys; sys.exit('no such file')\n")
    experiment = user.create(entrypoint="python3 -m dethpc.exec.harness missing_module:Trial", max_restarts=None)
    told = user.det("experiment", "wait", str(experiment), code=1)
    assert (
        "there is no module 'missing_module' in the context directory" in told
        and "(failed twice in the same way" in told
    )
    (trial,) = user.trials(experiment)
    assert trial["restarts"] == 1


def test_a_metric_that_never_comes_is_told_wherever_one_looks(user: User) -> None:
    user.write(
        "context/train.py",
        """\
        import determined as det
        with det.core.init() as core:
            core.train.report_validation_metrics(1, {"val_loss": 1.0})
        """,
    )
    experiment = user.create()
    words = (
        "validation_loss, the searcher's metric, is not among the reported validation metrics (val_loss); "
        "did you mean 'val_loss'?"
    )
    told = user.det("experiment", "wait", str(experiment))
    assert (
        words in told and "completed, but no trial reported validation_loss, the searcher's metric, as a number" in told
    )
    assert f"Warning:       trial {user.trials(experiment)[0]['id']}: {words}" in user.det(
        "experiment", "describe", str(experiment)
    )
    assert f"WARNING: {words}" in user.log(experiment)
    assert words in user.det("trial", "describe", str(user.trials(experiment)[0]["id"]))


def test_a_search_completes_though_some_of_its_trials_fail(user: User) -> None:
    source = (user.folder / "context/train.py").read_text()
    user.write("context/train.py", source.replace("state, start =", "assert hparams['lr'] < 0.5\nstate, start =", 1))
    grid = {"lr": {"type": "categorical", "vals": [0.1, 0.5, 0.2, 0.9]}, "steps": 4}
    experiment = user.create(
        searcher={"name": "grid", "metric": "validation_loss"}, hyperparameters=grid, max_restarts=1
    )
    user.det("experiment", "wait", str(experiment))
    assert user.experiment(experiment)["state"] == "STATE_COMPLETED"
    ended = {trial["hparams"]["lr"]: (trial["state"], trial["restarts"]) for trial in user.trials(experiment)}
    failed, well = ("STATE_ERROR", 1), ("STATE_COMPLETED", 0)
    assert ended == {0.1: well, 0.5: failed, 0.2: well, 0.9: failed}


def test_the_words_that_scripts_look_for_stand_in_the_logs_of_trials(user: User) -> None:
    """The only node of this machine is excluded by the trial's log: after its failure no node is left."""
    policy = {"name": "card", "pattern": "ValueError: .* card", "action": "exclude_node"}
    user.write("context/train.py", "raise ValueError('bad card')\n")
    failed = user.create(max_restarts=3, log_policies=[policy])
    user.det("experiment", "wait", str(failed), code=1)
    (trial,) = user.trials(failed)
    assert (trial["state"], trial["restarts"], trial["logPolicyMatched"]) == ("STATE_ERROR", 1, "card")
    assert trial["reason"].startswith("its log policies exclude ") and "too few other nodes" in trial["reason"]
    log = user.log(failed)
    assert log.count("Validating checkpoint storage") == log.count("New trial runner") == 1
    for words in (
        "resources failed with non-zero exit code: 1",
        "container failed with non-zero exit code: 1",
        "Exited with exit code 1",
        '(log "ValueError: bad card" matched regex ValueError: .* card) therefore will not schedule on ',
        trial["reason"],
    ):
        assert words in log, words
    user.write("context/train.py", "print('well')\n")
    well = user.create(log_policies=[policy])
    user.det("experiment", "wait", str(well))
    assert "resources exited successfully with a zero exit code" in user.log(well)


def test_a_config_with_five_mistakes_gets_five_lines_and_creates_nothing(user: User) -> None:
    user.write(
        "config.yaml",
        """\
        name: bad
        entrypont: python3 train.py
        searcher:
          name: randm
          metric: loss
        resources:
          slots_per_trial: -1
        max_restarts: many
        checkpoint_policy: sometimes
        """,
    )
    user.det("experiment", "create", "config.yaml", "context", code=1)
    for line, field in (
        (2, "entrypont"),
        (4, "searcher.name"),
        (7, "slots_per_trial"),
        (8, "max_restarts"),
        (9, "checkpoint_policy"),
    ):
        assert re.search(rf"config.yaml:{line}: .*{field}", user.errors), user.errors
    assert user.json("experiment", "list") == []


def test_processes_of_a_killed_trial_are_gone(user: User) -> None:
    user.write("context/train.py", SLEEPS)
    experiment = user.create()
    wait_until(lambda: len(sleepers(user)) == 1)
    user.det("experiment", "kill", str(experiment))
    user.wait_state(experiment, "CANCELED")
    wait_until(lambda: not sleepers(user))


def test_an_experiment_created_paused_waits(user: User) -> None:
    experiment = user.create("--paused", hyperparameters={"lr": 0.1, "steps": 2})
    assert user.experiment(experiment)["state"] == "STATE_PAUSED"
    time.sleep(0.5)
    assert "starting" not in user.log(experiment)
    user.det("experiment", "activate", str(experiment))
    user.det("experiment", "wait", str(experiment))


def test_everything_is_rebuilt_from_the_shared_file_system(user: User) -> None:
    experiment = user.create(**RANDOM)
    user.det("experiment", "wait", str(experiment))
    before = [(t["hparams"], t["state"], t.get("bestValidation")) for t in user.trials(experiment)]
    user.det("master", "down")
    for path in user.home.glob("dethpc.db*"):
        path.unlink()
    user.det("master", "rebuild", "--yes")
    user.det("experiment", "list")
    after = [(t["hparams"], t["state"], t.get("bestValidation")) for t in user.trials(experiment)]
    assert after == before
    for trial in user.trials(experiment):
        assert [m["totalBatches"] for m in user.metrics(trial["id"], "training")] == [1, 2, 3, 4, 5, 6]
