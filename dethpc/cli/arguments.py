"""What commands share: ``ID`` is one experiment, ``IDS`` are several, ``listing`` is what every list can be asked."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from dethpc.cli import output, tables

ID = click.argument("experiment_id", metavar="ID", type=int)


def _ids(value: str) -> list[int]:
    """``3`` or ``3,5,7``."""
    try:
        return [int(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"found {value!r}; allowed: experiment ids, such as 3 or 3,5,7") from None


IDS = click.argument("ids", metavar="ID...", type=_ids, nargs=-1, required=True)


def _words(context: click.Context, parameter: click.Parameter, text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def listing(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that prints a table; the command takes them as ``wanted``."""

    @functools.wraps(command)
    def packed(
        *args: Any,
        wide: bool = False,
        columns: list[str] = [],  # noqa: B006 - it is only read
        sort: str = "",
        as_csv: bool = False,
        as_json: bool = False,
        **rest: Any,
    ) -> Any:
        return command(*args, wanted=tables.Wanted(wide, columns, sort, as_csv, as_json), **rest)

    for option in (
        output.as_json,
        output.as_csv,
        click.option("--sort", metavar="COLUMN", default="", help="Sort by this column; -COLUMN: the other way round."),
        click.option(
            "--columns", metavar="NAMES", default="", callback=_words, help="Show these columns, such as id,state."
        ),
        click.option("--wide", is_flag=True, help="Show every column, however long the lines."),
    ):
        packed = option(packed)
    return packed
