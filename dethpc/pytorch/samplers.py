"""Samplers to build on: each takes another and repeats, shards, skips or shuffles what that one yields.

The order that works is: shuffle, repeat, shard, skip. A shuffle over an endless sampler would never begin, and a skip
below a repeat would be applied in each epoch.
"""

from __future__ import annotations

import itertools
import random
from typing import Any, Iterator, List

import torch.utils.data


class RepeatSampler(torch.utils.data.Sampler):
    """Goes through ``sampler`` over and over. Its length is that of one round."""

    def __init__(self, sampler: torch.utils.data.Sampler) -> None:
        self._sampler = sampler

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        return _over_and_over(self._sampler)


class RepeatBatchSampler(torch.utils.data.BatchSampler):
    """Goes through ``batch_sampler`` over and over. Its length is that of one round."""

    def __init__(self, batch_sampler: torch.utils.data.BatchSampler) -> None:
        self.batch_sampler = batch_sampler

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        return _over_and_over(self.batch_sampler)


class DistributedSampler(torch.utils.data.Sampler):
    """Every ``num_workers``-th item of ``sampler``, from item ``rank`` on.

    PyTorch's class of this name shuffles a dataset of known length itself; this one is a link in a chain.
    """

    def __init__(self, sampler: torch.utils.data.Sampler, num_workers: int, rank: int) -> None:
        self._sampler = sampler
        self._num_workers = num_workers
        self._rank = rank

    def __len__(self) -> int:
        return _share(len(self._sampler), self._num_workers, self._rank)

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self._sampler, self._rank, None, self._num_workers)


class DistributedBatchSampler(torch.utils.data.BatchSampler):
    """Every ``num_workers``-th batch of ``batch_sampler``, from batch ``rank`` on.

    Over a sampler that ends, some ranks may get one batch more than others; over one that repeats, none does.
    """

    def __init__(self, batch_sampler: torch.utils.data.BatchSampler, num_workers: int, rank: int) -> None:
        if num_workers < 1 or not 0 <= rank < num_workers:
            raise ValueError(f"rank {rank} of {num_workers} workers is not possible")
        self.batch_sampler = batch_sampler
        self.num_workers = num_workers
        self.rank = rank

    def __len__(self) -> int:
        return _share(len(self.batch_sampler), self.num_workers, self.rank)

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self.batch_sampler, self.rank, None, self.num_workers)


class SkipSampler(torch.utils.data.BatchSampler):
    """Leaves out the first ``skip`` items of ``sampler``. Its length is that of ``sampler``, for a skip comes after a repeat.

    Training counts batches, so skipping records resumes in the right place only where all batches have the same size.
    """

    def __init__(self, sampler: torch.utils.data.BatchSampler, skip: int) -> None:
        self._sampler = sampler
        self._skip = skip

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self._sampler, self._skip, None)


class SkipBatchSampler(torch.utils.data.BatchSampler):
    """Leaves out the first ``skip`` batches of ``batch_sampler``. Its length is that of ``batch_sampler``."""

    def __init__(self, batch_sampler: torch.utils.data.BatchSampler, skip: int) -> None:
        self.batch_sampler = batch_sampler
        self.skip = skip
        self.length = len(batch_sampler)

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self.batch_sampler, self.skip, None)


class ReproducibleShuffleSampler(torch.utils.data.Sampler):
    """Shuffles ``sampler``, again in each epoch, in an order that follows from ``seed`` alone: Determined's."""

    def __init__(self, sampler: torch.utils.data.Sampler, seed: int) -> None:
        self._sampler = sampler
        self._rng = RandomState(seed)

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        return iter(_shuffled(self._sampler, self._rng))


class ReproducibleShuffleBatchSampler(torch.utils.data.Sampler):
    """Shuffles whole batches of ``batch_sampler``, again in each epoch, in an order that follows from ``seed`` alone: Determined's.

    Shuffling records is the better shuffle: here a batch has the same records in every epoch.
    """

    def __init__(self, batch_sampler: torch.utils.data.BatchSampler, seed: int) -> None:
        self._batch_sampler = batch_sampler
        self._rng = RandomState(seed)

    def __len__(self) -> int:
        return len(self._batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        return iter(_shuffled(self._batch_sampler, self._rng))


def _over_and_over(sampler: Any) -> Iterator[Any]:
    while True:
        items = iter(sampler)
        try:
            yield next(items)
        except StopIteration:  # for ever, if it were tried again
            raise RuntimeError("the training data loader yields no batch") from None
        yield from items


def _share(length: int, workers: int, rank: int) -> int:
    return length // workers + (length % workers > rank)


def _shuffled(sampler: Any, rng: RandomState) -> list[Any]:
    items = list(sampler)
    rng.shuffle(items)
    return items


_STATE_WORDS = 624


class RandomState:
    """Shuffles as ``numpy.random.RandomState(seed)`` does, with the standard library alone: a run that began with Determined goes
    on in the same order. Raises ValueError for a seed outside 0 to 2**32 - 1.

    Python has numpy's generator (MT19937), but seeds it in another way and draws from it in another way.
    """

    def __init__(self, seed: int) -> None:
        if not 0 <= seed < 1 << 32:
            raise ValueError(f"the seed of a shuffle is a whole number from 0 to 2**32 - 1, not {seed}")
        state = [int(seed)]
        for n in range(1, _STATE_WORDS):  # how the generator's authors seed it from one number
            state.append((1812433253 * (state[-1] ^ (state[-1] >> 30)) + n) & 0xFFFFFFFF)
        self._generator = random.Random()
        self._generator.setstate((3, (*state, _STATE_WORDS), None))

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
