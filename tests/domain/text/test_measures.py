"""How lengths of time and sizes are written for people."""

from __future__ import annotations

import pytest

from dethpc.cli import output
from dethpc.domain.text import measures
from dethpc.web import show


@pytest.mark.parametrize(
    "value, text",
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (96 * 2**20, "96.0 MiB"), (5 * 2**40, "5.0 TiB")],
)
def test_sizes_are_read_by_people(value: int, text: str) -> None:
    assert measures.size(value) == text


@pytest.mark.parametrize(
    "seconds, said",
    [
        (None, ""),
        (0, "0s"),
        (0.94, "0.9s"),
        (59.9, "59s"),
        (236, "3m56s"),
        (7500, "2h05m"),
        (3 * 86400 + 4 * 3600, "3d04h"),
    ],
)
def test_durations_have_two_units(seconds: float, said: str) -> None:
    assert measures.duration(seconds) == said


def test_parts_are_whole_percents() -> None:
    assert [measures.percent(part) for part in (None, 0, 0.123, 1)] == ["", "0%", "12%", "100%"]


def test_det_and_the_pages_write_them_alike() -> None:
    assert output.duration is measures.duration is show.FILTERS["duration"]
    assert output.percent is measures.percent is show.FILTERS["percent"]
    assert output.size(1536) == show.size("1536") == "1.5 KiB"
    assert show.size("") == show.size(None) == ""
