"""The layout of every table that ``det`` prints. A command names the columns; this module formats them.

- **A terminal** gets what people read: ages, four digits, the best row marked, and lines that fit. Where room is short, long text
  is cut with an ellipsis and the columns of the highest ``rank`` give way; no cell is ever folded.
- **A pipe** gets the same columns at any width and time, four digits, ISO 8601, ``-`` for an empty cell.
- **--csv** has every column and whole values; **--wide** has every column. ``--columns`` has those that are named, in that order.
- ``DET_TABLES`` names another form for all of them: see ``FORMS``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any, NamedTuple, Optional, Union

import click

from dethpc.cli import output


class Kind(NamedTuple):
    """How a value is written: ``shown`` on a terminal, ``full`` where programs read it, ``piped`` in a pipe, where that is not
    ``full``."""

    shown: Callable[[Any], str]
    full: Callable[[Any], str] = output.plain
    right: bool = False  # numbers are, on a terminal
    whole: bool = False  # a terminal has ``full``, too, where --wide or --columns asks for it
    piped: Optional[Callable[[Any], str]] = None


TEXT = Kind(output.plain)
COUNT = Kind(output.plain, right=True)
METRIC = Kind(output.digits, right=True, piped=output.digits)
SETTING = Kind(lambda value: output.digits(value, 3), right=True, piped=output.digits)  # a hyperparameter
STATE = Kind(output.state, output.state)
STANDING = Kind(
    output.plain, lambda text: text.partition(" (")[0]
)  # of ``output.standing``; a script reads the state alone
TASK = Kind(lambda id: output.plain(id).partition("-")[0], whole=True)  # the beginning names a task, too
AGE = Kind(output.ago, output.when, right=True)
DURATION = Kind(output.duration, right=True, piped=output.duration)  # seconds
PERCENT = Kind(output.percent, output.percent, right=True)
SIZE = Kind(lambda count: "" if count is None else output.size(count), right=True)  # bytes


class Column(NamedTuple):
    """A column. ``value`` takes a row's value out of it, or is its key there."""

    name: str
    value: Union[str, int, Callable[[Any], Any]]
    kind: Kind = TEXT
    rank: int = 0
    """On a terminal that is too narrow, the column of the highest rank goes first; one of rank 0 stays."""
    heading: str = ""
    """What it is called on a terminal, where that is shorter."""
    least: int = 0
    """How many cells of long text are shown at least; 0: it is never cut."""
    terminal: bool = True
    pipe: bool = True
    """Whether it is shown there without being asked for, by --wide or by name."""

    @property
    def word(self) -> str:
        """What --columns and --sort call it."""
        return self.name.lower().replace(" ", "-")

    @property
    def title(self) -> str:
        """Its heading but on a terminal. A metric's name may hold anything."""
        return output.plain(self.name)

    def of(self, row: Any) -> Any:
        if callable(self.value):
            return self.value(row)
        return row.get(self.value) if isinstance(row, dict) else row[self.value]


class Table(NamedTuple):
    """``above`` and ``below`` are lines for people: a pipe has none. ``best``: the row that is marked."""

    columns: Sequence[Column]
    rows: Sequence[Any]
    title: str = ""
    above: Sequence[str] = ()
    below: Sequence[str] = ()
    best: Callable[[Any], bool] = lambda row: False


def plain(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """A table of text whose rows are sequences."""
    return Table([Column(name, n, least=12) for n, name in enumerate(headers)], list(rows))


class Layout(NamedTuple):
    """What the options of a list ask for."""

    wide: bool = False
    columns: Sequence[str] = ()
    sort: str = ""
    as_csv: bool = False
    as_json: bool = False


_AS_IT_IS = Layout()


def for_people() -> bool:
    """Whether tables are drawn for a terminal."""
    return sys.stdout.isatty() and _form() is None


def _form() -> Optional[Form]:
    return FORMS.get(os.environ.get("DET_TABLES", ""))


def show(table: Table, layout: Layout = _AS_IT_IS, answer: Any = None) -> None:
    """Print it; where ``layout`` is JSON, ``answer``, which is its rows unless given. Raises: click.UsageError for a column that is
    not there."""
    if layout.as_json:
        output.print_json(list(table.rows) if answer is None else answer)
        return
    rows = in_order(table, layout.sort)
    form = _form()
    on_terminal = for_people()
    if layout.columns:
        columns = [_named(table, word) for word in layout.columns]
    elif layout.wide or layout.as_csv:
        columns = list(table.columns)
    else:
        columns = [column for column in table.columns if (column.terminal if on_terminal else column.pipe)]
    if on_terminal and not layout.as_csv:
        _draw(table, columns, rows, every=layout.wide or bool(layout.columns))
        return
    if layout.as_csv:
        write_csv(columns, rows, sys.stdout)
        return
    if table.title:
        output.echo(table.title)
    cells = _full(columns, rows) if form else _written([c.kind.piped or c.kind.full for c in columns], columns, rows)
    for line in (form or aligned)([c.title for c in columns], cells):
        output.echo(line)


def write_csv(columns: Sequence[Column], rows: Iterable[Any], file: IO[str]) -> None:
    import csv

    csv.writer(file, lineterminator="\n").writerows([[c.title for c in columns], *_full(columns, rows)])


def _full(columns: Sequence[Column], rows: Iterable[Any]) -> list[list[str]]:
    return _written([c.kind.full for c in columns], columns, rows)


def _written(how: Sequence[Callable[[Any], str]], columns: Sequence[Column], rows: Iterable[Any]) -> list[list[str]]:
    return [[output.plain(write(c.of(row))) for write, c in zip(how, columns)] for row in rows]


def _named(table: Table, word: str) -> Column:
    headings = [{c.word, c.name.lower()} for c in table.columns]
    shown = [{c.heading.lower(), c.title.lower()} for c in table.columns]  # what a terminal shows is taken, too
    for called, column in zip([*headings, *shown], [*table.columns] * 2):
        if word and word.lower() in called:
            return column
    names = ", ".join(column.word for column in table.columns)
    raise click.UsageError(f"there is no column {word!r}; there are: {names}")


def in_order(table: Table, sort: str) -> list[Any]:
    """The rows by the column that ``sort`` names, backwards for ``-NAME``; those without a value last."""
    if not sort:
        return list(table.rows)
    column = _named(table, sort.removeprefix("-"))
    places = [(_place(column.of(row)), row) for row in table.rows]
    some = sorted((both for both in places if both[0]), key=lambda both: both[0], reverse=sort.startswith("-"))
    return [row for _, row in some] + [row for place, row in places if not place]


def _place(value: Any) -> tuple[Any, ...]:
    """Where it stands among others of its column: numbers by size, text behind them; () for what has no place: nothing, and NaN."""
    if value in ("Infinity", "-Infinity", "NaN"):  # as JSON has them
        value = float(value)
    if isinstance(value, (int, float)):
        return (0, value) if value == value else ()
    return () if value in (None, "") else (1, str(value))


# --- plain text


def aligned(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """Columns two blanks apart. A very long cell moves the rest of its own line alone."""
    grid = [list(headers), *([cell or "-" for cell in row] for row in cells)]
    widths = [max([0, *(len(row[i]) for row in grid if len(row[i]) <= _LONG)]) for i in range(len(headers))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in grid]


def ruled(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """Columns with rules between them, as Determined has them: each two wider than its heading, those of numbers to the
    right, point below point."""
    columns = [[row[n] for row in cells] for n in range(len(headers))]
    numbers = [any(column) and all(_NUMBER.fullmatch(cell) for cell in column if cell) for column in columns]
    columns = [_by_point(column) if right else column for column, right in zip(columns, numbers)]
    widths = [max([len(h) + 2, *map(len, column)]) for h, column in zip(headers, columns)]

    def line(values: Sequence[str]) -> str:
        padded = (v.rjust(w) if right else v.ljust(w) for v, w, right in zip(values, widths, numbers))
        return (" " + " | ".join(padded)).rstrip()

    return [line(headers), "+".join("-" * (width + 2) for width in widths), *map(line, zip(*columns))]


_LONG = 200
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")


def _by_point(column: Sequence[str]) -> list[str]:
    behind = [len(cell) - cell.index(".") if "." in cell else 0 for cell in column]
    return [cell + " " * (max(behind) - own) for cell, own in zip(column, behind)]


Form = Callable[[Sequence[str], Sequence[Sequence[str]]], list[str]]
FORMS: dict[str, Form] = {"determined": ruled, "aligned": aligned}
"""What DET_TABLES may say: headings and whole values as text to lines, the same on a terminal and in a pipe."""


# --- a terminal

_COLOURS = {
    "COMPLETED": "green",
    "ACTIVE": "cyan",
    "RUNNING": "cyan",
    "SCHEDULED": "cyan",
    "STOPPED": "yellow",
    "ERROR": "red",
    "CANCELED": "yellow",
    "PAUSED": "yellow",
    "STOPPING": "yellow",
}


def colour(state: str) -> str:
    """The colour of a state, as rich names it; "" for one that is neither good nor bad."""
    return _COLOURS.get(state.partition(" (")[0].partition("_")[0], "")


def _draw(table: Table, columns: Sequence[Column], rows: Sequence[Any], *, every: bool) -> None:
    from rich.cells import cell_len, set_cell_size
    from rich.console import Console
    from rich.text import Text

    ellipsis, star = ("…", "★ ") if (sys.stdout.encoding or "").lower().startswith("utf") else ("~", "* ")
    console = Console(highlight=False)
    written = [c.kind.full if every and c.kind.whole else c.kind.shown for c in columns]
    cells = [[output.plain(write(c.of(row))) for write, c in zip(written, columns)] for row in rows]
    best = [table.best(row) for row in rows]
    margin = 2 if any(best) else 0
    headings = [output.plain(c.heading) or c.title for c in columns]
    bodies = [max([0, *(cell_len(row[n]) for row in cells)]) for n in range(len(columns))]
    shown = [n for n, c in enumerate(columns) if not rows or c.rank == 0 or every or any(row[n] for row in cells)]
    line_width = None if every else console.width - margin
    shown, widths = fit(columns, [cell_len(heading) for heading in headings], bodies, shown, line_width)

    def line(values: Sequence[str], mark: str, style: str = "") -> Text:
        text = Text(mark[:margin].ljust(margin), no_wrap=True, overflow="ellipsis", end="")
        for n in shown:
            value, width = values[n], widths[n]
            if cell_len(value) > width:
                value = set_cell_size(value, width - 1) + ellipsis
            blanks = " " * (width - cell_len(value))
            text.append(blanks + value if columns[n].kind.right else value + blanks, style or colour(value))
            text.append("  ")
        text.rstrip()
        return text

    def say(text: Text) -> None:
        console.print(text, soft_wrap=True)

    def note(text: str, style: str) -> None:
        for part in output.wrapped(output.plain(text), 0, hanging=2):
            say(Text(part, style=style))

    for heading in filter(None, [table.title, *table.above]):
        note(heading, "bold")
    say(line(headings, "", "bold") if rows else Text("none", style="dim"))
    for row, marked in zip(cells, best):
        text = line(row, star if marked else "")
        if line_width is not None and text.cell_len > console.width:  # even the columns that must be there do not fit
            text.truncate(console.width, overflow="ellipsis")
        say(text)
    hidden = [c.name for n, c in enumerate(columns) if n not in shown and any(row[n] for row in cells)]
    notes = [*table.below, f"not shown: {', '.join(hidden)} (--wide shows all)" if hidden else ""]
    for message in filter(None, notes):
        note(message, "dim")


def fit(
    columns: Sequence[Column],
    headings: Sequence[int],
    bodies: Sequence[int],
    shown: Sequence[int],
    line_width: Optional[int],
) -> tuple[list[int], list[int]]:
    """Which of the ``shown`` columns there is room for, and how wide each is; ``headings`` and ``bodies`` say what they need.

    Long text and long headings give way first, the widest before the others, then whole columns by rank, the last of a rank
    first. ``line_width`` None: as wide as they are.
    """
    remaining = list(shown)
    natural = [max(pair) for pair in zip(headings, bodies)]
    least = [
        max(min(heading, _HEADING), min(body, column.least) if column.least else body)
        for column, heading, body in zip(columns, headings, bodies)
    ]
    while True:
        widths = list(natural)
        over = 0 if line_width is None else sum(widths[n] + 2 for n in remaining) - 2 - line_width
        while over > 0:
            long = [n for n in remaining if widths[n] > least[n]]
            if not long:
                break
            widths[max(long, key=lambda n: widths[n])] -= 1
            over -= 1
        if over <= 0 or not any(columns[n].rank for n in remaining):
            return remaining, widths
        remaining.remove(max(remaining, key=lambda n: (columns[n].rank, n)))


_HEADING = 8  # cells of a heading that are left at least
