"""Who comes from Determined types what was right there, and it works or says what to type instead."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Optional

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from dethpc import __version__
from dethpc.cli import from_determined, main, tables
from tests.cli.conftest import JOB

# Run by the Python of the published client: every spelling of every command with its options, and nothing of any master.
ENUMERATE = """
import argparse, itertools, json
from determined.cli import cli, _declarative_argparse as declare
from determined.deploy import cli as deploy

def spellings(parser):
    yield [], [name for action in parser._actions for name in action.option_strings]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from (([name, *rest], options) for rest, options in spellings(inner))

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


@pytest.fixture(scope="module")
def published(determined_venv: Path) -> list[tuple[list[str], list[str]]]:
    """Each command of Determined's and its options."""
    done = subprocess.run(
        [str(determined_venv / "bin" / "python"), "-I", "-W", "ignore", "-c", ENUMERATE],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return [(words, options) for words, options in json.loads(done.stdout)]


def test_every_command_of_determined_works_or_says_what_to_do_instead(
    published: list[tuple[list[str], list[str]]],
) -> None:
    spellings = [words for words, _ in published if words]
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


def test_every_option_of_determined_works_or_says_what_to_do_instead(
    published: list[tuple[list[str], list[str]]],
) -> None:
    asked, silent = 0, []
    for words, options in published:
        command = here(words)
        if command is None or words[-1:] == ["help"]:
            continue
        ours = {name for p in command.params if isinstance(p, click.Option) for name in p.opts} | {"-h", "--help"}
        for option in set(options) - ours:
            asked += 1
            answer = det(*words, option, "x")
            said = rf"det: error: dethpc's 'det .+' has no {option}\. .+\n"
            if answer.exit_code != 2 or not re.fullmatch(said, answer.output):
                silent.append(" ".join([*words, option]))
    assert asked > 20 and not silent


def test_determineds_options_of_lists_do_what_they_did_there(master: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(path: str, *words: str) -> Any:
        master.asked.clear()
        answer = det("-m", master.url, *words)
        assert answer.exit_code == 0, answer.output
        return answer.output, next((q for _, p, q, _ in master.asked if p == path), None)

    said, query = asked("/api/v1/experiments", "e", "ls", "--pages", "all", "--show_project")
    assert query["limit"] == ["-1"] and "Workspace" in said.splitlines()[0]
    assert asked("/api/v1/experiments", "e", "ls", "--pages", "1")[1]["limit"] == ["200"]
    assert asked("/api/v1/trials/1/logs", "t", "logs", "1", "--source", "slurm")[1]["sources"] == ["slurm"]
    assert yaml.safe_load(asked("", "job", "list", "--yaml")[0])["jobs"][0]["name"] == "digits"
    assert yaml.safe_load(asked("", "master", "info", "--yaml")[0])["clusterId"] == "c-1"

    monkeypatch.setattr(
        "dethpc.client.nouns.jobs.queue", lambda *_, **__: ([{**JOB, "jobId": c * 9} for c in "abcd"], "priority")
    )
    queue = asked("", "job", "list", "--reverse", "--offset", "1", "--limit", "2", "--pages", "all", "--table")[0]
    assert [line.split()[1] for line in queue.splitlines()[1:]] == ["cccccccc", "bbbbbbbb"]
    reports = [{"validation": {"totalBatches": n, "metrics": {"avgMetrics": {"loss": n}}}} for n in range(5)]
    monkeypatch.setattr("dethpc.client.nouns.trials.workloads", lambda *_, **__: iter(reports))
    told = asked("", "t", "describe", "1", "--offset", "1", "--limit", "2", "--json")[0]
    assert json.loads(told)["workloads"] == reports[1:3]


def test_a_checkpoint_to_download_is_chosen_by_its_uuid_or_by_any_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [
        {
            "uuid": name,
            "state": "STATE_COMPLETED",
            "training": {"searcherMetric": accuracy, "validationMetrics": {"avgMetrics": {"loss": loss}}},
        }
        for name, loss, accuracy in (("a", 3.0, 0.5), ("b", 1.0, 0.7), ("c", "NaN", None))
    ]
    got: list[str] = []
    orders: list[bool] = []
    monkeypatch.setattr("dethpc.cli.nouns.trial.connect", lambda: None)
    ordered = {False: kept, True: [kept[2], kept[1], kept[0]]}

    def checkpoints(*_: Any, best_first: bool = False) -> list[Any]:
        orders.append(best_first)
        return [{**one, "reads": len(orders)} for one in ordered[best_first]]  # a field that changes meanwhile

    monkeypatch.setattr("dethpc.client.nouns.trials.checkpoints", checkpoints)
    monkeypatch.setattr("dethpc.cli.nouns.checkpoint.download_checkpoint", lambda session, uuid, *_: got.append(uuid))
    by_loss = ["--best", "--sort-by", "loss", "--smaller-is-better"]
    for words in (["--uuid", "a"], [*by_loss, "true"], [*by_loss, "false"], ["--latest"], ["--best"]):
        assert det("t", "download", "1", *words).exit_code == 0
    assert got == ["a", "b", "a", "c", "b"] and orders == [False, False, False, False, True]
    assert "no checkpoint x to download" in det("t", "download", "1", "--uuid", "x").output
    for options in (["--best", "--latest"], ["--latest", "--uuid", "a"], ["--uuid", "a", "--best"]):
        refused = det("t", "download", "1", *options)
        assert refused.exit_code == 2 and "Name one of --best, --latest and --uuid" in refused.output
    unranked = [{**one, "training": {**one["training"], "searcherMetric": None}} for one in kept]
    monkeypatch.setitem(ordered, True, unranked)
    assert "with the searcher's metric; reported: loss. Name one" in det("t", "download", "1", "--best").output
    kept.append({"uuid": "gone", "state": "STATE_DELETED", "reason": "removed by the checkpoint policy"})
    refused = det("t", "download", "1", "--uuid", "gone").output
    assert "(one is DELETED: removed by the checkpoint policy)" in " ".join(refused.split())
    assert "a number 'auc'; reported: loss" in det("t", "download", "1", *by_loss[:2], "auc", *by_loss[3:], "1").output
    assert "needs --best and --smaller-is-better" in det("t", "download", "1", "--best", "--sort-by", "loss").output


def test_a_misspelt_option_is_none_of_determineds() -> None:
    answer = det("experiment", "create", "--publsh", "8080")
    assert answer.exit_code == 2 and "No such option" in answer.output and "dethpc's" not in answer.output


def test_the_sentences_name_commands_that_are_here() -> None:
    for name in [*from_determined._SENTENCES, *from_determined._HABITS]:
        assert here(name.split()) is None, f"det {name} is here now: its sentence can go"
    for name in from_determined._OPTIONS:
        *words, option = name.split()
        command = here(words)
        assert command is not None
        assert option not in [o for p in command.params for o in p.opts], f"{name} is here now: its sentence can go"
    for name, sentence in [
        *from_determined._SENTENCES.items(),
        *from_determined._HABITS.items(),
        *from_determined._OPTIONS.items(),
    ]:
        for named in re.findall(r"\bdet ((?:[a-z-]+ ?)+)", sentence):
            words = named.split()
            if not isinstance(here(words[:1]), click.Group):
                words = words[:1]
            command = here(words[:2])
            if isinstance(command, click.Group) and len(words) > 2:
                command = here(words[:3])
            assert command is not None, f"{name}: det {named}"


@pytest.mark.parametrize(
    ("habit", "command"),
    [
        ("master stop", "master down"),
        ("e stop", "experiment cancel ID"),
        ("t cancel", "trial kill ID"),
        ("j rm", "experiment kill"),
    ],
)
def test_a_habit_of_other_tools_is_answered_with_what_to_type(habit: str, command: str) -> None:
    answer = det(*habit.split())
    assert answer.exit_code == 2 and f"det {command}" in answer.output and "There are:" not in answer.output


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
    assert says("help", "notebook") == says("notebook", "help") and says("help", "notebook", "start")
    answer = det("help", "version", "x")
    assert answer.exit_code == 2 and "det version has no commands of its own" in answer.output


def test_the_masters_configuration_is_shown_and_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dethpc.cli.nouns.master.connect", lambda: None)
    monkeypatch.setattr("dethpc.client.nouns.cluster.master_config", lambda session: {"port": 8080})
    assert det("master", "config").output == det("master", "config", "show").output == "port: 8080\n"
    answer = det("master", "config", "set", "--log.level=debug")
    assert answer.exit_code == 2 and "Edit the site file" in answer.output
    answer = det("master", "config", "--jsn")
    assert answer.exit_code == 2 and "--jsn" in answer.output


def test_tables_can_be_had_as_determined_prints_them(
    determined_venv: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Letter for letter."""
    headers = ["ID", "Name", "Progress", "#", "Empty", "Best", "A rather long heading"]
    rows = [["12", "digits", "50%", "1", "", "3.5", "x"], ["3", "", "-", "10", "", "10", "2026-11-20T10:00:00+00:00"]]
    script = "import json, sys; from determined.cli import render; render.tabulate_or_csv(*json.load(sys.stdin), False)"
    theirs = subprocess.run(
        [str(determined_venv / "bin" / "python"), "-I", "-W", "ignore", "-c", script],
        input=json.dumps([headers, rows]),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    monkeypatch.setenv("DET_TABLES", "determined")
    tables.show(tables.plain(headers, rows))
    assert capsys.readouterr().out == theirs.stdout
