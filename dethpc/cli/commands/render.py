"""``det experiment render`` and ``det experiment import``: runs that need no master."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import click

from dethpc.cli import output
from dethpc.cli.commands.create import CONTEXT_DIR, INCLUDES, checked, located, packed, read_config
from dethpc.cli.connect import connect


@click.command()
@click.argument("config", metavar="CONFIG", type=click.File(encoding="utf-8"))
@CONTEXT_DIR
@click.option("--config", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a field (repeatable).")
@INCLUDES
@output.as_json
def render(
    config: Any, context_dir: Optional[Path], overrides: Sequence[str], includes: Sequence[Path], as_json: bool
) -> None:
    """Print the batch script of a trial of CONFIG, for submitting by hand.

    \b
    The script stands on its own; no master is needed while it runs:
      det experiment render config.yaml . > trial.sbatch && sbatch trial.sbatch
    To import its reports later: det experiment import RUN_DIR
    """
    from dethpc.client.nouns import experiments

    written = read_config(config)
    loaded, text = checked(written, config.name, overrides)
    with located(loaded.source):
        answer = experiments.render(connect(), text, packed(context_dir, includes))
    if as_json:
        output.print_json(answer)
        return
    output.echo(answer["script"], nl=not answer["script"].endswith("\n"))
    output.say_notes(answer)
    output.say(f"run directory: {answer['runDirectory']}")
