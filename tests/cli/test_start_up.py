"""What ``det`` does before it talks to anybody."""

from __future__ import annotations

import getpass
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from dethpc.cli import main, master_process
from tests.cli.conftest import Answers
from tests.waiting import LONG_ENOUGH

HEAVY = (
    "rich",
    "yaml",
    "pydantic",
    "requests",
    "fastapi",
    "sqlalchemy",
    "pathspec",
    "http.client",
    "dethpc.client",
    "dethpc.config",
)


def every_command(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path[-1] if path else "det")
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            found += every_command(child, (*path, name))
    return found


@pytest.mark.parametrize(
    "words", [["--help"], ["experiment", "--help"], ["experiment", "create", "--help"], ["trial", "-h"]]
)
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys\nfrom dethpc.cli import main\n"
        f"try: main({words!r})\nexcept SystemExit as end: assert not end.code\n"
        f"print('LOADED', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED []"


def test_what_a_command_imports_is_not_looked_through_for_garbage() -> None:
    code = (
        "import gc, dethpc\n"  # which comes first, whatever is imported
        "rounds = lambda: sum(each['collections'] for each in gc.get_stats())\n"
        "before = rounds()\n"
        "import dethpc.cli\n"
        "print(rounds() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("0", "1"), "the first may be due before dethpc.cli can say that none is wanted"


NOT_FOR_THIS = (
    *(name for name in HEAVY if name not in ("dethpc.client", "http.client")),  # http.client brings email and ssl
    "encodings.idna",
    "shutil",
    "lzma",
    "difflib",
    "tempfile",
    "dataclasses",
    "getpass",
    "subprocess",
    "dethpc.domain.context_files",
)
NOT_FOR_THIS += ("dethpc.domain.environment", "dethpc.rundir.layout", "dethpc.context")


@pytest.mark.parametrize(
    "words, requests",
    [
        ("experiment list", 2),  # who one is at another's master; at the own one nobody asks
        ("experiment kill 1", 2),  # {} is an answer that a server of any kind might give: which it is
        ("experiment list-trials 1", 2),
        ("experiment list-checkpoints 1", 1),
        ("experiment describe 1", 4),
        ("experiment logs --tail 10 1", 2),
        ("trial describe 1", 5),
        ("trial logs --tail 10 1", 1),
        ("job list", 1),
        ("resource-pool list", 1),
        ("agent list", 1),
        ("slot list", 1),
        ("master info", 2),
        ("user whoami", 1),
    ],
)
def test_a_small_command_asks_little_and_loads_little(
    words: str, requests: int, master: Answers, environment: dict[str, str]
) -> None:
    """It takes as long as what it imports and asks for; a person waits for it hundreds of times a day."""
    code = (
        "import sys\nfrom dethpc.cli import main\n"
        f"try: main({words.split()!r})\nexcept SystemExit as end: assert not end.code, end.code\n"
        f"print('LOADED', [name for name in {NOT_FOR_THIS!r} if name in sys.modules])"
    )
    master.logs = [
        [{"id": "1", "timestamp": "2026-11-20T10:00:01Z", "log": "hello", "message": "hello", "level": "INFO"}]
    ]
    env = {**environment, "DET_MASTER": master.url}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.splitlines()[-1] == "LOADED []"
    assert len(master.asked) <= requests, master.asked


def test_every_command_and_option_has_help() -> None:
    commands = every_command(main)
    assert len(commands) > 40
    for path, command in commands:
        assert command.help and command.help.strip()[0].isupper(), path
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, (path, parameter.name)


@pytest.mark.parametrize(
    "words, full",
    [
        ("e ls", "experiment list"),
        ("exp list", "experiment list"),
        ("e lt", "experiment list-trials"),
        ("e lc", "experiment list-checkpoints"),
        ("e unpause", "experiment activate"),
        ("t logs", "trial logs"),
        ("c download", "checkpoint download"),
        ("rp ls", "resource-pool list"),
        ("s ls", "slot list"),
        ("a ls", "agent list"),
    ],
)
def test_determineds_short_names_work(words: str, full: str) -> None:
    result = CliRunner().invoke(main, [*words.split(), "--help"])
    assert result.exit_code == 0
    assert f"{full} [OPTIONS]" in result.output


@pytest.mark.parametrize(
    "words, suggestion",
    [
        (["experimnt"], "Did you mean 'experiment'?"),
        (["experiment", "lst"], "'list'"),
        (["experiment", "create", "--folow", "x"], "--follow"),
        (["master", "start"], "Start your master with: det master up"),
        (["logs", "1"], "Did you mean 'det experiment logs' or 'det trial logs' or "),
        (["create"], "Did you mean 'det experiment create'"),
        (["ls"], "Did you mean 'det experiment list' or 'det trial list' or "),
        (["ps"], "dethpc has no 'det ps'. det experiment list shows experiments"),
        (["submit", "c.yaml"], "det experiment create CONFIG CONTEXT_DIR"),
        (["experiment", "set", "max-slots", "1", "-5"], "a negative number is not allowed here"),
    ],
)
def test_a_misspelt_word_is_answered_with_the_likely_one(words: list[str], suggestion: str) -> None:
    result = CliRunner().invoke(main, words, prog_name="det")
    assert result.exit_code == 2
    assert suggestion in result.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_det(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert "_DET_COMPLETE" in result.output


def test_completion_completes_nouns_and_verbs() -> None:
    def complete(words: str, cword: int) -> list[str]:
        env = {"_DET_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(cword)}
        result: Any = CliRunner().invoke(main, [], env=env, prog_name="det", complete_var="_DET_COMPLETE")
        return [line.partition(",")[2] for line in result.output.splitlines()]

    assert complete("det exp", 1) == ["experiment"]
    assert complete("det experiment list-", 2) == ["list-trials", "list-checkpoints"]


def test_acting_as_another_user_needs_a_login_of_that_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DET_DEBUG_CONFIG_PATH", str(tmp_path))
    result = CliRunner().invoke(main, ["-m", "http://127.0.0.1:1", "-u", "bob", "experiment", "list"])
    assert result.exit_code == 1
    assert "log in first: det -m http://127.0.0.1:1 user login bob" in result.output
    assert result.output.count("user login") == 1


def test_acting_as_oneself_is_what_a_command_does_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_USER", getpass.getuser())
    result = CliRunner().invoke(main, ["-m", "http://127.0.0.1:1", "experiment", "list"])
    assert "does not answer" in result.output


def test_a_master_finds_the_site_configuration_that_was_named_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DETHPC_SITE_CONFIG", "site.yaml")
    assert master_process.environment()["DETHPC_SITE_CONFIG"] == str(tmp_path / "site.yaml")


def test_an_interrupt_while_det_is_being_imported_ends_it_without_a_traceback() -> None:
    program = "import os, signal\nimport dethpc.det\nos.kill(os.getpid(), signal.SIGINT)\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LONG_ENOUGH)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
    program = "import dethpc.det, signal\nsignal_before = signal.getsignal(signal.SIGINT)\ndethpc.det.main()\n"
    done = subprocess.run(
        [sys.executable, "-c", program, "version"], capture_output=True, text=True, timeout=LONG_ENOUGH
    )
    assert done.stdout.startswith("det: ")
