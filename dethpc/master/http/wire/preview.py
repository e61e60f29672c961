"""The wire of a search's preview."""

from __future__ import annotations

from typing import Annotated, Any

from dethpc.master.http.models import Shallow, Wire


class PreviewRequest(Wire):
    config: Annotated[dict[str, Any] | None, Shallow] = None
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
