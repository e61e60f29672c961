"""Every event has its decision."""

from __future__ import annotations

from typing import get_args

from dethpc.engine import events
from dethpc.engine.decide import _DECISIONS


def test_every_event_is_decided_and_nothing_else_is() -> None:
    assert set(_DECISIONS) == set(get_args(events.Event))
