"""The shuffle of numpy's ``RandomState``, with the standard library alone: a run that began with Determined goes on in the
same order.

Python has numpy's generator (MT19937), but seeds it in another way and draws from it in another way.
"""

from __future__ import annotations

import random
from typing import Any, List

_WORDS = 624


class RandomState:
    """What ``numpy.random.RandomState(seed)`` shuffles to. Raises ValueError for a seed outside 0 to 2**32 - 1."""

    def __init__(self, seed: int) -> None:
        if not 0 <= seed < 1 << 32:
            raise ValueError(f"the seed of a shuffle is a whole number from 0 to 2**32 - 1, not {seed}")
        state = [int(seed)]
        for n in range(1, _WORDS):  # how the generator's authors seed it from one number
            state.append((1812433253 * (state[-1] ^ (state[-1] >> 30)) + n) & 0xFFFFFFFF)
        self._generator = random.Random()
        self._generator.setstate((3, (*state, _WORDS), None))

    def shuffle(self, items: List[Any]) -> None:
        for last in range(len(items) - 1, 0, -1):
            chosen = self._at_most(last)
            items[last], items[chosen] = items[chosen], items[last]

    def _at_most(self, most: int) -> int:
        """Numbers of as many bits are drawn until one is small enough."""
        mask = (1 << most.bit_length()) - 1
        while (drawn := self._generator.getrandbits(32) & mask) > most:
            pass
        return drawn
