"""Who comes from Determined types what was right there, and it works or says what to type instead."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Optional

import click
import pytest
from click.testing import CliRunner, Result

from dethpc import __version__
from dethpc.cli import elsewhere, main, tables

# Run by the Python of the published client: every spelling of every command, and nothing of any master.
ENUMERATE = """
import argparse, itertools, json
from determined.cli import cli, _declarative_argparse as declare
from determined.deploy import cli as deploy

def spellings(parser):
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield [name]
                yield from ([name, *rest] for rest in spellings(inner))

found = []
for described in (cli.all_args_description, [deploy.args_description]):
    parser = cli.make_parser()
    declare.add_args(parser, described)
    found += spellings(parser)
print(json.dumps(found))
"""


def det(*words: str) -> Result:
    return CliRunner().invoke(main, words, prog_name="det")


def here(words: list[str]) -> Optional[click.Command]:
    """The command that ``det WORDS...`` runs; None: there is none."""
    command: click.Command = main
    for word in words:
        if not isinstance(command, click.Group):
            return None
        inner = command.get_command(click.Context(command), word)
        if inner is None:
            return None
        command = inner
    return command


def test_every_command_of_determined_works_or_says_what_to_do_instead(determined_venv: Path) -> None:
    done = subprocess.run(
        [str(determined_venv / "bin" / "python"), "-I", "-W", "ignore", "-c", ENUMERATE],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    spellings = json.loads(done.stdout)
    assert len(spellings) > 300 and ["cmd", "ls"] in spellings and ["deploy", "local", "logs"] in spellings
    silent = []
    for words in spellings:
        if (
            words[-1] == "help" or here(words) is not None or words == ["master", "config", "show"]
        ):  # an argument: see below
            continue
        answer = det(*words)
        if answer.exit_code != 2 or not re.match(r"det: error: dethpc has no 'det .+'\. .+\n$", answer.output):
            silent.append(" ".join(words))
    assert not silent


def test_the_sentences_name_commands_that_are_here() -> None:
    for name, sentence in elsewhere._SENTENCES.items():
        assert here(name.split()) is None, f"det {name} is here now: its sentence can go"
        for named in re.findall(r"\bdet ((?:[a-z-]+ ?)+)", sentence):
            words = named.split()
            if not isinstance(here(words[:1]), click.Group):
                words = words[:1]
            command = here(words[:2])
            if isinstance(command, click.Group) and len(words) > 2:
                command = here(words[:3])
            assert command is not None, f"{name}: det {named}"


@pytest.mark.parametrize("words", [["-v"], ["-V"], ["--version"]])
def test_the_version_is_told_before_the_noun_too(words: list[str]) -> None:
    assert det(*words).output == f"det {__version__}\n"


def test_help_is_a_command_of_every_noun() -> None:
    def says(*words: str) -> str:
        answer = det(*words)
        assert answer.exit_code == 0, answer.output
        return answer.output

    assert says("help") == says("-h")
    assert says("help", "e", "create") == says("experiment", "help", "create") == says("experiment", "create", "-h")
    assert says("e", "help") == says("experiment", "-h")
    for words in (["help", "notebook"], ["notebook", "help"], ["help", "notebook", "start"]):
        answer = det(*words)
        assert answer.exit_code == 2 and "srun --gpus=1 --pty jupyter" in answer.output
    answer = det("help", "version", "x")
    assert answer.exit_code == 2 and "det version has no commands of its own" in answer.output


def test_the_masters_configuration_is_shown_and_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dethpc.cli.master.connect", lambda: None)
    monkeypatch.setattr("dethpc.client.cluster.master_config", lambda session: {"port": 8080})
    assert det("master", "config").output == det("master", "config", "show").output == "port: 8080\n"
    answer = det("master", "config", "set", "--log.level=debug")
    assert answer.exit_code == 2 and "Edit the site file" in answer.output
    answer = det("master", "config", "--jsn")
    assert answer.exit_code == 2 and "--jsn" in answer.output


def test_tables_can_be_had_as_determined_prints_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DET_TABLES", "determined")
    tables.show(tables.plain(["ID", "Name"], [["12", "digits"], ["3", ""]]))
    assert [[cell.strip() for cell in line.split("|")] for line in capsys.readouterr().out.splitlines()] == [
        ["ID", "Name"],
        ["----+--------"],
        ["12", "digits"],
        ["3", ""],
    ]
