"""What every launcher does with its command line."""

import sys

import pytest

from dethpc.exec.end import NodeResult
from dethpc.launch import _task
from tests.launchers.conftest import launch, module

LAUNCHERS = ["torch_distributed", "deepspeed", "horovod", "autohorovod", "tensorflow", "mpi"]


@pytest.mark.parametrize("name", LAUNCHERS)
def test_help_and_mistakes(name) -> None:
    helped = launch(f"dethpc.launch.{name}", "-h")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "--trial" in helped.stdout
    for arguments, words in (
        ([], "no script to run"),
        (["--trial", "a:B", "train.py"], "takes no further arguments"),
        (["--no-such-option", "train.py"], "no-such-option"),
        (["train.py"], "not a task of the cluster"),
    ):
        done = launch(f"dethpc.launch.{name}", *arguments)
        (line,) = done.stderr.splitlines()
        assert done.returncode == 2
        assert line.startswith(f"ERROR: {name}: ")
        assert words in line


def test_overrides_end_with_the_first_dashes() -> None:
    parser = _task.parser("x", "", "OVERRIDES", "options")
    assert _task.read(parser, ["--a", "1", "--", "train.py", "--", "b"]) == (
        ["--a", "1"],
        _task.read(parser, ["train.py", "x"]).own.__class__(trial=None, script=["train.py", "--", "b"]),
        [sys.executable, "train.py", "--", "b"],
    )
    assert _task.read(parser, ["sh", "-c", "true"]).script == ["sh", "-c", "true"]
    for trial in (["--trial", "m:C"], ["m:C"]):
        assert _task.read(parser, ["--", *trial]).script[1:] == ["-m", _task.HARNESS, "m:C"]
    assert _task.read(parser, ["m:C", "more"]).script == ["m:C", "more"]


def test_what_a_launcher_refuses_is_the_reason_and_not_tried_again(run) -> None:
    code, report = run.run([*module("deepspeed"), "--no_such_option", "--", "train.py"])
    assert (code, report["phase"]) == (2, "launch")
    assert "--no_such_option" in report["message"]
    assert "\n" not in report["message"]


def test_a_launcher_may_be_wrapped_by_other_programs(run) -> None:
    wrapper = '#!/bin/sh\necho wrapped\nexec "$@"\n'
    entrypoint = f"sh ./profile.sh {sys.executable} -m determined.launch.autohorovod -- sh -c 'echo inside; exit 5'"
    code, report = run.run(entrypoint, {"profile.sh": wrapper}, slots=1, slots_per_node=1)
    assert (code, report["message"]) == (5, "exit code 5")
    assert run.text().split("\n")[:2] == ["wrapped", "inside"]


def test_the_places_of_workers_on_uneven_nodes() -> None:
    class Info:
        container_slot_counts = [3, 1]
        container_rank = 1

    assert _task.slots(Info()) == [(3, 4, 0, 1, 1, 2)]
    Info.container_rank = 0
    assert _task.slots(Info()) == [(0, 4, 0, 3, 0, 2), (1, 4, 1, 3, 0, 1), (2, 4, 2, 3, 0, 1)]


def test_outcomes_travel_between_nodes_with_their_time() -> None:
    outcome = NodeResult("train", 3, at=5.0)
    assert NodeResult.from_json(outcome.to_json()).to_json() == outcome.to_json()
