"""Line charts and sparklines as text. Plotille draws the lines in braille dots; axes, their ticks and names are here."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

COLOURS = ("cyan", "yellow", "magenta", "green", "red", "blue", "bright_cyan", "bright_yellow")
_LABELS = 12  # columns at the right for the names of the lines
_BLANK = "\u2800"  # a braille cell without a dot
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Line:
    """Points with x ascending, and what is written where the line ends."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str


@dataclass(frozen=True)
class Axis:
    """``log``: equal ratios take equal room; every value on such an axis is above 0."""

    log: bool = False
    text: Callable[[float], str] = "{:.4g}".format

    def place(self, value: float) -> float:
        return math.log10(value) if self.log else value


def chart(lines: Sequence[Line], *, width: int, height: int, x: Axis, y: Axis, ascii_only: bool = False) -> list[str]:
    """Lines of text, ``width`` columns at most: the lines, values at the left, the axis ``x`` below. At least one point."""
    from plotille import Canvas

    xs = [x.place(point[0]) for line in lines for point in line.points]
    ys = [y.place(point[1]) for line in lines for point in line.points]
    (x_min, x_max), (low, high) = _range(xs), _range(ys)
    rows = _ticks(low, high, max(2, height // 3), y)
    margin = max(len(text) for _, text in rows)
    plot_width = max(10, width - margin - 3 - _LABELS)
    # Plotille's ranges leave their upper end out.
    over = (x_max - x_min) / (plot_width * 2 - 1), (high - low) / (height * 4 - 1)
    canvas = Canvas(plot_width, height, x_min, low, x_max + over[0], high + over[1])
    names: dict[int, list[str]] = {}
    for line in lines:
        placed = [(x.place(a), y.place(b)) for a, b in line.points]
        for (x0, y0), (x1, y1) in zip(placed, placed[1:]):
            canvas.line(x0, y0, x1, y1, color=line.colour)
        if len(placed) == 1:
            canvas.point(*placed[0], color=line.colour, marker="o" if ascii_only else "●")
        if placed:
            names.setdefault(_row(placed[-1][1], low, high, height), []).append(line.name)
    drawn = canvas.plot(linesep="\n").split("\n")  # the topmost row first
    if ascii_only:
        drawn = ["".join(" " if c == _BLANK else "*" if c > _BLANK else c for c in row) for row in drawn]
    labels = {_row(value, low, high, height): text for value, text in rows}
    bar, corner, dash = ("|", "+", "-") if ascii_only else ("│", "└", "─")
    text = []
    for number in range(height - 1, -1, -1):
        row = drawn[height - 1 - number].replace(_BLANK, " ")
        text.append(f"{labels.get(number, ''):>{margin}} {bar}{row} {_cut(','.join(names.get(number, [])))}".rstrip())
    text.append(f"{'':>{margin}} {corner}{dash * plot_width}")
    text.append(
        f"{'':>{margin}}  {_below(_ticks(x_min, x_max, max(2, plot_width // 14), x), x_min, x_max, plot_width)}".rstrip()
    )
    return text


def sparkline(values: Sequence[float], width: int = 12) -> str:
    """Bars from the least value to the greatest, the last of each of ``width`` stretches; what is no number is left out."""
    numbers = [value for value in values if math.isfinite(value)]
    if len(numbers) > width:
        numbers = [numbers[(i + 1) * len(numbers) // width - 1] for i in range(width)]
    if len(numbers) < 2:
        return ""
    low, high = min(numbers), max(numbers)
    span = high - low
    if not math.isfinite(span) or span <= 0:
        return _BARS[0] * len(numbers)
    return "".join(_BARS[min(7, int(8 * (value - low) / span))] for value in numbers)


def _range(values: Sequence[float]) -> tuple[float, float]:
    """The least and the greatest; a little around a single value."""
    low, high = min(values), max(values)
    if high - low > 1e-12 * max(abs(low), abs(high)):
        return low, high
    around = abs(low) * 0.05 or 0.5
    return low - around, high + around


def _row(value: float, low: float, high: float, height: int) -> int:
    return min(height - 1, max(0, int((value - low) / (high - low) * height)))


def _ticks(low: float, high: float, count: int, axis: Axis) -> list[tuple[float, str]]:
    """Round values from ``low`` to ``high`` in places of the axis, each with its text; the ends where no round value is between."""
    if axis.log:
        decades = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
        every = max(1, math.ceil(len(decades) / max(1, count)))
        marks = [float(decade) for decade in decades[::every]]
        if len(marks) < 2:
            parts = [math.log10(m) + d for d in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5)]
            marks = [part for part in parts if low <= part <= high]
        if len(marks) < 2:
            marks = [low, high]
        return [(place, axis.text(10**place)) for place in marks]
    step = _round_step((high - low) / max(1, count))
    first = math.ceil(low / step - 1e-9)
    marks = [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)] or [low, high]
    digits = max(0, -math.floor(math.log10(step)) + (1 if f"{step:.1e}".startswith("2.5") else 0))
    return [(place, axis.text(round(place, min(digits, 300)) + 0.0)) for place in marks]


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= rough * 0.999)


def _below(ticks: Sequence[tuple[float, str]], x_min: float, x_max: float, plot_width: int) -> str:
    """The texts under their places, as many as have room."""
    text = ""
    for place, name in ticks:
        at = round((place - x_min) / (x_max - x_min) * (plot_width - 1)) - len(name) // 2
        at = min(max(at, 0), plot_width + _LABELS - len(name))
        if at >= len(text) + (2 if text else 0):
            text = text.ljust(at) + name
    return text


def _cut(text: str) -> str:
    return text if len(text) < _LABELS else text[: _LABELS - 4] + "..."
