"""Commands and generic tasks from ``det`` to their end, on this machine."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.e2e.conftest import User, sleepers
from tests.waiting import wait_until

LISTED = ("command", "list", "--all", "--json")


def launch(user: User, *words: str) -> str:
    return user.det("command", "run", "--detach", *words).strip()


def state(user: User, task_id: str) -> str:
    return str(user.api("GET", f"/api/v1/commands/{task_id}")["command"]["state"])


def test_a_command_prints_what_its_program_prints_and_exits_as_that_does(user: User) -> None:
    printed = user.det("command", "run", "echo so it is; exit 7", code=7)
    assert "so it is" in printed and "failed with exit code 7" in user.errors
    user.det("command", "run", "--config", "resources.slots=0", "true")
    first, second = user.det(*LISTED), user.json("command", "list", "--all")
    assert first and [row["exitStatus"] for row in second] == ["failed with exit code 7", "success"]
    assert "No command of yours waits or runs" in user.det("command", "list") + user.errors


def test_a_long_log_is_printed_once_and_followed_to_its_end(user: User) -> None:
    printed = user.det("command", "run", "seq 1 25000; exit 3", code=3)
    numbers = [int(line.rpartition(" ")[2]) for line in printed.splitlines() if line.rpartition("INFO: ")[2].isdigit()]
    assert numbers == list(range(1, 25001))


def test_a_command_starts_beside_its_files_in_the_environment_of_the_shell(user: User) -> None:
    user.write("context/data.txt", "forty-two\n")
    user.env["DATASET"] = "cifar"
    printed = user.det("command", "run", "-c", "context", "cat data.txt; echo $DATASET; echo type $DET_TASK_TYPE")
    assert all(text in printed for text in ("forty-two", "cifar", "type COMMAND"))
    assert "DET_TRIAL_ID" not in user.det("command", "run", "env")


def test_a_command_is_killed_with_all_its_processes(user: User) -> None:
    task_id = launch(user, "sleep 98765 & sleep 98765")
    wait_until(lambda: len(sleepers(user)) == 2)
    wait_until(lambda: state(user, task_id) == "STATE_RUNNING")
    assert [job["entityId"] for job in user.json("job", "list", "-w", "Uncategorized")["jobs"]] == [task_id]
    assert user.json("job", "list", "--project", "99")["jobs"] == []
    user.det("command", "kill", task_id[:8])
    wait_until(lambda: state(user, task_id) == "STATE_TERMINATED" and not sleepers(user))
    assert user.json("command", "describe", task_id)["exitStatus"] == "killed by a user"
    assert "has ended before (killed by a user): nothing to do" in user.det("command", "kill", task_id)


def test_a_command_says_why_it_waits(user: User) -> None:
    slots = len(user.json("slot", "list"))
    blocking = launch(user, "--config", f"resources.slots={slots}", "sleep 98765")
    wait_until(lambda: state(user, blocking) == "STATE_RUNNING")
    argv, errors = [user.python, "-m", "dethpc.cli", "command", "run", "true"], user.folder / "errors"
    with errors.open("w") as stderr:
        waiting = subprocess.Popen(argv, cwd=user.folder, env=user.env, stdin=subprocess.DEVNULL, stderr=stderr)
    wait_until(lambda: "It waits for" in errors.read_text())
    user.det("command", "kill", blocking)
    assert waiting.wait() == 0


def test_a_command_outlives_its_master(user: User) -> None:
    user.write("context/wait.sh", "while [ ! -e ../go ] && [ ! -e $GO ]; do sleep 0.1; done; echo went on; exit 4\n")
    user.env["GO"] = str(user.folder / "go")
    task_id = launch(user, "-c", "context", "sh", "wait.sh")
    wait_until(lambda: state(user, task_id) == "STATE_RUNNING")
    user.kill_master()
    user.write("go", "")
    assert "went on" in user.det("command", "logs", "-f", task_id)
    wait_until(lambda: state(user, task_id) == "STATE_TERMINATED")
    assert user.json("command", "describe", task_id)["exitCode"] == 4


def test_a_paused_task_keeps_its_environment_when_the_master_is_killed(user: User) -> None:
    user.env["DATASET"] = "cifar"
    config = user.write("task.yaml", "entrypoint: 'echo of $DATASET; sleep 98765'\n")
    task_id = user.det("task", "create", str(config)).split()[-1]
    wait_until(lambda: len(sleepers(user)) == 1)
    user.det("task", "pause", task_id)
    wait_until(lambda: not sleepers(user))
    user.kill_master()
    user.det("task", "unpause", task_id)
    wait_until(lambda: len(sleepers(user)) == 1)
    assert user.det("task", "logs", task_id).count("of cifar") == 2
    user.det("task", "kill", task_id)
    wait_until(lambda: not sleepers(user))


def test_commands_come_back_when_the_database_is_lost(user: User) -> None:
    user.det("command", "run", "echo before")
    (before,) = user.json("command", "list", "--all")
    user.det("master", "down")
    (user.home / "dethpc.db").unlink()
    user.det("master", "rebuild", "--yes")
    (after,) = user.json("command", "list", "--all")
    assert after == before
    assert "before" in user.det("command", "logs", before["id"])


def test_a_mistake_launches_nothing(user: User) -> None:
    user.det("command", "run", "--config", "resources.slot=1", "ls", code=1)
    assert "did you mean 'slots'" in user.errors
    user.det("command", "run", "--config", "resources.slots=9999", "ls", code=1)
    assert "resources.slots" in user.errors and "slots_per_trial" not in user.errors
    file = user.write("task.yaml", "entrypoint: 'true'\nresorces: {slots: 1}\n")
    for arguments in (("task", "create", str(file)), ("command", "run", "--config-file", str(file), "ls")):
        user.det(*arguments, code=1)
        assert f"{file}:2: resorces: unknown field" in user.errors
    user.det("command", "run", code=2)
    user.det("command", "describe", "nothing", code=1)
    assert "det command list" in user.errors
    assert user.json("command", "list", "--all") == []


def test_what_a_command_cannot_do_is_said(user: User) -> None:
    printed = user.det("command", "run", "--config", "work_dir=/nowhere/at/all", "true", code=126)
    assert "cannot be started in /nowhere/at/all: No such file or directory" in printed
    user.det("command", "run", "cat", input="some text")
    assert "cannot read standard input" in user.errors
    for mistake, message in (("[]", "a command"), ("[echo, 5, null]", "whose word 2 is 5"), ("''", "a command")):
        user.det("command", "run", "--config", f"entrypoint={mistake}", code=1)
        assert message in user.errors, mistake
    (row, _) = user.json("command", "list", "--all")
    began, ended = (user.det("command", "logs", row["id"]).index(word) for word in ("Started on", "Exited with"))
    assert began < ended
    assert user.det("task", "describe", row["id"][:9]) == user.det("task", "describe", row["id"])
    config = user.write("task.yaml", "entrypoint: 'true'\n")
    user.det("task", "create", str(config), "--parent", row["id"][:9], code=1)
    assert "generic task" in user.errors
    ended_task = user.det("task", "create", str(config), "--follow").split()[2]
    wait_until(lambda: "Ended" in user.det("task", "describe", ended_task))
    user.det("task", "create", str(config), "--parent", ended_task, code=1)
    assert "has ended" in user.errors
    assert "has ended before: only" in user.det("task", "kill", ended_task)


def test_an_interrupt_leaves_the_command_to_itself(user: User) -> None:
    argv = [user.python, "-m", "dethpc.cli", "command", "run", "sleep 98765"]
    following = subprocess.Popen(
        argv, cwd=user.folder, env=user.env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: len(sleepers(user)) == 1)
    os.kill(following.pid, signal.SIGINT)
    _, errors = following.communicate()
    (row,) = user.json("command", "list")
    assert following.returncode == 130 and f"det command kill {row['id']}" in errors
    user.det("command", "kill", row["id"])
    wait_until(lambda: not sleepers(user))


def test_a_generic_task_is_paused_goes_on_and_is_forked(user: User) -> None:
    config = user.write("task.yaml", "name: counter\nentrypoint: 'echo began; sleep 98765'\n")
    task_id = user.det("task", "create", str(config), "-c", "context").split()[-1]
    wait_until(lambda: len(sleepers(user)) == 1)
    user.det("task", "pause", task_id)
    wait_until(lambda: not sleepers(user))
    wait_until(lambda: user.json("task", "describe", task_id)["taskState"] == "GENERIC_TASK_STATE_PAUSED")
    user.det("task", "unpause", task_id)
    wait_until(lambda: len(sleepers(user)) == 1)
    assert user.det("task", "logs", task_id).count("began") == 2
    child = user.det("task", "create", str(config), "-p", task_id, "--inherit-context").split()[-1]
    wait_until(lambda: len(sleepers(user)) == 2)
    user.det("task", "kill", "--root", child)
    wait_until(lambda: not sleepers(user))
    fork = user.det("task", "fork", task_id).split()[-1]
    described = user.json("task", "describe", fork)
    assert described["forkedFrom"] == task_id and user.json("task", "config", fork)["description"] == "counter"
    user.det("task", "kill", fork)
    with pytest.raises(Exception, match="not found"):
        user.api("GET", "/api/v1/commands/" + task_id)
    wait_until(lambda: not sleepers(user))


def test_det_and_the_sdk_work_inside_a_command_as_its_owner(user: User) -> None:
    code = "from determined.experimental import client; print('experiments', len(client.list_experiments()))"
    user.write("context/sdk.py", code)
    seen = "until det command list --json | grep -q STATE_RUNNING; do sleep 0.2; done"  # by the master
    printed = user.det("command", "run", "-c", "context", f"{seen}; det command list --json; python3 sdk.py")
    assert '"state": "STATE_RUNNING"' in printed and "experiments 0" in printed
