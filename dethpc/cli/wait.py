"""``det experiment wait``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import click

from dethpc.cli import output
from dethpc.cli.arguments import ID
from dethpc.cli.connect import connect, reconnect

Json = dict[str, Any]

EXIT_CODES = {"COMPLETED": 0, "CANCELED": 3}
_ENDED = {"COMPLETED", "CANCELED", "ERROR", "DELETED"}
_MANY = 1000  # trials; beyond, only the experiment itself is watched


@click.command()
@ID
@click.option(
    "--polling-interval", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Seconds between two polls."
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; only set the exit code.")
def wait(experiment_id: int, polling_interval: float, quiet: bool) -> None:
    """Wait until an experiment has ended.

    On a terminal there is a bar for the experiment and a line per trial; in a pipe each change is a line.

    Exit codes: 0 completed; 1 it ended in an error, or the request failed; 3 canceled or killed; 130 interrupted (the
    experiment goes on).
    """
    look = _looking(experiment_id)
    try:
        if quiet:
            state = _watch(look, polling_interval, lambda about, trials: None)
        elif sys.stdout.isatty():
            state = _on_terminal(look, polling_interval)
        else:
            state = _watch(look, polling_interval, _Lines())
    except KeyboardInterrupt:
        output.say(f"\nStopped waiting; the experiment continues. To wait again: det experiment wait {experiment_id}")
        raise click.exceptions.Exit(130) from None
    raise click.exceptions.Exit(EXIT_CODES.get(state, 1))


def until_ended(experiment_id: int, *, to_stderr: bool = False) -> str:
    """Show how the experiment goes until it has ended; the state in which it did. What is not for a terminal goes, if asked, to
    stderr."""
    look = _looking(experiment_id)
    if sys.stdout.isatty() and not to_stderr:
        return _on_terminal(look, 1.0)
    return _watch(look, 1.0, _Lines(to_stderr))


def quietly(experiment_id: int) -> str:
    """The state in which it ended."""
    return _watch(_looking(experiment_id), 0.5, lambda about, trials: None)


Look = Callable[[], tuple[Json, list[Json]]]
Show = Callable[[Json, list[Json]], None]


def _looking(experiment_id: int) -> Look:
    """Returns a function that fetches the experiment and its trials, and bears with a master that restarts."""
    from dethpc.client import experiments
    from dethpc.client.patience import patiently

    again = reconnect(connect())

    def look() -> tuple[Json, list[Json]]:
        session = again()
        about = experiments.get(session, experiment_id)["experiment"]
        few = int(about.get("numTrials") or 0) <= _MANY
        return about, list(experiments.trials(session, experiment_id)) if few else []

    return lambda: patiently(look)


def _watch(look: Look, interval: float, show: Show) -> str:
    while True:
        about, trials = look()
        show(about, trials)
        state = output.state(about.get("state"))
        if state in _ENDED:
            return state
        time.sleep(interval)


class _Lines:
    """A line for each change of a state."""

    def __init__(self, to_stderr: bool = False) -> None:
        self.shown: dict[str, str] = {}
        self.to_stderr = to_stderr

    def __call__(self, about: Json, trials: list[Json]) -> None:
        from dethpc.cli.describe import reason
        from dethpc.cli.trial_table import best_metric

        for trial in trials:
            metric, why = best_metric(trial), reason(trial)
            details = f"{trial.get('totalBatchesProcessed') or 0} steps"
            details += (
                f", {about.get('searcherMetric') or 'metric'} {output.number(metric)}" if metric is not None else ""
            )
            self._line(f"trial {trial['id']}", output.state(trial.get("state")), details + (f": {why}" if why else ""))
        self._line(f"experiment {about['id']}", output.state(about.get("state")), reason(about))
        if about.get("warning") and "warning" not in self.shown:
            self.shown["warning"] = "told"
            output.echo(f"experiment {about['id']}: warning: {about['warning']}", err=self.to_stderr)

    def _line(self, noun: str, state: str, details: str) -> None:
        if self.shown.get(noun) != state:
            self.shown[noun] = state
            output.echo(f"{noun}: {state}" + (f" ({details})" if details else ""), err=self.to_stderr)


def _on_terminal(look: Look, interval: float) -> str:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    with Live(Text("..."), console=console, refresh_per_second=8, vertical_overflow="crop") as live:
        return _watch(look, interval, lambda about, trials: live.update(_picture(about, trials, console.height - 5)))


def _picture(about: Json, trials: list[Json], room: int) -> Any:
    """A bar for the experiment, then a line per trial: those that run first, when not all of them fit."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    from dethpc.cli.describe import reason
    from dethpc.cli.trial_table import best_metric

    progress = 1.0 if output.state(about.get("state")) == "COMPLETED" else float(about.get("progress") or 0)
    head = Table.grid(padding=(0, 1))
    head.add_row(
        f"Experiment {about['id']}",
        ProgressBar(total=1, completed=progress, width=40),
        output.percent(progress),
        output.state(about.get("state")),
        Text(output.plain(reason(about))),
    )
    shown = trials
    if len(trials) > room:
        shown = sorted(trials, key=lambda t: (output.state(t.get("state")) in _ENDED, -int(t["id"])))[: max(room, 1)]
        shown.sort(key=lambda t: int(t["id"]))
    lines = Table.grid(padding=(0, 2))
    for trial in shown:
        lines.add_row(
            f"  trial {trial['id']}",
            output.state(trial.get("state")),
            f"{trial.get('totalBatchesProcessed') or 0} steps",
            output.number(best_metric(trial)),
            Text(output.plain(reason(trial)), overflow="ellipsis", no_wrap=True),
        )
    hidden = len(trials) - len(shown)
    more = [Text(f"  and {hidden} more")] if hidden else []
    warned = [Text(f"warning: {output.plain(about['warning'])}", style="yellow")] if about.get("warning") else []
    return Group(head, Text(output.plain(so_far(about)), overflow="ellipsis", no_wrap=True), *warned, lines, *more)


def so_far(about: Json) -> str:
    """``best validation_loss 0.25 (trial 3) · 4m05s · Ctrl-C stops only the watching``."""
    best = about.get("bestTrialSearcherMetric")
    name = about.get("searcherMetric") or "metric"
    parts = [
        "" if best is None else f"best {name} {output.digits(best)} (trial {about.get('bestTrialId')})",
        output.duration(about.get("duration")),
        "" if output.state(about.get("state")) in _ENDED else "Ctrl-C stops only the watching",
    ]
    return "  " + " · ".join(part for part in parts if part)
