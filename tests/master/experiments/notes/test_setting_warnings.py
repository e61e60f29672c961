from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from dethpc.config.sections.environment import Environment
from dethpc.domain.environment import Environment as ShellEnvironment
from dethpc.domain.states import TaskKind
from dethpc.master.experiments.notes import setting_warnings


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("python: /nowhere/bin/python3", "environment.python: /nowhere/bin/python3 is not on this machine"),
        ("python: /usr/bin/python3", ""),
        (
            "setup: ['module load x', 'source /nowhere/bin/activate']",
            "/nowhere/bin/activate, which it reads, is not on",
        ),
        (
            "setup: ['. /etc/profile', 'source $VENV/bin/activate', 'if true; then']",
            "syntax error: unexpected end of file",
        ),
        ("setup: ['. /etc/profile', 'source ~/$X', 'false']", ""),
    ],
)
def test_what_cannot_work_as_far_as_the_login_node_can_tell_is_told(section: str, told: str) -> None:
    notes = list(setting_warnings.notes(Environment.model_validate(yaml.safe_load(section))))
    assert told in "\n".join(notes) if told else not notes


def test_a_storage_that_is_about_to_be_full_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = {"type": "shared_fs", "host_path": str(tmp_path), "storage_path": "not-made-yet"}
    real = os.statvfs(tmp_path)
    for left, told in ((0.2, False), (0.03, True)):
        found = [real.f_bsize, 4096, 1 << 28, 0, int(left * (1 << 28)), *tuple(real)[5:10]]
        monkeypatch.setattr(os, "statvfs", lambda path, found=found: os.statvfs_result(found))
        assert bool(list(setting_warnings.storage_space(section))) is told
    (words,) = setting_warnings.storage_space(section)
    assert words.startswith(
        f"checkpoint_storage: {tmp_path}/not-made-yet has 30.7 GiB left of 1024.0; det checkpoint prune"
    )


@pytest.mark.parametrize("section", ["{}", "{python: /opt/env/bin/python3}", "{setup: module load jupyter}"])
def test_a_notebook_whose_shell_has_no_jupyterlab_is_told_so_before_it_waits(section: str) -> None:
    environment = Environment.model_validate(yaml.safe_load(section))
    shell = ShellEnvironment.of({}, python="/home/me/env/bin/python3", packages={"torch": "2"})
    notes = list(setting_warnings.of_server(TaskKind.NOTEBOOK, shell, environment))
    assert bool(notes) == (section == "{}")
    assert all("JupyterLab is not installed for /home/me/env/bin/python3" in note for note in notes)
    assert not list(setting_warnings.of_server(TaskKind.COMMAND, shell, environment))
    equipped = ShellEnvironment.of({}, python="/home/me/env/bin/python3", packages={"jupyterlab": "4.4"})
    assert not list(setting_warnings.of_server(TaskKind.NOTEBOOK, equipped, environment))
