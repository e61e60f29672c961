"""``det experiment wait``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import IDS, Number
from dethpc.cli.connect import connect, reconnect
from dethpc.cli.output import Json
from dethpc.domain.progress import progress
from dethpc.domain.text.times import seconds

EXIT_CODES = {"COMPLETED": 0, "CANCELED": 3}
_ENDED = {"COMPLETED", "CANCELED", "ERROR", "DELETE_FAILED", "DELETED"}
_MANY = 1000  # trials; beyond, only the experiment itself is watched


@click.command()
@IDS
@click.option(
    "--polling-interval", type=Number(0.1, 86_400), default=2.0, show_default=True, help="Seconds between two polls."
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; only set the exit code.")
def wait(ids: list[int], polling_interval: float, quiet: bool) -> None:
    """Wait until all of these experiments have ended.

    On a terminal there is a bar for each and a line per trial; in a pipe each change is a line.

    Exit codes: 0 all completed; 1 one ended in an error, or the request failed; 3 one was canceled or killed, and none ended in an
    error; 130 interrupted (the experiments continue).
    """
    look = _looking(ids)
    try:
        if quiet:
            states = _watch(look, polling_interval, lambda _: None)
        elif sys.stdout.isatty():
            states = _on_terminal(_looking(ids, closely=True), polling_interval)
        else:
            states = _watch(look, polling_interval, _Lines())
    except KeyboardInterrupt:
        again = f"det experiment wait {' '.join(map(str, ids))}"
        which = "the experiment continues" if len(ids) == 1 else "the experiments continue"
        output.say(f"\nStopped waiting; {which}. To wait again: {again}")
        raise click.exceptions.Exit(130) from None
    codes = {EXIT_CODES.get(state, 1) for state in states}
    raise click.exceptions.Exit(1 if 1 in codes else max(codes))


def until_ended(experiment_id: int, *, to_stderr: bool = False) -> str:
    """Show how the experiment goes until it has ended; the state in which it did. What is not for a terminal goes, if asked, to
    stderr."""
    if sys.stdout.isatty() and not to_stderr:
        return _on_terminal(_looking([experiment_id], closely=True), 1.0)[0]
    return _watch(_looking([experiment_id]), 1.0, _Lines(to_stderr))[0]


def quietly(experiment_id: int) -> str:
    """The state in which it ended."""
    return _watch(_looking([experiment_id]), 0.5, lambda _: None)[0]


Answers = list[tuple[Json, list[Json]]]  # experiments, each with its trials
Look = Callable[[], Answers]
Show = Callable[[Answers], None]


def _looking(ids: Sequence[int], *, closely: bool = False) -> Look:
    """Returns a function that fetches experiments and their trials, and bears with a master that restarts; the user's own is
    started again where it was killed. An experiment that has ended is not asked for again. ``closely``: estimate ends."""
    from dethpc.client.nouns import experiments
    from dethpc.client.session import patiently

    again = reconnect(connect())
    ended: dict[int, tuple[Json, list[Json]]] = {}

    def one(session: Any, number: int) -> tuple[Json, list[Json]]:
        if number in ended:
            return ended[number]
        about = experiments.get(session, number)["experiment"]
        few = int(about.get("numTrials") or 0) <= _MANY
        answer = about, list(experiments.trials(session, number)) if few else []
        if output.state(about.get("state")) in _ENDED:
            ended[number] = answer
        elif closely:
            about["estimatedEndTime"] = experiments.search(session, number, limit=1).get("estimatedEndTime")
        return answer

    def look() -> Answers:
        session = again()
        return [one(session, number) for number in ids]

    return lambda: patiently(look)


def _watch(look: Look, interval: float, show: Show) -> list[str]:
    while True:
        answers = look()
        show(answers)
        states = [output.state(about.get("state")) for about, _ in answers]
        if _ENDED.issuperset(states):
            return states
        time.sleep(interval)


class _Lines:
    """A line for each change of a state. A trial that restarts again and again says the same but once, and a reason that another
    trial had before is named by that trial."""

    def __init__(self, to_stderr: bool = False) -> None:
        self.shown: dict[str, str] = {}
        self.said: set[str] = set()
        self.had: dict[str, int] = {}  # the trial that first had a reason
        self.to_stderr = to_stderr

    def __call__(self, answers: Answers) -> None:
        for about, trials in answers:
            self._tell(about, trials)

    def _tell(self, about: Json, trials: list[Json]) -> None:
        from dethpc.cli.describe import reason
        from dethpc.cli.trial_table import best_metric

        for trial in trials:
            metric, why = best_metric(trial), reason(trial)
            details = output.plural(trial.get("totalBatchesProcessed") or 0, "step")
            details += (
                f", {about.get('searcherMetric') or 'metric'} {output.digits(metric)}" if metric is not None else ""
            )
            if why and (first := self.had.setdefault(why, trial["id"])) != trial["id"]:
                why = f"as trial {first}"
            self._line(f"trial {trial['id']}", trial, details + (f": {why}" if why else ""))
        paused = output.state(about.get("state")) == "PAUSED"
        resume = f"to resume it: det experiment activate {about['id']}" if paused else ""
        self._line(f"experiment {about['id']}", about, "; ".join(filter(None, [reason(about), resume])))
        warned = f"warning {about['id']}"
        if about.get("warning") and warned not in self.shown:
            self.shown[warned] = "told"
            output.echo(f"experiment {about['id']}: warning: {about['warning']}", err=self.to_stderr)

    def _line(self, noun: str, about: Json, details: str) -> None:
        if self.shown.get(noun) != output.standing(about):
            self.shown[noun] = output.standing(about)
            details = "; ".join(filter(None, [output.holding(about), details]))
            line = f"{noun}: {tables.STANDING.full(output.standing(about))}" + (f" ({details})" if details else "")
            if noun.startswith("trial") and line in self.said:
                return
            self.said.add(line)
            output.echo(line, err=self.to_stderr)


def _on_terminal(look: Look, interval: float) -> list[str]:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console()
    with Live(Text("..."), console=console, refresh_per_second=8, vertical_overflow="crop") as live:

        def draw(answers: Answers) -> None:
            most_rows = max(1, (console.height - 1) // len(answers) - 5)
            live.update(Group(*(_picture(about, trials, most_rows) for about, trials in answers)))

        return _watch(look, interval, draw)


def _picture(about: Json, trials: list[Json], most_rows: int) -> Any:
    """A bar for the experiment, then a line per trial: those that run first, when not all of them fit."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    from dethpc.cli.describe import reason
    from dethpc.cli.trial_table import best_metric

    done = 1.0 if output.state(about.get("state")) == "COMPLETED" else progress(about)
    head = Table.grid(padding=(0, 1))
    head.add_row(
        f"Experiment {about['id']}",
        ProgressBar(total=1, completed=done or 0, width=40),
        "-" if done is None else output.percent(done),
        output.standing(about),
        Text(output.plain(reason(about))),
    )
    shown = trials
    if len(trials) > most_rows:
        shown = sorted(trials, key=lambda t: (output.state(t.get("state")) in _ENDED, -int(t["id"])))[
            : max(most_rows, 1)
        ]
        shown.sort(key=lambda t: int(t["id"]))
    lines = Table.grid(padding=(0, 2))
    for trial in shown:
        lines.add_row(
            f"  trial {trial['id']}",
            output.standing(trial),
            output.plural(trial.get("totalBatchesProcessed") or 0, "step"),
            output.digits(best_metric(trial)),
            Text(output.plain(reason(trial)), overflow="ellipsis", no_wrap=True),
        )
    hidden = len(trials) - len(shown)
    more = [Text(f"  and {hidden} more")] if hidden else []
    warned = [Text(f"warning: {output.plain(about['warning'])}", style="yellow")] if about.get("warning") else []
    return Group(head, Padding(Text(output.plain(so_far(about))), (0, 0, 0, 2)), *warned, lines, *more)


def so_far(about: Json) -> str:
    """``best validation_loss 0.25 (trial 3) · 4m05s · about 12m10s to go · 8 slots · Ctrl-C stops only the watching``."""
    ended, slots = output.state(about.get("state")) in _ENDED, about.get("heldSlots")
    paused = output.state(about.get("state")) == "PAUSED"
    best = about.get("bestTrialSearcherMetric")
    name = about.get("searcherMetric") or "metric"
    parts = [
        "" if best is None else f"best {name} {output.digits(best)} (trial {about.get('bestTrialId')})",
        output.duration(about.get("duration")),
        f"to resume it: det experiment activate {about['id']}" if paused else "" if ended else _to_go(about),
        "" if ended or slots is None else output.plural(slots, "slot"),
        "" if ended else "Ctrl-C stops only the watching",
    ]
    return " · ".join(part for part in parts if part)


def _to_go(about: Json) -> str:
    end = about.get("estimatedEndTime")
    if not end:
        return ""
    return f"about {output.duration(max(0.0, seconds(end) - output.now()))} to go"
