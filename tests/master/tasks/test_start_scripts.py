"""The shell lines that start what a task serves."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dethpc.domain.states import TaskKind
from dethpc.master.tasks.interactive import StartOptions, start_script

KINDS = (TaskKind.NOTEBOOK, TaskKind.TENSORBOARD, TaskKind.SHELL)
FULL = StartOptions(1800.5, "activity", "", ["--samples_per_plugin", "images=3", "it's"])


def started(tmp_path: Path, kind: TaskKind, options: StartOptions) -> list[str]:
    """The argument vector of the Python that the script starts."""
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "DET_TASK_ID": "some-task", "DETHPC_TASK_DIR": "/home of/some-task"}
    return subprocess.run(
        start_script(kind, options), env=env, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_options_reach_the_program_unharmed(tmp_path: Path) -> None:
    notebook = ["-m", "dethpc.exec.notebook", "--path", "/proxy/some-task/"]
    own = ["--folder", "/home of/some-task"]
    assert started(tmp_path, TaskKind.NOTEBOOK, StartOptions()) == [*notebook, *own]
    idle = ["--idle-timeout", "1800.5"]
    assert started(tmp_path, TaskKind.NOTEBOOK, FULL) == [*notebook, *own, *idle, "--idle-type", "activity"]
    assert started(tmp_path, TaskKind.NOTEBOOK, StartOptions(work_dir="/elsewhere")) == notebook
    tensorboard = ["-m", "dethpc.exec.tensorboard", "--path", "/proxy/some-task/"]
    assert started(tmp_path, TaskKind.TENSORBOARD, StartOptions()) == tensorboard
    assert started(tmp_path, TaskKind.TENSORBOARD, FULL) == [*tensorboard, *idle, "--", *FULL.arguments]
    assert started(tmp_path, TaskKind.SHELL, FULL) == ["-m", "dethpc.exec.sshd", *idle]


@pytest.mark.parametrize("kind", KINDS)
def test_a_site_replaces_them(tmp_path: Path, kind: TaskKind) -> None:
    name = f"{kind.value.lower()}.sh.j2"
    (tmp_path / name).write_text("module load jupyter\necho {{ idle_timeout }}\n")
    assert start_script(kind, StartOptions(7), tmp_path)[-1] == "module load jupyter\necho 7"
