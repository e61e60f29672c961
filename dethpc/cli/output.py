"""Output of ``det`` other than tables (``tables``): lines, JSON and fields; the formats of times, numbers and sizes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Optional

import click

from dethpc.domain.nested import leaves
from dethpc.domain.text.escapes import escaped
from dethpc.domain.text.measures import duration as duration
from dethpc.domain.text.measures import percent as percent
from dethpc.domain.text.measures import plural as plural
from dethpc.domain.text.measures import size as size
from dethpc.domain.text.rungs import stopped_early

Json = dict[str, Any]
"""An object of the REST API."""

_YAML = "dethpc.yaml"  # in a context: --yaml was given


def _or_yaml(context: click.Context, parameter: click.Parameter, given: bool) -> bool:
    return given or bool(context.meta.get(_YAML))


def _mark(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    context.meta[_YAML] = given


def _json(what: str) -> Callable[[Any], Any]:
    return click.option("--json", "as_json", is_flag=True, callback=_or_yaml, help=what)


as_json = _json("Print the REST API's JSON.")
found_as_json = _json("Print what was found as JSON.")
"""As ``as_json``, where the JSON is the command's own."""
as_yaml = click.option(
    "--yaml", is_flag=True, is_eager=True, expose_value=False, callback=_mark, help="Print what --json has as YAML."
)
"""Beside ``as_json``: a command need not know of it."""
as_csv = click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")


def echo(text: Any = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text in which users' own may stand. A terminal would obey its control characters: it gets them spelled out. A file
    or a pipe gets them as they are."""
    stream = sys.stderr if err else sys.stdout
    click.echo(escaped(str(text)) if stream.isatty() else text, err=err, nl=nl)


def show_line(text: str, style: dict[str, Any], *, one_row: bool = False, in_place: bool = False) -> None:
    """A line of a log on a terminal, in its style. ``one_row``: cut to the width of the terminal, so that a next one can be drawn
    ``in_place`` of it."""
    if one_row:
        text = text[: _columns(sys.stdout) - 1]
    if in_place:
        sys.stdout.write("\x1b[A\x1b[2K")
    click.echo(styled(escaped(text), **style) if style else escaped(text))


def redraw(text: str) -> None:
    """Put a whole screen in the place of what the terminal shows."""
    sys.stdout.write("\x1b[2J\x1b[H" + text)
    sys.stdout.flush()


def print_json(value: Any) -> None:
    """What --json asks for, or --yaml where a command has it."""
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(_YAML):
        print_yaml(value)
        return
    echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_yaml(value: Any) -> None:
    import yaml

    echo(yaml.safe_dump(value, default_flow_style=False, sort_keys=False, allow_unicode=True), nl=False)


def print_config(value: Any, as_json: bool) -> None:
    """YAML, as people write it, unless --json asks for the other form."""
    print_json(value) if as_json else print_yaml(value)


def reply(answer: Any, sentence: str, as_json: bool) -> None:
    """What a command has done: in words, or the REST API's JSON about it."""
    print_json(answer) if as_json else echo(sentence)


def print_fields(fields: Iterable[tuple[str, Any]]) -> None:
    """Print ``name: value`` lines, one noun in full. Empty values are left out."""
    shown = [(name, plain(value)) for name, value in fields if plain(value)]
    width = max((len(name) for name, _ in shown), default=0) + 1
    for name, value in shown:
        first, *rest = wrapped(value, width + 1)
        click.echo(f"{styled((name + ':').ljust(width), bold=True)} {first}")
        for line in rest:
            click.echo(line)


def wrapped(text: str, indent: int, *, hanging: int = 0, err: bool = False) -> list[str]:
    """``text``, which begins in column ``indent``, in the lines that it takes on a terminal; those after the first are indented by
    that and ``hanging`` more. A long word stays whole: it may be a path. One line in a pipe."""
    stream = sys.stderr if err else sys.stdout
    if not stream.isatty():
        return [text]
    import textwrap

    lines = textwrap.wrap(
        text,
        max(_columns(stream), indent + 20),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hanging),
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [lines[0][indent:], *lines[1:]] if lines else [""]


def _columns(terminal: Any) -> int:
    """As COLUMNS has it, or the terminal, which need not be that of standard output."""
    import contextlib
    import os
    import shutil

    if not os.environ.get("COLUMNS"):
        with contextlib.suppress(OSError, ValueError):
            return os.get_terminal_size(terminal.fileno()).columns
    return shutil.get_terminal_size().columns


def styled(text: str, **style: Any) -> str:
    """``text`` with click's styles, but where NO_COLOR is set."""
    import os

    return text if os.environ.get("NO_COLOR") else click.style(text, **style)


def state(value: Optional[str]) -> str:
    """``STATE_ACTIVE`` -> ``ACTIVE``."""
    return (value or "").removeprefix("STATE_")


def standing(noun: dict[str, Any]) -> str:
    """The state of an experiment or a trial, and what it still holds: ``PAUSED (stopping, holds 2 slots)`` while its job saves a
    last checkpoint; ``SUSPENDED`` while the scheduler lets none of its jobs get on; ``STOPPED`` for a trial that is completed
    because its search stopped it."""
    word, still = state(noun.get("state")), holding(noun)
    if word == "RUNNING" and (jobs := noun.get("suspendedJobs") or int(bool(noun.get("suspended")))):
        running = noun.get("runningJobs") or 1
        return "SUSPENDED" if jobs >= running else f"RUNNING ({jobs} of {running} jobs suspended)"
    if stopped_early(word, str(noun.get("reason") or "")):
        return "STOPPED"
    return f"{word} ({still})" if still else word


def holding(noun: dict[str, Any]) -> str:
    """``stopping, holds 2 slots``; "" for what may run, and for what holds nothing any more."""
    slots = noun.get("heldSlots")
    if slots is None or state(noun.get("state")) in ("ACTIVE", "QUEUED", "RUNNING"):
        return ""
    return f"stopping, holds {plural(slots, 'slot')}" if slots else "stopping"


def when(value: Optional[str]) -> str:
    """A time of the wire (RFC 3339) as local ISO 8601, to the second. A terminal has no room for the offset."""
    if not value:
        return ""
    from dethpc.domain.text.times import moment

    at = moment(value).astimezone()
    return (at.replace(tzinfo=None) if sys.stdout.isatty() else at).isoformat(timespec="seconds")


def now() -> float:
    """Seconds since the epoch: the clock that ages are read from."""
    return time.time()


def ago(value: Optional[str]) -> str:
    """A time of the wire as people say it: ``12m ago``, ``in 3h``; after three months the date."""
    if not value:
        return ""
    from dethpc.domain.text.times import moment

    at = moment(value)
    passed = now() - at.timestamp()
    if passed > 90 * 86400:
        return at.astimezone().date().isoformat()
    for unit, seconds in (("d", 2 * 86400), ("h", 2 * 3600), ("m", 60)):
        if abs(passed) >= seconds:
            amount = f"{int(abs(passed) // {'d': 86400, 'h': 3600, 'm': 60}[unit])}{unit}"
            break
    else:
        amount = f"{int(abs(passed))}s"
    return f"{amount} ago" if passed >= 0 else f"in {amount}"


def digits(value: Any, significant: int = 4) -> str:
    """A number for a person; anything else, NaN and the infinities as the wire spells them among it, in full."""
    if not isinstance(value, float):
        return plain(value)
    return f"{value:.0f}" if 10**significant <= abs(value) < 1e9 else f"{value:.{significant}g}"


def compact(value: Any) -> str:
    """JSON on one line, for hyperparameters and metrics in a table."""
    return json.dumps(value, ensure_ascii=False) if value else ""


def values(named: dict[str, Any]) -> str:
    """``loss=0.25 net.depth=3``: hyperparameters or metrics as a person reads them."""
    return " ".join(f"{name}={digits(value)}" for name, value in flat(named).items())


def flat(named: Optional[Mapping[str, Any]]) -> dict[str, Any]:
    """``{"a": {"b": 1}}`` as ``{"a.b": 1}``; a list is one value, as JSON."""
    pairs = leaves(named or {})
    return {name: compact(value) if isinstance(value, (list, dict)) else value for name, value in pairs}


def settings(named: Optional[dict[str, Any]]) -> str:
    """Hyperparameters or metrics of a field: for a person on a terminal, as JSON in a pipe."""
    return values(named or {}) if sys.stdout.isatty() else compact(named)


def say_notes(answer: Mapping[str, Any]) -> None:
    """What the master remarks about what it has created."""
    for note in answer.get("notes") or []:
        say(f"det: note: {note}")


def password(prompt: str, *, twice: bool = False) -> str:
    """Typed at the terminal without an echo, ``twice`` for a new one; where there is none, a line of standard input."""
    if sys.stdin.isatty():
        typed: str = click.prompt(prompt, hide_input=True, confirmation_prompt=twice)
        return typed
    if line := sys.stdin.readline().rstrip("\r\n"):
        return line
    raise click.UsageError(f"{prompt}: type it at a terminal, or send it as a line of standard input.")


def say(message: str) -> None:
    """Tell the user what goes on; stderr, so that output stays clean. Lines that a terminal has no room for go on indented."""
    for line in message.split("\n"):
        begun = len(line) - len(line.lstrip())
        first, *rest = wrapped(line[begun:], begun, hanging=4, err=True)
        for part in (line[:begun] + first, *rest):
            echo(part, err=True)


def plain(value: Any) -> str:
    """Text without control characters: a name may not move the cursor or break a line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = value if isinstance(value, str) else str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
