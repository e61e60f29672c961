"""Arguments and options that commands share: ``ID`` is one experiment, ``IDS`` are several, ``TRIALS`` several trials,
``number`` is any id; ``listing`` adds the options of every list."""

from __future__ import annotations

import functools
import io
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Optional

import click

from dethpc import errors
from dethpc.cli import output, tables


def number(value: str) -> int:
    """An id. Raises click.BadParameter for what none can be."""
    if not (value.isdecimal() and value.isascii()):
        raise click.BadParameter(f"{value!r} is not an id: ids are numbers, such as 3")
    if len(value) > 18:  # more than a row of any database can have
        raise click.BadParameter(f"nothing has the id {value[:40]}: ids are counted from 1")
    return int(value)


def name_or_number(value: str) -> str:
    """A name, or an id. Raises click.BadParameter for a number that no id can be."""
    return str(number(value)) if value.isdecimal() and value.isascii() else value


def _ids(value: str) -> Optional[list[int]]:
    """``3`` or ``3,5,7``; None: it is something else."""
    parts = value.split(",")
    return [number(part) for part in parts] if all(p.isdecimal() and p.isascii() for p in parts) else None


def _one(value: str) -> int:
    """An id, or the name of an experiment."""
    ids = _ids(value) or [_named(value, "an id, such as 3")]
    if len(ids) > 1:
        raise click.BadParameter(f"{value!r} names several experiments; name one, such as {ids[0]}")
    return ids[0]


def _several(value: str) -> list[int]:
    """``3``, ``3,5,7`` or the name of an experiment."""
    return _ids(value) or [_named(value, "ids, such as 3 or 3,5,7")]


def _trials(value: str) -> list[int]:
    """``12`` or ``12,14``. A trial has no name."""
    if ids := _ids(value):
        return ids
    raise click.BadParameter(
        f"{value!r} is not a trial id, such as 12 or 12,14. See them with: det trial list EXPERIMENT"
    )


def _named(name: str, ids_of: str) -> int:
    """The id of the experiment of this name. ``ids_of``: what else may be given."""
    from dethpc.cli.connect import connect
    from dethpc.client import names
    from dethpc.client.nouns import experiments

    if click.get_current_context().resilient_parsing:  # TAB is pressed further on: no master is started for that
        raise click.BadParameter(name)
    session = connect()
    by_name = experiments.Filter(name=name)
    rows = experiments.listing(session, by_name, newest_first=True)["experiments"] if name.strip() else []
    rows = rows or experiments.listing(session, newest_first=True, limit=_RECENT)["experiments"]
    candidates = [
        names.Candidate(
            str(row["id"]),
            row.get("name") or "",
            f"{output.state(row['state'])}, created {output.when(row['startTime'])}",
        )
        for row in rows
    ]
    try:
        return int(names.choose("experiment", name, candidates))
    except errors.NotFound as error:
        raise click.BadParameter(f"{error}. Give a name or {ids_of}") from None
    except errors.Refused as error:
        raise click.BadParameter(str(error)) from None


def _project(value: str) -> int:
    """The id of the project of this id or name."""
    from dethpc.cli.connect import connect
    from dethpc.client.nouns import workspaces

    if value.isdecimal() and value.strip("0"):
        return number(value)
    if click.get_current_context().resilient_parsing:
        raise click.BadParameter(value)
    try:
        return int(workspaces.project_of_any_workspace(connect(), value)["id"])
    except (errors.NotFound, errors.Refused) as error:
        raise click.BadParameter(str(error)) from None


PROJECT = _project
_RECENT = 200  # experiments among whose names a misspelt one is looked for


EXPERIMENT = _one
ID = click.argument("experiment_id", metavar="ID", type=EXPERIMENT)


def whole_uuid(text: str) -> str:
    """The uuid of the checkpoint that begins so. Raises NotFound, Refused."""
    from dethpc.cli.connect import connect
    from dethpc.client.nouns import checkpoints

    if not _SHORTEST <= len(text) < _UUID or click.get_current_context().resilient_parsing:
        return text
    return checkpoints.beginning(connect(), text)


_SHORTEST, _UUID = 4, 36  # letters


class Number(click.FloatRange):
    """A number in a range; NaN, which is in every range, and infinity are none."""

    def convert(self, value: Any, param: Optional[click.Parameter], ctx: Optional[click.Context]) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def _states(more: Sequence[str], context: click.Context, parameter: click.Parameter, given: Iterable[str]) -> list[str]:
    """Of experiments or trials, as a list shows them."""
    from dethpc.domain.states import State

    states = ["QUEUED", "RUNNING", *more, *(state.value for state in State)]
    names = [word.strip() for some in given for word in some.split(",")]
    for name in names:
        if name.upper().removeprefix("STATE_") not in states:
            raise click.BadParameter(f"{name!r} is not a state; there are {', '.join(states).lower()}")
    return [name.upper().removeprefix("STATE_") for name in names]


def _state_option(*more: str) -> Callable[[Any], Any]:
    """``more``: states that these nouns have beside those of all."""
    return click.option(
        "--state",
        "states",
        metavar="STATE",
        multiple=True,
        callback=functools.partial(_states, more),
        help="Only those in this state, such as running (repeatable).",
    )


STATES = _state_option()
STATES_OF_TRIALS = _state_option("STOPPED")


def _once(context: click.Context, parameter: click.Parameter, given: Iterable[list[int]]) -> list[int]:
    return list(dict.fromkeys(number for some in given for number in some))


IDS = click.argument("ids", metavar="ID...", type=_several, nargs=-1, required=True, callback=_once)
EXPERIMENTS = click.argument("experiment_ids", metavar="[EXPERIMENT]...", type=_several, nargs=-1, callback=_once)
TRIALS = click.argument("ids", metavar="ID...", type=_trials, nargs=-1, required=True, callback=_once)


def apply_to_each(ids: Sequence[int], do: Callable[[Any, int], str]) -> None:
    """Do it to each; go on after a failure, and fail at the end when one failed."""
    from dethpc.cli.connect import connect

    session, failed = connect(), 0
    for number in ids:
        try:
            output.echo(do(session, number))
        except errors.MasterUnreachable:
            raise
        except errors.DethpcError as error:
            failed += 1
            output.say(f"det: error: {error}")
    if failed:
        raise click.exceptions.Exit(1)


YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def confirm(question: str, yes: bool) -> None:
    """Ask before something that cannot be undone, unless ``YES`` was given. Raises Abort where the answer is no."""
    if not yes:
        click.confirm(question, abort=True)


PAGES = click.option(
    "--pages",
    type=click.Choice(["1", "all"]),
    expose_value=False,
    hidden=True,
    help="Accepted for compatibility: nothing is left for a second page.",
)


def _names(context: click.Context, parameter: click.Parameter, text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def listing(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that prints a table; the command takes them as ``layout``."""

    @functools.wraps(command)
    def packed(*args: Any, watch: Optional[float] = None, **options: Any) -> Any:
        rest = {name: value for name, value in options.items() if name not in tables.Layout._fields}
        layout = tables.Layout(**{name: value for name, value in options.items() if name not in rest})
        if watch is None:
            return command(*args, layout=layout, **rest)
        if layout.as_csv or layout.as_json:
            raise click.UsageError("--watch draws on a terminal; leave out --csv and --json")
        return redrawn(lambda: command(*args, layout=layout, **rest), watch)

    for option in (
        output.as_json,
        output.as_csv,
        click.option(
            "--watch",
            type=Number(0.5, 86_400),
            metavar="[SECONDS]",
            is_flag=False,
            flag_value=2.0,
            help="Redraw the list every 2 seconds, or every SECONDS, until Ctrl-C.",
        ),
        click.option("--sort", metavar="COLUMN", default="", help="Sort by this column; -COLUMN reverses the order."),
        click.option(
            "--columns", metavar="NAMES", default="", callback=_names, help="Show these columns, such as id,state."
        ),
        click.option("--wide", is_flag=True, help="Show every column, however long the lines."),
    ):
        packed = option(packed)
    return packed


def _days(context: click.Context, parameter: click.Parameter, days: Optional[int]) -> int:
    if (days is None) == (not context.params.get("forever")):
        raise click.UsageError("Give --days N, or --forever.")
    return -1 if days is None else days


def kept_for(days: int) -> str:
    """How long logs are kept, in words."""
    return "for ever" if days == -1 else f"for {output.plural(days, 'day')} after the end"


def days_of_logs(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of what sets for how long logs are kept; the command takes ``days``, -1 for ever."""
    forever = click.option("--forever", is_flag=True, is_eager=True, expose_value=True, help="Keep them for ever.")
    days = click.option(
        "--days",
        type=click.IntRange(-1, 32767),
        metavar="N",
        callback=_days,
        help="Keep them for N days after the end.",
    )
    return forever(days(command))


class _Screen(io.StringIO):
    """What a list writes for a terminal, kept until it is whole: a screen that is cleared first would flicker."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return True


def redrawn(draw: Callable[[], Any], seconds: float) -> None:
    """Call ``draw`` every so many seconds until Ctrl-C. Raises click.UsageError where there is no terminal."""
    if not sys.stdout.isatty():
        raise click.UsageError(
            "--watch draws on a terminal; in a pipe or a script, ask again with a loop: while sleep 5"
        )
    from dethpc.client.session import patiently

    try:
        while True:
            output.redraw(_crop(patiently(lambda: _drawn(draw))))
            time.sleep(seconds)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(130) from None


def _drawn(draw: Callable[[], Any]) -> str:
    terminal = sys.stdout
    screen = _Screen(terminal.encoding or "utf-8")
    sys.stdout = screen
    try:
        draw()
    finally:
        sys.stdout = terminal
    return screen.getvalue()


def _crop(text: str) -> str:
    """The lines that there is room for: what scrolls away cannot be drawn over."""
    import shutil

    lines, height = text.splitlines(), shutil.get_terminal_size().lines - 2
    if len(lines) <= height:
        return text
    return "\n".join([*lines[:height], f"... and {len(lines) - height} more lines", ""])
