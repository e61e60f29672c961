"""``det slurm``: from a Slurm job to its trial, and the job in ``det trial describe``."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import USAGE, Answers, Det, run_of_job


def test_a_slurm_job_leads_to_its_trial(det: Det, master: Answers) -> None:
    done = det("slurm", "28.batch", master=master)
    first, last = done.stdout.split("\n\n")
    lines = [" ".join(line.split()) for line in last.splitlines()]
    assert lines[:2] == ["Trial: 31", "Experiment: 16 (digits)"]
    assert "Job: 28 on n0,n1 (RUNNING, 8 slots)" in lines and "Run: /home/ada/.dethpc/runs/16.31.2" in lines
    assert "16.31.1" in first and "Ended" in first and "Ended" not in last
    assert json.loads(det("slurm", "28", "--json", master=master).stdout)["runs"][1]["run"]["id"] == "16.31.2"


@pytest.mark.parametrize(
    ("kind", "name", "experiment", "said"),
    [
        ("CHECKPOINT_GC", "Checkpoint GC", None, "removes the files of deleted checkpoints"),
        ("CHECKPOINT_GC", "Checkpoint GC (Experiment 3)", 3, "removes the files of experiment 3"),
        ("IMAGE_PULL", "Pull of debian", None, "Pull of debian"),
    ],
)
def test_a_job_that_trains_no_trial_says_what_it_does(
    det: Det, master: Answers, kind: str, name: str, experiment: int | None, said: str
) -> None:
    task = {"taskKind": kind, "taskName": name, "trialId": None, "trialState": "", "experimentId": experiment}
    master.of_job = [{**run_of_job("31.1"), **task, "experimentName": ""}]
    lines = [" ".join(line.split()) for line in det("slurm", "28", master=master).stdout.splitlines()]
    assert lines[0] == f"Task: {said}" and lines[1].startswith("Job: 28 on n0,n1")
    assert not [line for line in lines if line.startswith(("Trial:", "Experiment:"))]


@pytest.mark.parametrize("text", ["16.31.1", "n0", "28;29", "../28", "-3"])
def test_what_is_no_job_id_is_answered_with_what_is_one(det: Det, text: str) -> None:
    done = det("slurm", "--", text)
    assert done.returncode == 2 and "a job id of Slurm as squeue shows it, such as 28 or 28_3" in " ".join(
        done.stderr.split()
    )


def test_an_element_of_a_job_array_leads_to_its_trial(det: Det, master: Answers) -> None:
    det("slurm", "28_3.batch", master=master)
    assert any(path.endswith("/scheduler-jobs/28_3") for _, path, *_ in master.asked)
    done = det("slurm", "28_[1-3]")
    assert done.returncode == 2 and "is a job array; name one of its jobs" in " ".join(done.stderr.split())


def test_a_trial_tells_its_last_job_and_its_run_folder(det: Det, master: Answers) -> None:
    master.runs = [run_of_job("1.1", jobId="27")["run"], run_of_job("1.2", slots=1, nodes=["n3"])["run"]]
    said = [" ".join(line.split()) for line in det("trial", "describe", "1", master=master).stdout.splitlines()]
    assert "Job: 28 on n3 (RUNNING, 1 slot)" in said and "Run: /home/ada/.dethpc/runs/16.1.2" in said
    found = json.loads(det("trial", "describe", "1", "--json", master=master).stdout)["runs"]
    assert [run["jobId"] for run in found] == ["27", "28"]
    master.runs = []
    said = [line.split()[0] for line in det("trial", "describe", "1", master=master).stdout.splitlines() if line]
    assert "Job:" not in said and "Run:" not in said, "a trial that was never submitted has neither"


def test_several_trials_are_described_with_one_question_about_what_they_share(det: Det, master: Answers) -> None:
    det("trial", "describe", "1,2", master=master)
    paths = [path for _, path, _, _ in master.asked]
    assert paths.count("/api/v1/experiments/1") <= 1 and paths.count("/api/v1/master") <= 1, paths
    assert paths.count("/api/v1/trials/1") == paths.count("/api/v1/trials/2") == 1, paths


def test_a_trial_and_a_job_tell_what_was_used_of_what_they_asked_for(det: Det, master: Answers) -> None:
    master.runs = [run_of_job("1.2", usage=USAGE)["run"]]
    said = [" ".join(line.split()) for line in det("trial", "describe", "1", master=master).stdout.splitlines()]
    used = "Used: CPU 3% of 8, memory 2.0 GiB of 64.0 GiB (3%), GPU 74% of 2, their memory 51%, in 1h02m"
    assert used in said and "Advice: 3% of the memory was used: ask for less" in said
    nobody_said = {"cpus": None, "cpu": None, "memoryGivenBytes": None, "memory": None, "gpu": None, "advice": []}
    master.runs = [run_of_job("1.2", usage={**USAGE, **nobody_said})["run"]]
    said = [" ".join(line.split()) for line in det("trial", "describe", "1", master=master).stdout.splitlines()]
    assert "Used: CPU 15m00s, memory 2.0 GiB, in 1h02m" in said and not [s for s in said if s.startswith("Advice")]
    assert used in [" ".join(line.split()) for line in det("slurm", "28", master=master).stdout.splitlines()]


def test_a_trial_that_its_search_stopped_is_stopped_to_its_job_too(det: Det, master: Answers) -> None:
    master.of_job = [
        {**run_of_job("31.1"), "trialState": "STATE_COMPLETED", "trialReason": "rung 0 (epochs 1): loss 0.3"}
    ]
    assert ["State:", "STOPPED"] in [line.split() for line in det("slurm", "28", master=master).stdout.splitlines()]
