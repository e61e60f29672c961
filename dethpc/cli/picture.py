"""Curves as a picture file, by matplotlib (the extra ``plot``)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dethpc import errors
from dethpc.cli import curves
from dethpc.cli.curves import Curve

_POINTS = 4000  # of a line: more than a picture has columns


def draw(lines: Sequence[Curve], title: str, path: Path, *, x: str, log_x: bool, log_y: bool) -> None:
    """Write one chart for each metric, below each other; the ending of ``path`` says the format (.png, .svg, .pdf).

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
