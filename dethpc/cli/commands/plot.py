"""``det experiment plot`` and ``det trial plot``: curves of metrics in the terminal, as a picture, or as data."""

from __future__ import annotations

import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import click

from dethpc import errors
from dethpc.cli import output, tables
from dethpc.cli.arguments import IDS, TRIALS, Number
from dethpc.cli.commands import curves
from dethpc.cli.commands.curves import Curve
from dethpc.cli.connect import connect
from dethpc.cli.output import Json
from dethpc.domain.text.not_finite import spelled
from dethpc.domain.trial_config import SearcherConfig

_BEST = 8  # trials, as many as there are colours
_HEIGHT = 16  # rows of a chart
_GROUPS = {"avg_metrics": "training", "validation_metrics": "validation"}  # as summaries have them
_WILD = "*?[/"  # in what the master cannot look up as a name


@dataclass(frozen=True)
class Wish:
    """How curves are to be shown."""

    metrics: tuple[str, ...]
    groups: tuple[str, ...]
    x: str
    smooth: float
    log_x: bool
    log_y: bool
    width: int
    height: int
    points: int
    png: Optional[Path]
    as_csv: bool
    as_json: bool


def _options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(
        [
            click.option(
                "--metric",
                "metrics",
                multiple=True,
                metavar="NAME",
                help="This metric, or all like '*loss' (repeatable) [default: the searcher's].",
            ),
            click.option(
                "--group",
                "groups",
                multiple=True,
                metavar="NAME",
                help="Only this group of metrics: training, validation, cpu, gpu or any other (repeatable).",
            ),
            click.option(
                "--x",
                type=click.Choice(["steps", "epochs", "time"]),
                default="steps",
                show_default=True,
                help="The horizontal axis; epochs needs a metric epochs (or epoch) in each report.",
            ),
            click.option(
                "--smooth",
                type=Number(0, 1, max_open=True),
                default=0.0,
                metavar="W",
                help="Debiased exponential moving average with weight W from 0 (none) to below 1.",
            ),
            click.option("--log-x", is_flag=True, help="A logarithmic axis of steps, epochs or time."),
            click.option("--log-y", is_flag=True, help="A logarithmic axis of values."),
            click.option("--width", type=click.IntRange(40, 1000), help="Columns [default: the terminal's]."),
            click.option("--height", type=click.IntRange(4, 200), help=f"Rows of a chart [default: {_HEIGHT}]."),
            click.option(
                "--points", type=click.IntRange(0), default=0, help="With --csv or --json: about N of each (0: all)."
            ),
            click.option("--png", type=click.Path(dir_okay=False, path_type=Path), help="Write a picture instead."),
            output.as_csv,
            output.as_json,
        ]
    ):
        command = option(command)
    return command


def _wish(width: Optional[int], height: Optional[int], **rest: Any) -> Wish:
    if rest["png"] and (rest["as_csv"] or rest["as_json"]):
        raise click.UsageError("--png, --csv and --json are mutually exclusive.")
    columns = width or max(40, shutil.get_terminal_size().columns)
    return Wish(width=columns, height=height or _HEIGHT, **rest)


@click.command()
@IDS
@click.option(
    "--best", type=click.IntRange(1), default=_BEST, show_default=True, metavar="N", help="The N best trials of each."
)
@_options
def of_experiment(ids: list[int], best: int, **options: Any) -> None:
    """Plot what the best trials of experiments reported.

    \b
      det experiment plot 3                          the searcher's metric
      det experiment plot 3 --metric '*loss' --smooth 0.9 --log-y
      det experiment plot 3 --group gpu --metric '*gpu_util' --x time
    """
    from dethpc.client.nouns import experiments

    wish, session, chosen, what = _wish(**options), connect(), [], []
    searcher = None
    for number in ids:
        about = experiments.get(session, number)
        searcher = searcher or SearcherConfig.of(about.get("config") or {})
        trials = list(
            experiments.trials(
                session,
                number,
                sort_by="SORT_BY_BEST_VALIDATION_METRIC",
                limit=best,
            )
        )
        chosen += [int(trial["id"]) for trial in trials]
        total = int(about["experiment"].get("numTrials") or len(trials))
        name = f"experiment {number} ({output.plain(about['experiment'].get('name'))})"
        what.append(f"the {len(trials)} best of {total} trials of {name}" if len(trials) < total else name)
    if not chosen:
        raise errors.NotFound(f"{', '.join(what)}: no trial has started yet, so there is nothing to plot")
    assert searcher is not None
    _show(session, chosen, searcher, ", ".join(what), wish)


@click.command()
@TRIALS
@_options
def of_trial(ids: list[int], **options: Any) -> None:
    """Plot what trials reported.

    \b
      det trial plot 12                       the searcher's metric
      det trial plot 12,14 --metric loss      training and validation in one chart
      det trial plot 12 --metric '*' --png curves.png
    """
    from dethpc.client.nouns import experiments, trials

    wish, session, chosen = _wish(**options), connect(), ids
    parents = [trials.get(session, number).get("experimentId") for number in chosen]
    searcher = SearcherConfig.of(experiments.get(session, int(parents[0] or 0)).get("config") or {})
    several = "trials " if len(chosen) > 1 else "trial "
    _show(session, chosen, searcher, several + ", ".join(map(str, chosen)), wish)


def _show(session: Any, chosen: Sequence[int], searcher: SearcherConfig, what: str, wish: Wish) -> None:
    from dethpc.client.nouns import trials

    patterns = wish.metrics or (searcher.metric,)
    data = wish.as_csv or wish.as_json
    # A line has two dots to a column; four points to each keep what LTTB might miss. Smoothing wants every value.
    points = wish.points if data else 0 if wish.smooth else 8 * wish.width
    exact = () if any(c in pattern for pattern in patterns for c in _WILD) else patterns
    answers: list[Json] = []
    for group in wish.groups or ("",):
        answers += trials.series(session, chosen, names=exact, group=group, points=points)
    drawn = curves.read(answers, patterns)
    drawn.sort(key=lambda curve: (curve.metric, chosen.index(curve.trial), curve.group != "training", curve.group))
    if not drawn:
        raise errors.NotFound(_nothing(what, answers, patterns, wish.groups))
    if data:
        _print_data(drawn, wish)
        return
    if wish.smooth:
        drawn = [curves.with_smoothing(curve, wish.smooth) for curve in drawn]
    if wish.png:
        _write_picture(drawn, what, wish.png, x=wish.x, log_x=wish.log_x, log_y=wish.log_y)
        output.echo(wish.png)
        return
    for number, metric in enumerate(dict.fromkeys(curve.metric for curve in drawn)):
        if number:
            output.echo()
        _print_chart([curve for curve in drawn if curve.metric == metric], what, wish)


def _nothing(what: str, answers: Sequence[Json], patterns: Sequence[str], groups: Sequence[str]) -> str:
    """What was looked for, and what there is."""
    choice = ", ".join(patterns) + (f" in {', '.join(groups)}" if groups else "")
    summaries: dict[str, set[str]] = {}
    for answer in answers:
        for key, names in (answer["trial"].get("summaryMetrics") or {}).items():
            summaries.setdefault(_GROUPS.get(key, key), set()).update(names)
    if not any(summaries.values()):
        if all(answer["trial"].get("endTime") for answer in answers):
            return f"{what}: nothing was reported. A trial's log: det trial logs ID"
        return f"{what}: nothing was reported yet. To follow a trial's log: det trial logs -f ID"
    there = "; ".join(f"{', '.join(sorted(names))} ({group})" for group, names in sorted(summaries.items()) if names)
    return f"{what}: no number was reported as {choice}. There are: {output.plain(there)}. Choose with --metric and --group"


def _print_data(drawn: Sequence[Curve], wish: Wish) -> None:
    plots = []
    for curve in drawn:
        smooth = curves.with_smoothing(curve, wish.smooth).points if wish.smooth else curve.points
        plots.append((curve, [(p, s.value) for p, s in zip(curve.points, smooth)]))
    if wish.as_json:
        output.print_json(
            [
                {
                    "experimentId": curve.experiment,
                    "trialId": curve.trial,
                    "group": curve.group,
                    "metric": curve.metric,
                    "points": [
                        {"steps": p.steps, "epoch": p.epoch, "seconds": p.seconds, "time": p.time}
                        | {"value": spelled(p.value)}
                        | ({"smoothed": spelled(s)} if wish.smooth else {})
                        for p, s in points
                    ],
                }
                for curve, points in plots
            ]
        )
        return
    headers = ["experiment", "trial", "group", "metric", "steps", "epoch", "seconds", "time", "value"]
    rows = [
        [c.experiment, c.trial, c.group, c.metric, p.steps, _text(p.epoch), _text(p.seconds), p.time, _text(p.value)]
        + ([_text(s)] if wish.smooth else [])
        for c, points in plots
        for p, s in points
    ]
    tables.show(tables.plain([*headers, *(["smoothed"] if wish.smooth else [])], rows), tables.Layout(as_csv=True))


def _text(value: Optional[float]) -> str:
    """Every digit."""
    return "" if value is None else repr(value)


def _print_chart(drawn: Sequence[Curve], what: str, wish: Wish) -> None:
    """One metric: its chart, a table of the curves, and on stderr what the chart leaves out."""
    from dethpc.cli.commands.chart import COLOURS, Axis, Line, chart

    groups = list(dict.fromkeys(curve.group for curve in drawn))
    trials = list(dict.fromkeys(curve.trial for curve in drawn))
    unit, seconds = _unit(drawn) if wish.x == "time" else (wish.x, 1.0)
    lines = []
    for number, curve in enumerate(drawn):
        name = " ".join([str(curve.trial)] * (len(trials) > 1) + [curve.group] * (len(groups) > 1))
        points = [(x / seconds, y) for x, y in _places(curve, wish)]
        lines.append(Line(name, points, COLOURS[number % len(COLOURS)]))
    metric = drawn[0].metric + (f" ({groups[0]})" if len(groups) == 1 else "")
    smoothing = f", smoothed {wish.smooth:g}" if wish.smooth else ""
    for row in output.wrapped(f"{output.plain(metric)} over {unit}{smoothing}: {what}", 0, hanging=4):
        output.echo(row)
    if any(line.points for line in lines):
        x, y, old = Axis(wish.log_x), Axis(wish.log_y), "utf" not in (sys.stdout.encoding or "").lower()
        plotted = [line for line in lines if line.points]
        for row in chart(plotted, width=wish.width, height=wish.height, x=x, y=y, ascii_only=old):
            click.echo(row)
    headers = ["Trial", *(["Group"] if len(groups) > 1 else []), "First", "Last", "Min", "Max"]
    cells = []
    for curve in drawn:
        values = [point.value for point in curve.drawable]
        figures = [values[0], values[-1], min(values), max(values)] if values else [None] * 4
        named = [curve.trial, *([curve.group] if len(groups) > 1 else [])]
        cells.append([output.digits(value) for value in [*named, *figures]])
    for text, colour in zip(tables.aligned(headers, cells), ["", *(line.colour for line in lines)]):
        mark = "" if _plain() else click.style("━ ", fg=colour) if colour else "  "
        click.echo(mark + text)
    for one in dict.fromkeys(one for curve in drawn for one in _news(curve, wish)):
        output.say(one)


def _places(curve: Curve, wish: Wish) -> list[tuple[float, float]]:
    """Where the points of the curve are, without those that the axes cannot have; no more than a chart can show."""
    placed = [(curves.along(p, wish.x), p.value) for p in curves.thinned(curve, 8 * wish.width).drawable]
    return sorted(
        (x, y) for x, y in placed if x is not None and (x > 0 or not wish.log_x) and (y > 0 or not wish.log_y)
    )


def _plain() -> bool:
    """Without colours they would mark nothing."""
    import os

    return not sys.stdout.isatty() or bool(os.environ.get("NO_COLOR"))


def _news(curve: Curve, wish: Wish) -> list[str]:
    """What the chart cannot show."""
    who = f"trial {curve.trial}: {output.plain(curve.metric)}"
    news = []
    if curve.odd:
        first = curve.odd[0]
        news.append(f"{who} is {spelled(first.value)} after {first.steps} steps: such values are left out")
    if wish.x == "epochs" and any(point.epoch is None for point in curve.drawable):
        news.append(f"{who} has reports without a metric 'epochs', which are left out; --x steps shows them")
    if wish.log_y and any(point.value <= 0 for point in curve.drawable):
        news.append(f"{who} has values of 0 or less, which a logarithmic axis leaves out")
    return news


def _unit(drawn: Sequence[Curve]) -> tuple[str, float]:
    """The name of the time axis, and seconds in its unit."""
    longest = max((point.seconds for curve in drawn for point in curve.points), default=0.0)
    for name, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if longest >= 3 * size:
            return f"{name} since the start of the trial", size
    return "seconds since the start of the trial", 1.0


_POINTS = 4000  # of a line: more than a picture has columns


def _write_picture(lines: Sequence[Curve], title: str, path: Path, *, x: str, log_x: bool, log_y: bool) -> None:
    """Write one chart for each metric, below each other, by matplotlib (the extra ``plot``); the ending of ``path`` says the
    format (.png, .svg, .pdf).

    Raises MissingExtra, ContextError when the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise errors.NotSupportedYet("--png needs matplotlib: pip install 'dethpc[plot]'") from None
    metrics = list(dict.fromkeys(curve.metric for curve in lines))
    figure = Figure(figsize=(9, 1 + 4 * len(metrics)), layout="constrained")
    axes: Any = figure.subplots(len(metrics), 1, squeeze=False)
    figure.suptitle(title, parse_math=False)  # a name with two $ is no formula
    for metric, (ax,) in zip(metrics, axes):
        here = [curve for curve in lines if curve.metric == metric]
        for curve in here:
            placed = [(curves.along(p, x), p.value) for p in curves.thinned(curve, _POINTS).drawable]
            line = sorted((at, value) for at, value in placed if at is not None)
            marker = "o" if len(line) == 1 else ""
            ax.plot(*zip(*line), marker=marker, label=f"trial {curve.trial} {curve.group}") if line else None
        ax.set_xlabel("seconds since the start of the trial" if x == "time" else x)
        ax.set_ylabel(metric, parse_math=False)
        ax.set_xscale("log" if log_x else "linear")
        ax.set_yscale("log" if log_y else "linear")
        ax.grid(alpha=0.3)
        for text in ax.legend().get_texts():
            text.set_parse_math(False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a character that its font lacks becomes a box
            figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise errors.Refused(f"{path} was not written: {error}") from None
