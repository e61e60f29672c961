"""Datasets of the data layer as PyTorch datasets."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Tuple

import torch
from torch.utils import data

from dethpc.data_layer import Caching, Order, Records
from dethpc.domain.trial_config import TrialConfig


class CachedDataset(data.Dataset):
    """A map-style dataset of cached records. ``determined.pytorch.DataLoader`` goes through it in the order that the decorator was
    asked for, shards and resumes it.

    ``map(function)`` is the same dataset with ``function`` applied to each record when it is read: for what is random, such as
    augmentation, or too large to be kept.
    """

    def __init__(self, records: Records, order: Order, functions: Tuple[Callable[[Any], Any], ...] = ()) -> None:
        self._records, self._order, self._functions = records, order, functions

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> Any:
        record = self._records[index]
        for function in self._functions:
            record = function(record)
        return record

    def map(self, function: Callable[[Any], Any]) -> CachedDataset:
        return CachedDataset(self._records, self._order, (*self._functions, function))

    def sampler(self) -> EpochSampler:
        """Goes through the records in the order that was asked for, one epoch each time."""
        return EpochSampler(len(self), self._order)


class EpochSampler(data.Sampler):
    """The indexes of one epoch after the other: each time that it is gone through, those of the next."""

    def __init__(self, length: int, order: Order) -> None:
        self._length, self._order, self._next = length, order, 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        epoch, self._next = self._next, self._next + 1
        return iter(self._order.epoch(self._length, epoch))

    def begin_at(self, epoch: int) -> None:
        """What comes next is epoch number ``epoch``, from 0."""
        self._next = epoch


def caching(exp_conf: Optional[Mapping[str, Any]], seed: Optional[int]) -> Caching[CachedDataset]:
    """Of a trial; ``seed``: None outside the cluster, where PyTorch's own counts."""
    return Caching(
        TrialConfig.from_json(exp_conf or {}).data_layer,
        torch.initial_seed() % 2**63 if seed is None else seed,
        _items,
        lambda r, order, _: CachedDataset(r, order),
    )


def _items(source: Any) -> Iterable[Any]:
    """Of a map-style or iterable dataset, or any other iterable. Raises TypeError."""
    if isinstance(source, data.DataLoader) or isinstance(source, (dict, str, bytes)) or source is None:
        raise TypeError(
            f"a cached function returns a dataset, or an iterable of records, and not a {type(source).__name__}: batches are made "
            "of what is cached"
        )
    if not isinstance(source, data.IterableDataset) and hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return (source[n] for n in range(len(source)))
    if not hasattr(source, "__iter__"):
        raise TypeError(
            f"a cached function returns a dataset, or an iterable of records, and not a {type(source).__name__}"
        )
    items: Iterable[Any] = iter(source)
    return items
