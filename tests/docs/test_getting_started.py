"""A reader who types what docs/getting-started.md says gets what it says."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import User, make_user, take_down
from tests.waiting import LONG_ENOUGH

PAGE = (Path(__file__).parents[2] / "docs" / "getting-started.md").read_text()


def blocks(mark: str) -> list[tuple[str, str]]:
    """(what the mark says, content) of the code blocks below ``<!-- mark -->``."""
    return re.findall(rf"^<!-- {mark}:? ?(.*?) ?-->\n```\w+\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[User]:
    """Somebody in an empty directory, with ``det`` on PATH and no Slurm."""
    user = make_user(tmp_path, DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="4")
    user.folder = tmp_path / "empty"
    user.folder.mkdir()
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "det").write_text('#!/bin/sh\nexec python3 -m dethpc.cli "$@"\n')
    (tools / "det").chmod(0o755)
    user.env["PATH"] = f"{tools}:{user.env['PATH']}"
    yield user
    take_down(user)


def typed(reader: User, line: str) -> str:
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=reader.folder,
        env=reader.env,
        capture_output=True,
        text=True,
        timeout=LONG_ENOUGH,
        check=False,
    )
    assert done.returncode == 0, f"{line}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_commands_do_what_the_page_says(reader: User) -> None:
    for name, content in blocks("file"):
        (reader.folder / name).write_text(content)
    said = [typed(reader, line[2:]) for _, content in blocks("run") for line in content.splitlines()]
    assert said[0] == "Created experiment 1\n"
    table = said[2].splitlines()
    assert len(table) == 5 and all("COMPLETED" in row for row in table[1:])
    metrics = [float(row.split()[3]) for row in table[1:]]
    assert metrics == sorted(metrics), "the best one on top"
    found = "".join(said)
    for words in (
        "step 100: y =",
        "Paused experiment 2",
        "Activated experiment 2",
        "Checkpoint ",
        "Stopped the master",
    ):
        assert words in found
    steps = [re.findall(r"step (\d+):", reader.det("trial", "logs", trial)) for trial in ("5", "6")]
    assert steps[0][-1] == "100" and len(set(steps[0])) == len(steps[0]), "paused in between, and nothing trained twice"
    assert steps[1] == ["25", "50", "75", "100"], "a new trial, although from another's weights"
    reader.det("master", "down")
