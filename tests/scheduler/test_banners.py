"""Sites put scripts round Slurm's commands that print lines of their own: nothing that is read changes by them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dethpc.deploy.slurm_dev import Cluster
from dethpc.domain.ports import ArrayRequest, JobRequest, JobState
from dethpc.errors import SchedulerUnavailable, SubmitRejected
from dethpc.scheduler.slurm.commands import SlurmCommands
from tests.waiting import wait_until

COMMANDS = ("sbatch", "squeue", "sinfo", "sacct", "scontrol", "scancel")
HOSTILE = (
    "NOTE: scheduled maintenance; error: Invalid job id specified; Socket timed out on send/recv operation",
    "4711",
    "4712;cluster",
    "JOBID STATE REASON | RUNNING | COMPLETED |",
    "JobId = 4711   MessageTimeout = 1 sec",
    "No such job: 57 | CANCELLED by 0",
    "",
)


def wrap(folder: Path, command: str, stream: str, position: str) -> str:
    """A PATH on which this command greets."""
    folder.mkdir(exist_ok=True)
    quoted = " ".join(f"'{line}'" for line in HOSTILE)
    greet = f"printf '%s\\n' {quoted} >&{1 if stream == 'stdout' else 2}"
    call = f'{shutil.which(command)} "$@"'
    body = {
        "before": f"{greet}\nexec {call}\n",
        "after": f"{call}\ncode=$?\n{greet}\nexit $code\n",
        "both": f"{greet}\n{call}\ncode=$?\n{greet}\nexit $code\n",
        "same line": f"printf 'Welcome! ' >&{1 if stream == 'stdout' else 2}\nexec {call}\n",
        "exit code lost": f"{call}\n{greet}\nexit 0\n",
    }[position]
    file = folder / command
    file.write_text(f"#!/bin/bash\n{body}")
    file.chmod(0o755)
    return str(folder)


def request(folder: Path, body: str = "true", *options: str) -> JobRequest:
    script = folder / "job.sbatch"
    lines = [f"#SBATCH {option}" for option in ("--output=/dev/null", *options)]
    script.write_text("\n".join(["#!/bin/bash", *lines, body]) + "\n")
    return JobRequest("1.1.1", "a", script, folder, 1, {"PATH": os.environ["PATH"]})


@pytest.fixture(scope="module")
def quiet(slurm_accounting: Cluster) -> SlurmCommands:
    return SlurmCommands(environment={**os.environ, **slurm_accounting.env})


@pytest.fixture(params=["before", "after", "both", "same line", "exit code lost"])
def position(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["stdout", "stderr"])
def noisy(
    request: pytest.FixtureRequest, slurm_accounting: Cluster, tmp_path: Path, position: str
) -> Iterator[SlurmCommands]:
    for command in COMMANDS:
        folder = wrap(tmp_path / "bin", command, request.param, position)
    path = f"{folder}:{slurm_accounting.env['PATH']}"
    yield SlurmCommands(environment={**os.environ, **slurm_accounting.env, "PATH": path})


def test_a_job_is_submitted_seen_ordered_and_cancelled(
    noisy: SlurmCommands, quiet: SlurmCommands, tmp_path: Path
) -> None:
    name = f"n{time.time_ns()}"
    job_id = noisy.submit(request(tmp_path, "sleep 1000", f"--job-name={name}", "--begin=now+1hour"))
    try:
        assert quiet.jobs()[job_id].name == name
        # Slurm may forget jobs that have ended between the two.
        wait_until(lambda: noisy.jobs().keys() == quiet.jobs().keys())
        assert noisy.jobs()[job_id] == quiet.jobs()[job_id]
        assert [record.job_id for record in noisy.find([name])] == [job_id]
        assert [job.job_id for job in noisy.queue("main")] == [job.job_id for job in quiet.queue("main")]
        noisy.nice({job_id: 7})
        wait_until(lambda: quiet.jobs()[job_id].nice == 7)
        noisy.start_now([job_id])
        wait_until(lambda: noisy.jobs()[job_id].state is JobState.RUNNING)
        assert noisy.records([job_id, "987654"]).keys() == {job_id}
    finally:
        noisy.cancel([job_id, "987654"])
    wait_until(lambda: (r := noisy.records([job_id]).get(job_id)) and r.state is JobState.CANCELLED)
    noisy.cancel([job_id])  # it is over


def test_the_cluster_is_described_alike(noisy: SlurmCommands, quiet: SlurmCommands) -> None:
    assert (noisy.pools(), noisy.nodes()) == (quiet.pools(), quiet.nodes())
    assert {name: value for name, value in noisy.config.items() if name != "BOOT_TIME"} == {
        name: value for name, value in quiet.config.items() if name != "BOOT_TIME"
    }
    assert noisy.has_accounting and noisy.settle == quiet.settle
    assert noisy.records(["987654"]) == {} and noisy.element("987654") is None


def test_the_elements_of_an_array_are_told_apart(noisy: SlurmCommands, quiet: SlurmCommands, tmp_path: Path) -> None:
    like = request(tmp_path, "sleep 1000", "--begin=now+1hour")
    ids = noisy.submit_array(ArrayRequest("a", like.script, tmp_path, [like] * 3))
    try:
        assert set(ids) <= noisy.jobs().keys()
        noisy.cancel([ids[1]])
        wait_until(lambda: (r := noisy.records(ids)[ids[1]]).state is JobState.CANCELLED and r)
    finally:
        quiet.cancel(ids)


def test_a_refusal_is_slurms(noisy: SlurmCommands, tmp_path: Path) -> None:
    with pytest.raises(SubmitRejected, match="Invalid license specification"):
        noisy.submit(request(tmp_path, "true", "--licenses=nosuch"))
    with pytest.raises(SubmitRejected, match="invalid partition specified: nowhere"):
        noisy.submit(request(tmp_path, "true", "--partition=nowhere"))


@pytest.mark.parametrize("command", ["squeue", "sinfo", "sacct", "scontrol"])
@pytest.mark.parametrize("body", ["echo 'out of service: 0 jobs'", "exit 0", '{} "$@" | head -c 20'])
def test_an_answer_that_is_not_slurms_is_never_an_empty_one(
    slurm_accounting: Cluster, quiet: SlurmCommands, tmp_path: Path, command: str, body: str
) -> None:
    (tmp_path / command).write_text(f"#!/bin/bash\n{body.format(shutil.which(command))}\n")
    (tmp_path / command).chmod(0o755)
    path = f"{tmp_path}:{slurm_accounting.env['PATH']}"
    broken = SlurmCommands(environment={**os.environ, **slurm_accounting.env, "PATH": path})
    questions = {
        "squeue": [broken.jobs, lambda: broken.queue("main")],
        "sinfo": [broken.pools, broken.nodes],
        "sacct": [lambda: broken.records(["1"]), lambda: broken.find(["x"])],
        "scontrol": [lambda: broken.config, lambda: broken.records(["987654"])],
    }[command]
    for question in questions:
        with pytest.raises(SchedulerUnavailable, match="cannot be read|cut off|is empty|exit code"):
            question()
