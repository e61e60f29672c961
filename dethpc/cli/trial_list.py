"""``det experiment list-trials`` and ``det trial list``: one command under two names."""

from __future__ import annotations

from typing import Optional

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import EXPERIMENT, PAGES, STATES_OF_TRIALS, listing
from dethpc.cli.connect import connect
from dethpc.cli.trial_table import found_trials, trial_table, with_curves


@click.command("list-trials")
@click.argument("experiment_id", metavar="EXPERIMENT", type=EXPERIMENT)
@click.option("--best", type=click.IntRange(1), metavar="N", help="The N best by the searcher's metric, best first.")
@STATES_OF_TRIALS
@click.option("--limit", type=click.IntRange(0), default=0, help="At most this many (0: no limit).")
@click.option("--offset", type=click.IntRange(0), default=0, help="Skip this many.")
@PAGES
@listing
def list_trials(
    experiment_id: int, best: Optional[int], states: list[str], limit: int, offset: int, layout: tables.Layout
) -> None:
    """List the trials of an experiment, and the values of each hyperparameter that is searched."""
    from dethpc.client import experiments

    session = connect()
    about = experiments.get(session, experiment_id)
    rows, layout = found_trials(session, about, best=best, limit=limit, offset=offset, layout=layout, states=states)
    if layout.as_json:
        output.print_json(rows)
        return
    if not layout.as_csv:
        with_curves(session, about, rows)
    tables.show(trial_table(about, rows), layout)
