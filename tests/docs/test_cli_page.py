"""docs/cli.md has every command and every option, and none that is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from dethpc.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def commands(command: click.Command, path: str = "det") -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, f"{path} {name}")
    elif not command.hidden:
        yield path, command


COMMANDS = dict(commands(main))


def sections() -> dict[str, str]:
    """Command -> the text below its heading; a heading goes on with the command's arguments."""
    found = re.findall(r"^### `(det [^`]*)`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return {re.split(r" (?=[A-Z\[{])", usage)[0]: text for usage, text in found}


def test_every_command_has_its_section() -> None:
    known = set(sections())
    assert not (missing := set(COMMANDS) - known), f"docs/cli.md has no section for {missing}"
    assert not (stale := known - set(COMMANDS)), f"docs/cli.md has a section for {stale}, which is not there"


@pytest.mark.parametrize("path", COMMANDS)
def test_a_heading_has_the_arguments_as_help_shows_them(path: str) -> None:
    context = click.Context(COMMANDS[path])
    pieces = [piece for parameter in COMMANDS[path].params for piece in parameter.get_usage_pieces(context)]
    assert f"### `{' '.join([path, *pieces])}`" in PAGE.splitlines()


@pytest.mark.parametrize("path", COMMANDS)
def test_every_option_is_in_its_table(path: str) -> None:
    options = {name for p in COMMANDS[path].params if isinstance(p, click.Option) and not p.hidden for name in p.opts}
    rows = re.findall(r"^\| (`-.*?) \| ", sections().get(path, ""), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(--?[a-z][\w-]*)`", row)} == options


def test_a_row_of_options_has_its_two_cells_and_no_backslash_but_before_a_bar() -> None:
    """A bar that is not escaped begins another cell, even within backquotes."""
    rows = re.findall(r"^\| `-.*$", PAGE, re.MULTILINE)
    assert (
        rows and [row for row in rows if len(re.findall(r"(?<!\\)\|", row)) != 3 or re.search(r"\\(?!\|)", row)] == []
    )


@pytest.mark.parametrize("path", ["det checkpoint audit", "det master check"])
def test_json_of_a_commands_own_is_not_called_that_of_the_rest_api(path: str) -> None:
    helps = [p.help for p in COMMANDS[path].params if isinstance(p, click.Option) and "--json" in p.opts]
    assert helps == ["Print what was found as JSON."] and "REST" not in sections()[path]


def test_checkpoint_is_told_in_the_same_words_by_det_and_by_itself() -> None:
    told = main.lazy["checkpoint"][1]  # type: ignore[attr-defined]
    group = main.get_command(click.Context(main), "checkpoint")
    assert group is not None and group.help == told and f"\n{told} " in PAGE


def test_options_before_the_noun_and_short_forms_are_told() -> None:
    before = PAGE.partition("\n## ")[0]
    for parameter in main.params:
        for name in parameter.opts:
            assert f"`{name}`" in before
    for short, noun in main.aliases.items():  # type: ignore[attr-defined]
        if len(short) < 3:
            assert re.search(
                rf"`(det )?{short}`[^,;]* {noun}|`{short}` is `{noun}`|`det {short}` is `det {noun}`", before
            ), short
