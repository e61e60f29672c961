"""What a decision consists of."""

from __future__ import annotations

from dataclasses import dataclass, field

from dethpc.domain.facts import Row
from dethpc.engine.events import Event


@dataclass(slots=True)
class Decision:
    """Rows to write, in order, and events that follow from them. ``loaded`` rows are in the store already: they come before the
    others, into memory alone."""

    loaded: list[Row] = field(default_factory=list, kw_only=True)
    rows: list[Row] = field(default_factory=list)
    then: list[Event] = field(default_factory=list)
