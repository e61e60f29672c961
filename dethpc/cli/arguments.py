"""Arguments and options that commands share: ``ID`` is one experiment, ``IDS`` are several, ``TRIALS`` several trials,
``number`` is any id; ``listing`` adds the options of every list."""

from __future__ import annotations

import functools
import math
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
    from dethpc.client import experiments

    if click.get_current_context().resilient_parsing:  # TAB is pressed further on: no master is started for that
        raise click.BadParameter(name)
    session = connect()
    by_name = experiments.Filter(name=name)
    containing = experiments.listing(session, by_name, newest_first=True)["experiments"] if name.strip() else []
    ids = sorted(int(e["id"]) for e in containing if e.get("name") == name)
    if not ids:
        meant = _meant(
            name, containing or experiments.listing(session, newest_first=True, limit=_RECENT)["experiments"]
        )
        raise click.BadParameter(
            f"no experiment has the name {name!r}{meant or '.'} Give a name or {ids_of}; see them with: det experiment list"
        )
    if len(ids) > 1:
        which = f"{', '.join(map(str, ids))} (the newest)"
        raise click.BadParameter(f"{len(ids)} experiments have the name {name!r}; give an id: {which}")
    return ids[0]


_RECENT = 200  # experiments among whose names a misspelt one is looked for


def _meant(name: str, rows: Sequence[dict[str, Any]]) -> str:
    """``. Did you mean 'digits' (12)?``: the newest of those that have a name with this in it, or one near it; "" without any."""
    import difflib

    newest = {str(e.get("name")): e["id"] for e in reversed(rows)}
    near = [one for one in newest if name.lower() in one.lower()] or difflib.get_close_matches(name, newest)
    suggestions = [f"{output.plain(one)!r} ({newest[one]})" for one in near[-2:]]
    return f". Did you mean {' or '.join(suggestions)}?" if suggestions else ""


EXPERIMENT = _one
ID = click.argument("experiment_id", metavar="ID", type=EXPERIMENT)


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
TRIALS = click.argument("ids", metavar="ID...", type=_trials, nargs=-1, required=True, callback=_once)


def each(ids: Sequence[int], do: Callable[[Any, int], str]) -> None:
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


PAGES = click.option(
    "--pages",
    type=click.Choice(["1", "all"]),
    expose_value=False,
    hidden=True,
    help="Accepted for compatibility: nothing is left for a second page.",
)


def _words(context: click.Context, parameter: click.Parameter, text: str) -> list[str]:
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
        from dethpc.cli import watching

        return watching.watch(lambda: command(*args, layout=layout, **rest), watch)

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
            "--columns", metavar="NAMES", default="", callback=_words, help="Show these columns, such as id,state."
        ),
        click.option("--wide", is_flag=True, help="Show every column, however long the lines."),
    ):
        packed = option(packed)
    return packed
