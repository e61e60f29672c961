"""Order of the records in an epoch. It depends on the trial's seed and the number of the epoch alone, so that a resumed run and
every worker compute the same."""

from __future__ import annotations

import random
from typing import NamedTuple, Sequence


class Order(NamedTuple):
    """``shuffle``: not the order of the dataset; ``reshuffle``: another one in each epoch."""

    seed: int = 0
    shuffle: bool = False
    reshuffle: bool = True

    def epoch(self, length: int, epoch: int) -> Sequence[int]:
        """The indexes of all ``length`` records, each once, as epoch number ``epoch`` (from 0) goes through them."""
        if not self.shuffle:
            return range(length)
        indexes = list(range(length))
        random.Random(f"{self.seed}:{epoch if self.reshuffle else 0}").shuffle(indexes)
        return indexes
