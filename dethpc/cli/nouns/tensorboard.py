"""``det tensorboard``: TensorBoard over the event files of trials, on a node of the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from dethpc.cli import launched, output, tables
from dethpc.cli.arguments import EXPERIMENTS
from dethpc.cli.group import LazyGroup
from dethpc.cli.launched import Noun

TENSORBOARD = Noun("tensorboard", "tensorboards", "tensorboard")
_ANSWERS = "data/environment"


def _numbers(name: str) -> Any:
    return lambda row: ", ".join(str(number) for number in row.get(name) or [])


_COLUMNS = [
    *launched.COLUMNS[:4],
    tables.Column("Experiments", _numbers("experimentIds")),
    tables.Column("Trials", _numbers("trialIds"), rank=1),
    *launched.COLUMNS[4:],
]


@click.group(cls=LazyGroup, aliases={"ls": "list"})
def tensorboard() -> None:
    """Run TensorBoard on a node of the cluster, as a job in the queue."""


@tensorboard.command()
@EXPERIMENTS
@click.option("-t", "--trial-ids", multiple=True, metavar="ID", help="Show this trial (repeatable, or ID,ID,...).")
@launched.launch_options
@launched.no_browser
@output.as_json
def start(
    experiment_ids: Sequence[int],
    trial_ids: Sequence[str],
    detach: bool,
    no_browser: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Start TensorBoard over experiments and single trials, and open it.

    It shows what their trials have written, wherever their checkpoints are, and follows those that run. Of an experiment with more
    than 100 trials it shows the best 100. It ends after idle_timeout without a request (30m).
    """
    trials = [_number(text) for texts in trial_ids for text in texts.replace(",", " ").split()]
    if not experiment_ids and not trials:
        raise click.UsageError("Which experiments or trials? Such as: det tensorboard start 12")
    answer = launched.launch(TENSORBOARD, options, body={"experimentIds": list(experiment_ids), "trialIds": trials})
    if as_json:
        output.print_json(answer)
    elif detach:
        output.echo(answer["tensorboard"]["id"])
    else:
        launched.show(TENSORBOARD, answer["tensorboard"], _ANSWERS, browser=not no_browser)


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise click.BadParameter(f"{text!r} is not a trial id", param_hint="--trial-ids")
    return int(text)


launched.add_open(tensorboard, TENSORBOARD, _ANSWERS)
launched.add_commands(tensorboard, TENSORBOARD, _COLUMNS)
