"""``det preview-search``: the cost of a search, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from dethpc.cli import output, tables
from dethpc.cli.connect import connect


@click.command("preview-search")
@click.argument("config", metavar="CONFIG", type=click.File(encoding="utf-8"))
@click.option("--config", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a field (repeatable).")
@output.as_json
def preview_search(config: Any, overrides: Sequence[str], as_json: bool) -> None:
    """Show how many trials the search in CONFIG trains, and for how long.

    If the search compares trials, their order is drawn at random; the numbers hardly depend on it. Nothing is created.
    """
    from dethpc.cli.commands.create import checked, read_config
    from dethpc.client.nouns import experiments
    from dethpc.config.source import read

    _, text = checked(read_config(config), config.name, overrides)
    answer = experiments.preview(connect(), read(text, config.name)[0].data)
    if as_json:
        output.print_json(answer)
        return
    trials = answer["summary"]["trials"]
    tables.show(tables.plain(["Trials", "Training"], [[t["count"], _training(t["unit"])] for t in trials]))
    output.echo(experiments.SearchCost.of(answer).summary)


def _training(unit: Any) -> str:
    return "to completion" if unit["maxLength"] else f"{unit['value']} {unit['name']}"
