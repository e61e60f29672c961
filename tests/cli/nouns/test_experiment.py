"""``det experiment`` and ``det trial`` as a user's shell sees them: output, errors, exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dethpc import errors
from dethpc.cli import output, tables
from dethpc.cli.commands import wait
from dethpc.core._tensorboard import folder_of
from tests.waiting import LONG_ENOUGH


def line(number: int, text: str) -> dict[str, Any]:
    at = f"2026-11-20T10:00:{number:02d}.000Z"
    return {"id": str(number), "trialId": 1, "timestamp": at, "level": "LOG_LEVEL_INFO", "message": f"[{at}] {text}\n"}


# --- looking


def test_list_shows_ones_own_experiments_newest_last(det: Any, master: Any) -> None:
    done = det("experiment", "list", master=master)
    assert done.returncode == 0, done.stderr
    rows = [row.split() for row in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["ID", "1", "2"]
    assert rows[1] == ["1", "ada", "digits", "ACTIVE", "50%", "2", "2026-11-20T10:00:00+00:00", "-", "gpu"]
    query = next(q for m, p, q, _ in master.asked if p == "/api/v1/experiments")
    assert query["userIds"] == ["1"] and query["archived"] == ["false"]


def test_a_list_tells_what_is_amiss_with_what_is_active_and_describe_with_all(det: Any, master: Any) -> None:
    master.experiment["warning"] = "loss is not among the reported validation metrics (los)"
    assert det("e", "ls", master=master).stderr.count("det: warning: experiment ") == 2
    master.experiment.update(state="STATE_COMPLETED", endTime="2026-11-20T11:00:00Z")
    master.trials[0]["warning"] = master.experiment["warning"]
    assert det("e", "ls", master=master).stderr == ""
    assert "loss is not among" in det("e", "describe", 1, master=master).stdout


def test_describe_says_how_tensorboard_shows_what_was_reported(det: Any, master: Any, tmp_path: Path) -> None:
    folder = tmp_path / "check points" / folder_of("c-1", 1, 2)
    master.config["checkpoint_storage"] = {
        "type": "shared_fs",
        "host_path": str(tmp_path),
        "storage_path": "check points",
    }
    assert "TensorBoard" not in det("e", "describe", 1, master=master).stdout, "there are no files"
    folder.mkdir(parents=True)
    assert f"tensorboard --logdir '{folder.parents[1]}'\n" in det("e", "describe", 1, master=master).stdout
    assert f"tensorboard --logdir '{folder}'\n" in det("t", "describe", 2, master=master).stdout
    assert "TensorBoard" not in det("t", "describe", 1, master=master).stdout


def test_list_all_asks_for_everybody(det: Any, master: Any) -> None:
    done = det("e", "ls", "-a", master=master)
    query = next(q for m, p, q, _ in master.asked if p == "/api/v1/experiments")
    assert "userIds" not in query and "archived" not in query
    assert "Archived" in done.stdout


def test_a_bare_noun_lists(det: Any, master: Any) -> None:
    assert det("e", master=master).stdout == det("e", "list", master=master).stdout


@pytest.mark.parametrize(
    "words",
    [
        "experiment list",
        "experiment describe 1",
        "experiment list-trials 1",
        "experiment config 1",
        "trial describe 1",
        "resource-pool list",
        "slot list",
        "agent list",
        "master info",
        "version",
        "user whoami",
    ],
)
def test_json_stands_beside_every_table(det: Any, master: Any, words: str) -> None:
    done = det(*words.split(), "--json", master=master)
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    plain = det(*words.split(), master=master)
    assert plain.returncode == 0 and plain.stdout and "\x1b" not in plain.stdout


def test_why_it_waits_stands_in_describe_and_beside_an_empty_log(det: Any, master: Any) -> None:
    reason = {"cause": "Resources", "why": "w", "sooner": "s", "text": "It waits for 4 GPUs. Ask for fewer"}
    master.waiting = [
        {**reason, "startTime": None, "count": 3, "trialIds": [1, 2, 3]},
        {**reason, "text": "It is held", "startTime": "2026-11-20T12:00:00Z", "count": 1, "trialIds": [4]},
    ]
    said = det("experiment", "describe", "1", master=master).stdout
    assert "3 trials: It waits for 4 GPUs. Ask for fewer\n" in said
    assert "It is held. Expected to start at 2026-11-20T12:00:00+00:00\n" in said
    assert json.loads(det("e", "describe", "1", "--json", master=master).stdout)[0]["waiting"]["count"] == 2
    assert "3 trials: It waits" in det("trial", "describe", "1", master=master).stdout
    assert "It waits for 4 GPUs" in det("trial", "logs", "1", master=master).stderr


@pytest.mark.parametrize("words", ["experiment list", "experiment list-trials 1", "resource-pool list", "slot list"])
def test_csv_has_one_row_per_noun(det: Any, master: Any, words: str) -> None:
    rows = list(csv.reader(io.StringIO(det(*words.split(), "--csv", master=master).stdout)))
    assert len(rows) > 1 and {len(row) for row in rows} == {len(rows[0])}


def test_describe_says_what_failed_and_why(det: Any, master: Any) -> None:
    master.experiment.update(state="STATE_ERROR", reason="all trials failed")
    done = det("experiment", "describe", 1, master=master)
    assert "Reason:" in done.stdout and "all trials failed" in done.stdout
    failed = next(row for row in done.stdout.splitlines() if row.startswith("2 "))
    assert "ERROR" in failed and "exit code 3: ZeroDivisionError" in failed


def test_describe_shows_rungs_with_who_is_where_and_when_it_may_end(det: Any, master: Any) -> None:
    stands = [{"trialId": n, "value": n / 10, "wentOn": n == 1} for n in range(1, 7)]
    master.search.update(
        progress=0.4,
        unit="batches",
        estimatedEndTime="2036-11-20T10:00:00Z",
        brackets=[
            {"rungs": [{"length": 16, "entered": 6, "wentOn": 1, "cutOff": 0.1, "places": None, "trials": stands}]},
            {"rungs": [{"length": 64, "entered": 0, "wentOn": 0, "cutOff": None, "places": 3, "trials": []}]},
        ],
        trials=[
            {
                "trialId": 2,
                "state": "STATE_COMPLETED",
                "bracket": 0,
                "rung": 0,
                "length": 16,
                "value": 0.2,
                "nextLength": None,
                "parentTrialId": None,
                "reason": "rung 0 (batches 16): loss 0.2 is worse than the cut-off 0.1",
            }
        ],
    )
    said = det("experiment", "describe", 1, master=master).stdout
    assert "40%, about " in said and "until 2036-11-20T10:00:00" in said
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert "Bracket Rung Batches Entered Went on Cut-off Best" in lines
    assert "0 0 16 6 1 0.1 1: 0.1 ↑, 2: 0.2, 3: 0.3, 4: 0.4, and 2 more" in lines
    assert "1 0 64 0/3 0 - -" in lines
    assert "worse than the cut-off" not in said
    (limit,) = [query["limit"] for _, path, query, _ in master.asked if path.endswith("/search")]
    assert limit == ["4"], "a large search has many more trials than are shown"
    long = det("experiment", "describe", 1, "--search", master=master).stdout
    assert "rung 0 (batches 16): loss 0.2 is worse than the cut-off 0.1" in long
    (found,) = json.loads(det("experiment", "describe", 1, "--json", master=master).stdout)
    assert found["search"] == master.search


def test_describe_writes_csv_files_with_metrics(det: Any, master: Any, tmp_path: Path) -> None:
    master.trials = master.trials[:1]
    done = det("experiment", "describe", "1", "--metrics", "--outdir", "out", master=master)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"experiments.csv", "trials.csv", "workloads.csv"}
    assert '""loss"": 0.25' in (tmp_path / "out" / "workloads.csv").read_text()


def test_best_trials_come_first_whatever_is_better(det: Any, master: Any) -> None:
    """Ascending is the best first for the master."""
    det("experiment", "list-trials", 1, "--best", 3, master=master)
    master.config["searcher"]["smaller_is_better"] = False
    det("experiment", "list-trials", 1, "--best", 3, master=master)
    queries = [q for _, p, q, _ in master.asked if p.endswith("/trials")]
    assert [q["orderBy"] for q in queries] == [["ORDER_BY_ASC"]] * 2
    assert all(q["sortBy"] == ["SORT_BY_BEST_VALIDATION_METRIC"] and q["limit"] == ["3"] for q in queries)


def test_a_pipe_that_closes_is_no_failure(environment: dict[str, str], master: Any) -> None:
    master.config["notes"] = ["x" * 1000] * 500  # more than a pipe holds
    command = f"set -o pipefail; {sys.executable} -m dethpc.cli -m {master.url} experiment config 1 | head -1"
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=LONG_ENOUGH)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.count("\n") == 1


# --- steering


@pytest.mark.parametrize("verb, said", [("pause", "Paused"), ("cancel", "Canceled"), ("kill", "Killed")])
def test_a_live_experiment_is_steered(det: Any, master: Any, verb: str, said: str) -> None:
    done = det("experiment", verb, 1, master=master)
    assert (done.returncode, done.stdout) == (0, f"{said} experiment 1\n")
    assert master.did("POST") == [(f"/api/v1/experiments/1/{verb}", None)]


def test_killing_what_has_ended_says_so(det: Any, master: Any) -> None:
    master.states = ["ERROR"]
    done = det("experiment", "kill", 1, master=master)
    assert (done.returncode, done.stdout) == (0, "Experiment 1 is ERROR: nothing to do\n")


@pytest.mark.parametrize("verb, state", [("pause", "PAUSED"), ("cancel", "CANCELED")])
def test_nothing_is_done_where_nothing_is_to_do(det: Any, master: Any, verb: str, state: str) -> None:
    master.states = [state]
    done = det("experiment", verb, 1, master=master)
    assert (done.returncode, done.stdout) == (0, f"Experiment 1 is {state}: nothing to do\n")
    assert master.did("POST") == []


@pytest.mark.parametrize(
    ("verb", "state", "why"),
    [
        ("pause", "COMPLETED", "has ended (COMPLETED), so it cannot be paused"),
        (
            "activate",
            "ERROR",
            "has ended (ERROR), so it cannot be activated; to train further: det experiment continue 1",
        ),
        (
            "archive",
            "ACTIVE",
            "is ACTIVE, so it cannot be archived before it has ended; to end it: det experiment cancel 1",
        ),
        ("pause", "STOPPING_KILLED", "is STOPPING_KILLED, so it cannot be paused"),
    ],
)
def test_the_impossible_is_refused_with_what_is_possible(
    det: Any, master: Any, verb: str, state: str, why: str
) -> None:
    master.states = [state]
    done = det("experiment", verb, 1, master=master)
    assert done.returncode == 1 and master.did("POST") == []
    assert done.stderr == f"det: error: experiment 1 {why}\n"


def test_checkpoints_are_listed_by_trial_and_steps_and_deleted_ones_last(det: Any, master: Any) -> None:
    master.checkpoints = [
        {
            "uuid": f"{trial}-{steps}",
            "state": f"STATE_{state}",
            "training": {"trialId": trial},
            "metadata": {"steps_completed": steps},
        }
        for trial, steps, state in [(2, 9, "DELETED"), (2, 10, "COMPLETED"), (1, 30, "COMPLETED"), (1, 8, "COMPLETED")]
    ]
    for command in (["e", "lc", 1], ["c", "ls", 1]):
        lines = det(*command, "--columns", "uuid", master=master).stdout.splitlines()
        assert lines == ["UUID", "1-8", "1-30", "2-10", "2-9"]


def test_one_bad_id_does_not_stop_the_others(det: Any, master: Any) -> None:
    done = det("experiment", "pause", "99,1", master=master)
    assert done.returncode == 1
    assert done.stdout == "Paused experiment 1\n" and "no such thing" in done.stderr


def test_what_is_no_id_is_a_usage_error(det: Any, master: Any) -> None:
    done = det("experiment", "pause", "one", master=master)
    assert done.returncode == 2 and "Give a name or ids" in done.stderr


def test_deleting_asks_first(det: Any, master: Any) -> None:
    assert det("experiment", "delete", 1, master=master, input="n\n").returncode == 1
    assert master.did("DELETE") == []
    assert det("experiment", "delete", 1, "--yes", master=master).returncode == 0
    assert master.did("DELETE") == [("/api/v1/experiments/1", None)]


def test_labels_are_added_and_removed_once(det: Any, master: Any) -> None:
    det("experiment", "label", "add", 1, "new", master=master)
    det("experiment", "label", "add", 1, "old", master=master)
    det("experiment", "label", "remove", 1, "old", master=master)
    assert [body["labels"] for _, body in master.did("PATCH")] == [["old", "new"], []]
    assert "has no label 'nope'" in det("experiment", "label", "remove", 1, "nope", master=master).stdout


def test_attributes_are_set(det: Any, master: Any) -> None:
    for words in ("name x", "description y", "max-slots 8", "max-slots none", "weight 2", "priority 3"):
        attribute, value = words.split()
        done = det("experiment", "set", attribute, 1, value, master=master)
        assert done.returncode == 0 and "None" not in done.stdout
    sent = [{k: v for k, v in body.items() if k != "id"} for _, body in master.did("PATCH")]
    assert sent == [
        {"name": "x"},
        {"description": "y"},
        {"resources": {"maxSlots": 8}},
        {"resources": {"maxSlots": None}},
        {"resources": {"weight": 2.0}},
        {"resources": {"priority": 3}},
    ]


@pytest.mark.parametrize(("slots", "told"), [("0", True), ("1", True), ("2", False), ("none", False)])
def test_a_limit_below_one_trial_is_told(det: Any, master: Any, slots: str, told: bool) -> None:
    master.experiment["config"] = {"resources": {"slots_per_trial": 2}}
    done = det("experiment", "set", "max-slots", 1, slots, master=master)
    words = f"note: a trial of experiment 1 needs 2 slots: none starts while max-slots is {slots}"
    assert done.returncode == 0 and (words in " ".join(done.stderr.split())) is told


def test_the_masters_refusal_is_shown_in_its_words(det: Any, master: Any) -> None:
    master.refuse = (409, {"error": {"code": 9, "reason": "FailedPrecondition", "error": "pool gpu has no priorities"}})
    done = det("experiment", "set", "priority", 1, 3, master=master)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "det: error: pool gpu has no priorities\n")


def test_killing_a_trial_leaves_ended_ones_alone(det: Any, master: Any) -> None:
    assert "nothing to do" in det("trial", "kill", 1, master=master).stdout
    master.trials[0]["state"] = "STATE_ACTIVE"
    assert det("trial", "kill", 1, master=master).stdout == "Killed trial 1\n"
    assert master.did("POST") == [("/api/v1/trials/1/kill", None)]


def test_a_paused_trial_says_where_it_resumes(det: Any, master: Any) -> None:
    def resumes() -> list[str]:
        shown = det("trial", "describe", 1, master=master).stdout.splitlines()
        return [row.partition(":")[2].strip() for row in shown if row.startswith("Resumes:")]

    assert resumes() == []
    master.trials[0].update(state="STATE_PAUSED", checkpointCount=2)
    assert resumes() == ["from its newest checkpoint"]
    master.trials[0].update(checkpointCount=0, warmStartCheckpointUuid=None)
    assert resumes() == ["from the beginning: it has no checkpoint"]
    master.trials[0].update(warmStartCheckpointUuid="5f2a")
    assert resumes() == ["from the checkpoint that it started from: it has none of its own"]


def test_waiting_for_what_is_paused_says_how_to_resume_it() -> None:
    assert "det experiment activate 7" in wait.so_far({"id": 7, "state": "STATE_PAUSED"})
    assert "activate" not in wait.so_far({"id": 7, "state": "STATE_ACTIVE"})


def test_several_trials_are_killed_and_described_at_once_and_one_that_fails_stops_no_other(
    det: Any, master: Any
) -> None:
    master.trials[0]["state"] = "STATE_ACTIVE"
    done = det("trial", "kill", "99,2,1", "1", master=master)
    assert (done.returncode, done.stdout) == (1, "Trial 2 is ERROR: nothing to do\nKilled trial 1\n")
    assert done.stderr.startswith("det: error: ") and "99" in done.stderr
    said = det("trial", "describe", 1, 2, master=master)
    assert [line.split()[-1] for line in said.stdout.splitlines() if line.startswith("Trial:")] == ["1", "2"], (
        said.stderr
    )
    assert [
        each["trial"]["id"] for each in json.loads(det("t", "describe", "1,2", "--json", master=master).stdout)
    ] == [1, 2]
    assert det("t", "describe", "1,2", "--csv", master=master).stdout.splitlines()[0].startswith("Trial,Steps,")
    assert "'digits' is not a trial id, such as 12" in det("trial", "kill", "digits", master=master).stderr


# --- logs


def test_logs_of_an_experiment_are_its_first_trials(det: Any, master: Any) -> None:
    master.logs = [[line(1, "hello"), line(2, "world")]]
    done = det("experiment", "logs", 1, "--level", "warning", "--rank", 0, "--rank", 3, master=master)
    assert done.stdout == "".join(entry["message"] for entry in master.logs[0])
    query = next(q for _, p, q, _ in master.asked if p == "/api/v1/trials/1/logs")
    assert query["levels"] == ["LOG_LEVEL_WARNING", "LOG_LEVEL_ERROR", "LOG_LEVEL_CRITICAL"]
    det("experiment", "logs", 1, "--level", "warn", master=master)
    assert master.asked[-1][2]["levels"] == query["levels"]
    assert query["rankIds"] == ["0", "3"]
    searched = det("experiment", "logs", 1, "--search", "x", master=master).stdout.splitlines()
    assert {entry.partition(" | ")[0] for entry in searched} == {"trial 1", "trial 2"}
    assert [q["searchText"] for _, p, q, _ in master.asked[-2:] if p.endswith("/logs")] == [["x"], ["x"]]


def test_the_log_of_a_trial_that_wrote_nothing_says_why(det: Any, master: Any) -> None:
    done = det("trial", "logs", 2, master=master)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "No such lines. Trial 2 is ERROR: exit code 3: ZeroDivisionError\n"


def test_logs_of_several_trials_are_in_order_of_time_each_line_with_its_trial(det: Any, master: Any) -> None:
    told = [[line(1, "a"), line(4, "d")], [line(2, "b"), line(3, "c")]]
    for options, lines in ((), "1 a, 2 b, 2 c, 1 d"), (("--head", 1), "1 a"), (("--tail", 2), "2 c, 1 d"):
        master.logs = [*(list(reversed(some)) if "--tail" in options else some for some in told), []]
        done = det("trial", "logs", "1,2", *options, master=master)
        shown = [(text.split()[1], text.split()[-1]) for text in done.stdout.splitlines()]
        assert ", ".join(" ".join(pair) for pair in shown) == lines, done.stderr
    assert done.stdout.startswith("trial 2 | [2026-11-20T10:00:03")


def test_the_logs_of_all_trials_are_followed_until_the_experiment_ends_and_no_line_comes_twice(
    det: Any, master: Any
) -> None:
    master.trials[0]["state"], master.states = "STATE_ACTIVE", ["ACTIVE", "ACTIVE", "ERROR"]
    late = {**line(5, "e"), "id": "late"}
    rounds = [
        [line(1, "a")],
        [line(2, "b")],
        [line(1, "a"), line(3, "c")],
        [line(2, "b"), None],
        [line(1, "a"), line(3, "c"), late],
    ]
    master.logs = [*rounds, []]
    process = subprocess.Popen(
        [sys.executable, "-m", "dethpc.cli", "-m", master.url, "experiment", "logs", "--all", "-f", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    shown = [process.stdout.readline().split() for _ in range(4)]
    assert [(words[1], words[-1]) for words in shown] == [("1", "a"), ("2", "b"), ("1", "c"), ("1", "e")]
    master.trials[0]["state"] = "STATE_COMPLETED"
    left, said = process.communicate(timeout=LONG_ENOUGH)
    assert (left, process.returncode) == ("", 1) and said.endswith("experiment 1 is ERROR\n")


def test_the_tail_is_printed_in_order(det: Any, master: Any) -> None:
    master.logs = [[line(2, "last"), line(1, "before")]]
    done = det("trial", "logs", 1, "--tail", 2, master=master)
    assert [text.split()[-1] for text in done.stdout.splitlines()] == ["before", "last"]


def test_following_survives_a_broken_stream_and_repeats_no_line(det: Any, master: Any) -> None:
    master.logs = [
        [line(1, "a"), line(2, "b"), None],
        [line(1, "a"), line(2, "b"), line(3, "c"), None],
        [line(3, "c"), line(4, "d")],
    ]
    done = det("trial", "logs", "-f", 1, master=master)
    assert done.returncode == 0, done.stderr
    assert [text.split()[-1] for text in done.stdout.splitlines()] == ["a", "b", "c", "d"]


def test_following_goes_on_when_a_master_ends_the_stream_in_good_order(det: Any, master: Any) -> None:
    master.trials[0]["state"] = "STATE_ACTIVE"
    master.logs = [[line(1, "a")], [line(1, "a"), line(2, "b")], [line(2, "b"), line(3, "c")]]
    process = subprocess.Popen(
        [sys.executable, "-m", "dethpc.cli", "-m", master.url, "trial", "logs", "-f", "1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert [process.stdout.readline().split()[-1] for _ in range(3)] == ["a", "b", "c"]
    master.trials[0]["state"] = "STATE_COMPLETED"
    assert process.stdout.read() == "" and process.wait(LONG_ENOUGH) == 0
    process.stdout.close()


def test_ctrl_c_stops_the_watching_and_says_how_to_go_on(master: Any) -> None:
    master.trials[0]["state"] = "STATE_ACTIVE"
    master.logs = [[line(1, "a")]]
    words = [sys.executable, "-m", "dethpc.cli", "-m", master.url, "trial", "logs", "-f", "1"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=LONG_ENOUGH)
    assert process.returncode == 130
    assert "the trial continues" in said and "det trial logs -f 1" in said and "Traceback" not in said


@pytest.mark.parametrize("ids", ["1", "1,2"])
def test_a_log_is_followed_from_its_last_lines(det: Any, master: Any, ids: str) -> None:
    """A line that is in the log already but not among the last is not taken for a new one, though it is seconds old."""
    master.trials[1]["state"] = "STATE_COMPLETED"
    a, b, c = line(1, "a"), line(2, "b"), line(3, "c")
    other = [[]] if ids == "1,2" else []  # the second trial has written nothing
    master.logs = [[b], [a, b], *other, [a, b, c], []]
    done = det("trial", "logs", "-f", "--tail", 1, ids, master=master)
    assert done.returncode == 0, done.stderr
    assert [text.split()[-1] for text in done.stdout.splitlines()] == ["b", "c"]


@pytest.mark.parametrize("other", [["-f"], ["--tail", 3]])
def test_the_head_of_a_log_is_not_followed(det: Any, master: Any, other: list[Any]) -> None:
    done = det("trial", "logs", 1, "--head", 3, *other, master=master)
    assert done.returncode == 2 and "leave out --follow and --tail" in done.stderr


def test_a_503_is_told_with_its_reason(det: Any, master: Any) -> None:
    why = "the scheduler does not answer: slurmctld is away; try again once `scontrol ping` does"
    master.refuse = (503, {"error": {"code": 14, "reason": "Unavailable", "error": why}})
    done = det("resource-pool", "list", master=master)
    assert done.returncode == 1 and done.stderr.strip() == f"det: error: {why}"


def test_what_is_paused_and_holds_slots_says_so_to_people_and_not_to_scripts(det: Any, master: Any) -> None:
    for noun in (master.experiment, master.trials[0]):
        noun.update(state="STATE_PAUSED", heldSlots=2)
    shown = "State: PAUSED (stopping, holds 2 slots)"
    for words in ("experiment describe 1", "trial describe 1"):
        assert shown in [" ".join(line.split()) for line in det(*words.split(), master=master).stdout.splitlines()]
    for words in ("experiment list", "trial list 1"):
        piped, rows = (det(*words.split(), *more, master=master).stdout.splitlines() for more in ((), ("--csv",)))
        row = next(line.split() for line in piped if line.startswith("1 "))
        assert "PAUSED" in row and "(stopping," not in row
        assert [one["Held slots"] for one in csv.DictReader(rows) if one["State"] == "PAUSED"][0] == "2"
    assert tables.STANDING.shown(output.standing(master.experiment)) == "PAUSED (stopping, holds 2 slots)"
    for state, slots, standing in (
        ("RUNNING", 2, "RUNNING"),
        ("PAUSED", None, "PAUSED"),
        ("PAUSED", 0, "PAUSED (stopping)"),
        ("STOPPING_CANCELED", 1, "STOPPING_CANCELED (stopping, holds 1 slot)"),
    ):
        assert output.standing({"state": f"STATE_{state}", "heldSlots": slots}) == standing


# --- waiting


def test_wait_says_when_what_is_paused_has_given_its_slots_back(capsys: pytest.CaptureFixture[str]) -> None:
    lines = wait._Lines()
    for held in (2, 2, None):
        both = {"id": 1, "state": "STATE_PAUSED", "heldSlots": held, "reason": "paused by its owner"}
        lines([(both, [{**both, "totalBatchesProcessed": 5, "reason": ""}])])
    assert capsys.readouterr().out.splitlines() == [
        "trial 1: PAUSED (stopping, holds 2 slots; 5 steps)",
        "experiment 1: PAUSED (stopping, holds 2 slots; paused by its owner; to resume it: det experiment activate 1)",
        "trial 1: PAUSED (5 steps)",
        "experiment 1: PAUSED (paused by its owner; to resume it: det experiment activate 1)",
    ]


def away(again: int) -> Any:
    """A look that finds no master so many times, then the end."""
    left = [errors.MasterUnreachable("no answer")] * again

    def get(session: Any, experiment_id: int) -> Any:
        if left:
            raise left.pop()
        return {"experiment": {"id": experiment_id, "state": "STATE_COMPLETED", "numTrials": 0}}

    return get


@pytest.mark.parametrize("state, code", [("COMPLETED", 0), ("ERROR", 1), ("CANCELED", 3)])
def test_the_exit_code_of_wait_tells_the_end(det: Any, master: Any, state: str, code: int) -> None:
    master.states = ["ACTIVE", "ACTIVE", f"STOPPING_{state}", state]
    done = det("experiment", "wait", 1, "--polling-interval", 0.1, master=master)
    assert done.returncode == code, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "trial 1: COMPLETED (100 steps, metric 0.25)"
    assert [text.partition(": ")[2] for text in lines if text.startswith("experiment")] == [
        "ACTIVE",
        f"STOPPING_{state}",
        state,
    ]


def test_wait_in_a_pipe_says_the_same_failure_once(capsys: pytest.CaptureFixture[str], master: Any) -> None:
    lines, why = wait._Lines(), "restarted: exit code 1 (KeyError: 'lr')"
    for state in ("RUNNING", "QUEUED", "RUNNING", "QUEUED", "RUNNING", "ERROR"):
        both = [{"id": n, "state": state, "totalBatchesProcessed": 0, "reason": why} for n in (1, 2)]
        lines([({"id": 1, "state": "ACTIVE"}, both)])
    assert capsys.readouterr().out.splitlines() == [
        f"trial 1: RUNNING (0 steps: {why})",
        "trial 2: RUNNING (0 steps: as trial 1)",
        "experiment 1: ACTIVE",
        f"trial 1: QUEUED (0 steps: {why})",
        "trial 2: QUEUED (0 steps: as trial 1)",
        f"trial 1: ERROR (0 steps: {why})",
        "trial 2: ERROR (0 steps: as trial 1)",
    ]


def test_wait_for_several_ends_with_the_last_and_tells_the_worst(det: Any, master: Any) -> None:
    states = {"1": ["CANCELED"], "2": ["ACTIVE", "COMPLETED"]}
    answer = master.answer

    def answered(method: str, path: str, query: Any, body: Any) -> Any:
        number = path.split("/")[4] if path.startswith("/api/v1/experiments/") else ""
        if path == f"/api/v1/experiments/{number}":
            state = states[number].pop(0) if len(states[number]) > 1 else states[number][0]
            return {"experiment": {**master.experiment, "id": int(number), "state": f"STATE_{state}"}, "config": {}}
        return {"trials": []} if path.endswith("/trials") else answer(method, path, query, body)

    master.answer = answered
    done = det("experiment", "wait", "1,2", "--polling-interval", 0.1, master=master)
    assert done.stdout.splitlines() == ["experiment 1: CANCELED", "experiment 2: ACTIVE", "experiment 2: COMPLETED"]
    assert done.returncode == 3, done.stderr
    states["2"] = ["ERROR"]
    assert det("experiment", "wait", 1, 2, "-q", master=master).returncode == 1


def test_wait_on_a_terminal_draws_a_bar_and_a_line_per_trial(environment: dict[str, str], master: Any) -> None:
    master.states, master.search["estimatedEndTime"] = ["ACTIVE", "COMPLETED"], "2026-11-20T10:00:00Z"
    master.experiment["heldSlots"] = 1
    primary, secondary = pty.openpty()
    words = [
        sys.executable,
        "-m",
        "dethpc.cli",
        "-m",
        master.url,
        "experiment",
        "wait",
        "1",
        "--polling-interval",
        "0.1",
    ]
    process = subprocess.Popen(
        words, stdin=secondary, stdout=secondary, stderr=secondary, env={**environment, "TERM": "xterm"}
    )
    os.close(secondary)
    shown = b""
    while True:
        try:
            data = os.read(primary, 65536)
        except OSError:
            break
        if not data:
            break
        shown += data
    os.close(primary)
    assert process.wait(LONG_ENOUGH) == 0
    text = shown.decode()
    assert "1 slot " in text and "about 0s to go" in text
    assert "Experiment 1" in text and "100%" in text and "trial 1" in text and "ZeroDivisionError" in text


# --- a master that is not there


def test_no_answer_is_one_clear_line(det: Any, tmp_path: Path) -> None:
    done = det("-m", "http://127.0.0.1:9", "experiment", "list")
    assert done.returncode == 1
    assert done.stderr.startswith("det: error: the master at http://127.0.0.1:9 does not answer")
    assert "Traceback" not in done.stderr


def test_an_address_that_is_none_is_a_usage_error(det: Any) -> None:
    done = det("-m", "ftp://x?y", "experiment", "list")
    assert done.returncode == 2 and "not a master's address" in done.stderr


@pytest.mark.parametrize("answer", [{}, [], None])
def test_version_says_why_a_master_that_was_named_has_none(det: Any, master: Any, answer: Any) -> None:
    done = det("-m", "http://127.0.0.1:9", "version")
    assert done.returncode == 1
    assert done.stderr.startswith("det: error: the master at http://127.0.0.1:9 does not answer: ")
    master.answer = lambda method, path, query, body: answer
    done = det("version", master=master)
    assert done.returncode == 1 and done.stderr.startswith(f"det: error: {master.url}")
    assert done.stderr.endswith("did not answer as a dethpc master does\n")


@pytest.mark.parametrize(
    "words",
    ["experiment list", "experiment describe 1", "experiment kill 1", "experiment pause 1", "job list", "trial logs 1"],
)
def test_a_server_that_says_nothing_to_everything_is_no_master(det: Any, master: Any, words: str) -> None:
    """Neither an empty list nor an order that was carried out."""
    master.answer = lambda method, path, query, body: {}
    done = det(*words.split(), master=master)
    assert (done.returncode, done.stdout.strip()) == (1, "")
    assert done.stderr == f"det: error: {master.url} did not answer as a dethpc master does\n"


def test_version_starts_no_master(det: Any, tmp_path: Path) -> None:
    done = det("version")
    assert done.returncode == 0 and "does not run" in done.stdout
    assert not (tmp_path / "home").exists()


def test_of_a_progress_bar_the_last_state_is_shown_and_raw_shows_all(det: Any, master: Any) -> None:
    def bar(number: int, percent: int, **more: Any) -> dict[str, Any]:
        text = f"Epoch 1:  {percent}%|###   | {percent}/100 [00:01<00:05, 9it/s]"
        return {**line(number, text), "log": text + "\n", **more}

    def said(number: int, text: str) -> dict[str, Any]:
        return {**line(number, text), "log": text + "\n"}

    told = [
        said(1, "begins"), bar(2, 10), bar(3, 20), bar(4, 30), said(5, "loss 50% lower"), bar(6, 40), bar(7, 50),
        bar(8, 51, rankId=1), bar(9, 60), said(10, "ends"),
    ]  # fmt: skip
    shown = [1, 4, 5, 7, 8, 9, 10]
    master.logs = [told]
    done = det("trial", "logs", "1", master=master)
    assert done.stdout.splitlines() == [told[number - 1]["message"].strip() for number in shown]
    done = det("trial", "logs", "1", "--raw", master=master)
    assert len(done.stdout.splitlines()) == len(told)
    master.logs = [list(reversed(told))]
    done = det("trial", "logs", "1", "--tail", "3", master=master)
    assert done.stdout.splitlines() == [told[number - 1]["message"].strip() for number in (8, 9, 10)]


def test_since_is_a_while_or_a_time(det: Any, master: Any) -> None:
    for text in ("10m", "2026-11-20T11:00:00+01:00"):
        assert det("trial", "logs", "1", "--since", text, master=master).returncode == 0
    first, second = (query["timestampAfter"][0] for _, path, query, _ in master.asked if path.endswith("/logs"))
    assert second == "2026-11-20T10:00:00Z" and first.endswith("Z")
    done = det("trial", "logs", "1", "--since", "yesterday", master=master)
    assert done.returncode == 2 and "'yesterday' is no time; write 10m, 2h, 1d" in done.stderr


def test_a_search_of_an_experiments_log_looks_into_all_trials(det: Any, master: Any) -> None:
    done = det("experiment", "logs", "1", "--search", "step", master=master)
    assert done.returncode == 0, done.stderr
    asked = [path for _, path, _, _ in master.asked if path.endswith("/logs")]
    assert asked == ["/api/v1/trials/1/logs", "/api/v1/trials/2/logs"]
