"""What ``det`` prints: tables, JSON, CSV, times, sizes. Rich draws on a terminal; a pipe gets aligned plain text."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Optional

import click

from dethpc.domain.escapes import escaped

as_json = click.option("--json", "as_json", is_flag=True, help="Print the REST API's JSON.")
as_csv = click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")


def echo(text: Any = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text in which users' own may stand. A terminal would obey its control characters: it gets them spelled out. A file
    or a pipe gets them as they are."""
    stream = sys.stderr if err else sys.stdout
    click.echo(escaped(str(text)) if stream.isatty() else text, err=err, nl=nl)


def print_json(value: Any) -> None:
    echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(
    headers: Sequence[str], rows: Iterable[Sequence[Any]], *, as_csv: bool = False, title: str = ""
) -> None:
    """Print a table; None and "" cells are empty. In a pipe an empty cell is ``-``, so that columns can be counted."""
    cells = [[plain(value) for value in row] for row in rows]
    if as_csv:
        import csv

        csv.writer(sys.stdout, lineterminator="\n").writerows([list(headers), *cells])
    elif sys.stdout.isatty():
        _draw(headers, cells, title)
    else:
        if title:
            echo(title)
        for line in aligned(headers, cells):
            echo(line)


def aligned(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """Lines of text, columns two blanks apart."""
    grid = [list(headers), *([cell or "-" for cell in row] for row in cells)]
    widths = [max(len(row[i]) for row in grid) for i in range(len(headers))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in grid]


def print_fields(fields: Iterable[tuple[str, Any]]) -> None:
    """Print ``name: value`` lines, one noun in full. Empty values are left out."""
    shown = [(name, plain(value)) for name, value in fields if plain(value)]
    width = max((len(name) for name, _ in shown), default=0) + 1
    for name, value in shown:
        click.echo(f"{click.style((name + ':').ljust(width), bold=True)} {value}")


def state(value: Optional[str]) -> str:
    """``STATE_ACTIVE`` -> ``ACTIVE``."""
    return (value or "").removeprefix("STATE_")


def when(value: Optional[str]) -> str:
    """A time of the wire (RFC 3339) as local ISO 8601, to the second. A terminal has no room for the offset."""
    if not value:
        return ""
    import datetime

    moment = datetime.datetime.fromisoformat(value.replace("Z", "+00:00")).astimezone()
    return (moment.replace(tzinfo=None) if sys.stdout.isatty() else moment).isoformat(timespec="seconds")


def percent(value: Optional[float]) -> str:
    return "" if value is None else f"{100 * value:.0f}%"


def number(value: Any) -> str:
    """A metric: six significant digits, as the wire spells NaN and the infinities."""
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def compact(value: Any) -> str:
    """JSON on one line, for hyperparameters and metrics in a table."""
    return json.dumps(value, ensure_ascii=False) if value else ""


def say(message: str) -> None:
    """Tell the user what goes on; stderr, so that output stays clean."""
    echo(message, err=True)


def plain(value: Any) -> str:
    """Text without control characters: a name may not move the cursor or break a line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = number(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


_COLOURS = {
    "COMPLETED": "green",
    "ACTIVE": "cyan",
    "RUNNING": "cyan",
    "ERROR": "red",
    "CANCELED": "yellow",
    "PAUSED": "yellow",
}


def _draw(headers: Sequence[str], cells: Sequence[Sequence[str]], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = [i for i in range(len(headers)) if not cells or any(row[i] for row in cells)]  # no room for empty columns
    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for i in shown:
        table.add_column(headers[i], overflow="fold")
    for row in cells:
        table.add_row(*(Text(row[i], style=_COLOURS.get(row[i], "")) for i in shown))
    Console().print(table)
