"""Ratios with their intervals on a logarithmic scale, as SVG. The same figures give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from benchmarks.frame import Figure, number

LABELS, WIDTH, VALUES, LINE = 470, 420, 170, 18  # pixels: the names, the scale, the values, a line's height
COLOURS = {"met": "#2a7f3f", "not met": "#b3261e", "not shown": "#b07a00", "": "#33608c"}


class Point(NamedTuple):
    name: str
    ratio: Figure
    kind: str = ""
    """One of ``COLOURS``."""


def plot(points: Sequence[Point], below: str, above: str) -> str:
    """One line for each point, and a line at 1; ``below`` and ``above`` say what its sides mean."""
    ends = [end for point in points for end in point.ratio.ends if end > 0]
    low = math.floor(math.log10(min([*ends, 0.5])))
    high = math.ceil(math.log10(max([*ends, 2.0])))

    def at(value: float) -> float:
        """What is 0 stands at the left end."""
        exponent = math.log10(value) if value > 0 else float(low)
        return round(LABELS + WIDTH * (exponent - low) / (high - low), 1)

    bottom = 24 + LINE * len(points)
    width, height = LABELS + WIDTH + VALUES, bottom + 24
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"',
        ' font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{at(1) - 8}" y="12" text-anchor="end" fill="#555">{escape(below)}</text>',
        f'<text x="{at(1) + 8}" y="12" fill="#555">{escape(above)}</text>',
    ]
    for exponent in range(low, high + 1):
        x, stroke = at(10.0**exponent), "#555" if exponent == 0 else "#ddd"
        lines += [
            f'<path d="M{x} 18V{bottom}" stroke="{stroke}"/>',
            f'<text x="{x}" y="{bottom + 14}" text-anchor="middle" fill="#555">{number(10.0**exponent)}</text>',
        ]
    for index, point in enumerate(points):
        y, colour = 32 + LINE * index, COLOURS[point.kind]
        left, right = (at(end) for end in point.ratio.ends)
        lines += [
            f'<text x="{LABELS - 8}" y="{y + 4}" text-anchor="end">{escape(point.name)}</text>',
            f'<path d="M{left} {y}H{right}" stroke="{colour}" stroke-width="2"/>',
            f'<circle cx="{at(point.ratio.middle)}" cy="{y}" r="4" fill="{colour}"/>',
            f'<text x="{LABELS + WIDTH + 10}" y="{y + 4}" fill="{colour}">{escape(str(point.ratio))}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"
