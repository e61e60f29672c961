"""Configurations of commands and other tasks without a trial."""

from __future__ import annotations

from typing import Any

import pytest

from dethpc.config import task
from dethpc.config.task import LoadedTask
from dethpc.errors import ConfigError

POOL = {"resources": {"resource_pool": "main"}}


def load(text: str) -> LoadedTask:
    return task.load(text, defaults=POOL)


def messages(text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load(text)
    return str(raised.value)


def test_a_command_needs_an_entrypoint_alone() -> None:
    config = load("entrypoint: [ls, -l]").config
    assert (config.resources.slots, config.resources.resource_pool) == (1, "main")
    job = config.of_job()
    assert (job.entrypoint, job.resources.slots_per_trial, job.checkpoint_storage) == (["ls", "-l"], 1, None)


@pytest.mark.parametrize(
    ("entrypoint", "argv"),
    [
        ("'echo $HOME && ls'", "echo $HOME && ls"),
        ("['echo $HOME && ls']", "echo $HOME && ls"),
        ("[python3, -m, http.server]", ["python3", "-m", "http.server"]),
        ("'module:Name'", ["/bin/sh", "-c", "module:Name"]),
    ],
)
def test_a_text_and_a_list_of_one_are_lines_of_the_shell(entrypoint: str, argv: Any) -> None:
    assert load(f"entrypoint: {entrypoint}").config.of_job().entrypoint == argv


def test_resources_mounts_and_variables_are_those_of_its_job() -> None:
    job = load(
        """
        description: probe
        entrypoint: ls
        resources: {slots: 4, priority: 3}
        environment: {environment_variables: [A=1]}
        bind_mounts: [{host_path: /data, container_path: /data}]
        slurm: {sbatch_args: [--time=10]}
        """
    ).config.of_job()
    assert (job.name, job.resources.slots_per_trial, job.resources.priority) == ("probe", 4, 3)
    assert job.environment.variables("cpu") == {"A": "1"}
    assert job.slurm.sbatch_args == ["--time=10"] and job.bind_mounts[0].host_path == "/data"


def test_a_mistake_is_told_with_its_line_and_the_likely_name() -> None:
    message = messages("entrypoint: ls\nresources:\n  slot: 1\n")
    assert "config:3: resources.slot" in message and "'slots'" in message
    assert "entrypoint" in messages("resources: {slots: 1}")
    assert "of experiments" in messages("entrypoint: ls\nhyperparameters: {lr: 1}")


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1800), ("1h30m", 5400), ("90s", 90), ("1.5h", 5400), ("45", 45)])
def test_an_idle_time_is_a_duration(text: str, seconds: float) -> None:
    timeout = load(f"entrypoint: ls\nidle_timeout: {text}").config.idle_timeout
    assert timeout is not None and task.seconds(timeout) == seconds


@pytest.mark.parametrize("text", ["soon", "-3m", "''", "true", "1d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    assert "a duration such as 30m" in messages(f"entrypoint: ls\nidle_timeout: {text}")


def test_what_its_job_cannot_have_is_told_by_the_names_of_tasks() -> None:
    error = ConfigError([task.Problem("resources.slots_per_trial", "slots_per_trial is too much")])
    assert "slots_per_trial" not in str(task.in_words_of_tasks(error))
