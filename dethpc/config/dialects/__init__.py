"""Older generations of configurations, translated to the present one. One file per generation, oldest first.

A generation is a pure function from the plain data of a configuration to edits of it. What it makes of a configuration of a
later generation, and of its own result, is no edit at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dethpc.config.dialects import lengths, steps
from dethpc.config.dialects.edit import Edit, edited
from dethpc.errors import Problem

GENERATIONS: tuple[Callable[[Mapping[str, Any]], tuple[list[Edit], list[Problem]]], ...] = (
    steps.translate,
    lengths.translate,
)


class Translation(NamedTuple):
    """``data`` after all ``edits``, in order. Where there are ``problems``, it holds stand-ins for the mistaken values."""

    data: dict[str, Any]
    edits: list[Edit]
    problems: list[Problem]


def translate(data: dict[str, Any]) -> Translation:
    """The configuration in its present form. ``data`` itself is left as it is."""
    edits: list[Edit] = []
    problems: list[Problem] = []
    for generation in GENERATIONS:
        changes, wrong = generation(data)
        data = edited(data, changes)
        edits += changes
        problems += wrong
    return Translation(data, edits, problems)
