"""A reader who types what README.md, docs/getting-started.md and docs/results.md say, from top to bottom, gets what they say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dethpc.deploy import slurm_dev
from tests.e2e.conftest import User, make_user, processes_with
from tests.waiting import LONG_ENOUGH

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[a-z]+)(?:: (?P<name>.*?))? -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```", re.M | re.S
)
_STEP = "        time.sleep(0.01)  # real training takes longer\n"
_HELD = """\
        first = info.trial.experiment_id == 2 and __import__("os").environ["DET_TRIAL_RUN_ID"] == "1"
        while first and step == 60 and not core.preempt.should_preempt():
            time.sleep(0.05)
"""
"""What is to be paused waits for that: on a busy machine it would have trained to its end before anybody has typed so."""
_END = "\x1e"  # the test's own mark between two commands


def blocks(page: str) -> Iterator[re.Match[str]]:
    return _BLOCK.finditer((ROOT / page).read_text())


def commands(page: str) -> list[tuple[str, list[str]]]:
    """Every command of the page, but for those that set the machine up, and the lines that the page shows below it."""
    found: list[tuple[str, list[str]]] = []
    for block in blocks(page):
        if block["kind"] == "console" and block["mark"] != "setup":
            for line in block["text"].splitlines():
                if line.startswith("$ "):
                    found.append((line[2:], []))
                elif line.strip():
                    found[-1][1].append(line)
    return found


def says(printed: str, shown: str) -> bool:
    """Whether a line like the one on the page was printed: there, ``...`` is anything, and so is any width of white space."""
    pattern = r"\s+".join(re.escape(word) for word in shown.split()).replace(r"\.\.\.", ".*")
    return any(re.fullmatch(pattern, line.strip()) for line in printed.splitlines())


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[User]:
    """Somebody in an empty directory with a new home, ``det`` on PATH and no Slurm."""
    user = make_user(tmp_path, DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="4", HOME=str(tmp_path / "new"))
    user.folder = tmp_path / "empty"
    for folder in (user.folder, tmp_path / "new", tmp_path / "bin"):
        folder.mkdir()
    (tmp_path / "bin" / "det").write_text('#!/bin/sh\nexec python3 -m dethpc.cli "$@"\n')
    (tmp_path / "bin" / "det").chmod(0o755)
    user.env["PATH"] = f"{tmp_path}/bin:{user.env['PATH']}"
    del user.env["DETHPC_HOME"]
    yield user
    for conf in (tmp_path / "new").glob("*/slurm-dev"):
        slurm_dev.down(conf)
    for pid in processes_with(f"HOME={tmp_path}/new"):
        os.kill(pid, 9)


def typed(reader: User, page: str) -> dict[str, str]:
    """Type the page in one bash; what each command printed. Raises AssertionError for one that fails or prints something else."""
    todo = commands(page)
    paused = any(line == "det experiment pause 2" for line, _ in todo)
    for block in blocks(page):
        if block["mark"] == "file":
            (reader.folder / block["name"]).write_text(block["text"].replace(_STEP, _STEP + (_HELD if paused else "")))
    if not shutil.which("slurmctld", path=slurm_dev.search_path()):
        todo = [(line, shown) for line, shown in todo if "slurm-dev" not in line and "sinfo" not in line]
    script = ""
    for line, _ in todo:
        if "slurm-dev up" in line:
            script += "unset DETHPC_SCHEDULER\n"
        script += f"{line}\nprintf '{_END}%s{_END}' $?\n"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=reader.folder,
        env=reader.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONG_ENOUGH,
        check=False,
    )
    parts = done.stdout.split(_END)
    answers = {}
    for (line, shown), printed, code in zip(todo, parts[::2], parts[1::2], strict=False):
        assert code == "0", f"$ {line}\n{printed}\nexit code {code}"
        for expected in shown:
            assert says(printed, expected), f"$ {line}\n{printed}\nthe page shows: {expected}"
        answers[line] = printed
    assert len(answers) == len({line for line, _ in todo})
    return answers


def test_the_commands_do_what_the_page_says(reader: User) -> None:
    said = typed(reader, "docs/getting-started.md")
    table = said["det experiment list-trials 1 --sort metric"].splitlines()
    assert len(table) == 5 and all("COMPLETED" in row for row in table[1:])
    metrics = [float(row.split()[3]) for row in table[1:]]
    assert metrics == sorted(metrics), "the best one on top"
    steps = [re.findall(r"step (\d+): y =", reader.det("trial", "logs", trial)) for trial in ("5", "6")]
    assert steps[0][-1] == "100" and len(set(steps[0])) == len(steps[0]), "paused in between, and nothing trained twice"
    assert steps[1] == ["25", "50", "75", "100"], "a new trial, although from another's weights"
    reader.det("master", "down")


def test_the_readme_does_what_it_says(reader: User) -> None:
    said = typed(reader, "README.md")
    table = said["det experiment list-trials 1 --sort metric"].splitlines()
    assert len(table) == 5 and all("COMPLETED" in row for row in table[1:])
    assert "validation_loss" in said["det experiment plot 1"]


def test_results_are_looked_at_as_their_page_says(reader: User) -> None:
    pytest.importorskip("pandas")
    said = typed(reader, "docs/results.md")
    rows = said["det trial list 1 --sort metric"].splitlines()
    assert [row.split()[0] for row in rows[1:]] == ["3", "2", "1"], "the best one first"
    assert len((reader.folder / "reports.csv").read_text().splitlines()) == 1 + 20 + 4
    assert len((reader.folder / "tables" / "workloads.csv").read_text().splitlines()) == 1 + 3 * 24
    reader.det("master", "down")


def test_the_queue_is_as_its_page_says(reader: User) -> None:
    outputs = typed(reader, "docs/queue.md")
    assert [row.split()[1] for row in outputs["det job list"].splitlines()[1:]]
    assert len(outputs["det job list"].splitlines()) == 4
    assert not any(row["state"] == "STATE_ACTIVE" for row in reader.json("experiment", "list"))
    reader.det("master", "down")


def test_data_are_prepared_as_their_page_says(reader: User) -> None:
    outputs = typed(reader, "docs/preparing-data.md")
    assert re.search(r"loss.*6", outputs["det trial describe 1"])
    reader.det("master", "down")


def test_a_page_that_shows_something_else_is_found() -> None:
    assert says("noise\nCreated experiment 1\n", "Created experiment 1")
    assert not says("Created experiment 2\n", "Created experiment 1")
    assert says("a   b\nStopped the master (pid 17)", "Stopped the master (pid ...)") and not says("", "x")
