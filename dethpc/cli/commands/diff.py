"""``det experiment diff``."""

from __future__ import annotations

from typing import Any

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import EXPERIMENT
from dethpc.cli.connect import connect
from dethpc.cli.output import Json
from dethpc.domain.nested import leaves

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.command()
@click.argument("a", metavar="A", type=EXPERIMENT)
@click.argument("b", metavar="B", type=EXPERIMENT)
@output.found_as_json
def diff(a: int, b: int, as_json: bool) -> None:
    """Show how experiment B differs from A: fields of their configurations, and lines of their code."""
    from dethpc.client.nouns import experiments

    session = connect()
    before, after = (experiments.get(session, number).get("config") or {} for number in (a, b))
    code = experiments.code_changes(session, b, a)
    fields = changed_fields(before, after)
    if as_json:
        output.print_json({"config": fields, "code": code})
        return
    if not fields and not code["changes"]:
        output.echo(f"Experiments {a} and {b} have the same configuration and the same code")
        return
    if fields:
        columns = [
            tables.Column("Field", "field"),
            tables.Column(f"Experiment {a}", lambda row: _value(row["before"]), least=12),
            tables.Column(f"Experiment {b}", lambda row: _value(row["after"]), least=12),
        ]
        tables.show(tables.Table(columns, fields))
    for n, change in enumerate(code["changes"]):
        if n or fields:
            output.echo()
        _print_change(change, a, b)
    if code["more"]:
        output.say(f"{code['more']} more files differ")


def changed_fields(before: Json, after: Json) -> list[Json]:
    """Each dotted field whose values differ: {"field", "before", "after"}; None where it is missing."""
    old, new = dict(leaves(before)), dict(leaves(after))
    return [
        {"field": name, "before": old.get(name), "after": new.get(name)}
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return output.compact(value) if isinstance(value, (dict, list)) else output.plain(value)


def _print_change(change: Json, a: int, b: int) -> None:
    """As a unified diff has it, on a terminal in its colours."""
    if not change["diff"]:
        output.echo(f"{change['path']}: {change['kind']}{f' ({why})' if (why := change['why']) else ''}")
        return
    path = output.plain(change["path"])
    for line in (f"--- {a}/{path}", f"+++ {b}/{path}"):
        output.show_line(line, {"bold": True})
    for line in change["diff"].splitlines():
        output.show_line(line, {"fg": colour} if (colour := _COLOURS.get(line[:1])) else {})
