"""How many examples a property is tried with."""

from __future__ import annotations

from hypothesis import settings


def examples(number: int) -> int:
    """``number``; in the quick ring as many fewer as its profile has fewer than Hypothesis' usual hundred."""
    return max(1, number * settings().max_examples // 100)
