"""The wire of a search's preview."""

from __future__ import annotations

from typing import Any

from dethpc.master.http.wire.base import Wire


class PreviewRequest(Wire):
    config: dict[str, Any] | None = None
    seed: int | None = None


class SearchUnit(Wire):
    """``value`` of the unit ``name``; with ``max_length``, a trial trains to its own end instead."""

    name: str | None = None
    value: int | None = None
    max_length: bool = False


class TrialSummary(Wire):
    count: int
    unit: SearchUnit


class SearchSummary(Wire):
    config: dict[str, Any]
    trials: list[TrialSummary]


class Preview(Wire):
    summary: SearchSummary
