"""Data for training: a loader that resumes within an epoch, and moving batches to a device."""

from __future__ import annotations

import logging
import sys
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Set, Type, Union

import torch
from torch.utils import data
from torch.utils.data import _utils

from dethpc.pytorch import samplers
from dethpc.pytorch._cached import CachedDataset, EpochSampler

logger = logging.getLogger("dethpc.pytorch")

_Array = Any  # numpy.ndarray or torch.Tensor
_Data = Union[Dict[str, _Array], Sequence[_Array], _Array]
TorchData = Union[Dict[str, torch.Tensor], Sequence[torch.Tensor], torch.Tensor]


class DataLoader:
    """As ``torch.utils.data.DataLoader``, of a map-style dataset: same arguments, same defaults.

    The trainer makes the real loader from it: sharded over the slots, repeated for training, and continued at the batch at
    which the training goes on. The shuffle follows from the seed of PyTorch's default generator at construction (the trial's
    seed), or from ``generator``, and from nothing else: it is the same in each run and on every slot, however much
    randomness the training itself uses. Randomness inside loader workers (``num_workers`` > 0) does not resume in the
    middle of an epoch.
    """

    def __init__(
        self,
        dataset: data.Dataset,
        batch_size: Optional[int] = 1,
        shuffle: bool = False,
        sampler: Optional[data.Sampler] = None,
        batch_sampler: Optional[data.BatchSampler] = None,
        num_workers: int = 0,
        collate_fn: Optional[Callable[[list[Any]], Any]] = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Optional[Callable[[int], None]] = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: Optional[int] = None,
        persistent_workers: bool = False,
    ) -> None:
        if isinstance(dataset, data.IterableDataset):
            raise ValueError(
                "an IterableDataset has no order that could be sharded or resumed: return a torch.utils.data.DataLoader of it, "
                "after context.experimental.disable_dataset_reproducibility_checks()"
            )
        if batch_sampler is None and batch_size is None:
            raise ValueError("batch_size=None without a batch_sampler is not possible here: there would be no batches")
        if num_workers < 0 or timeout < 0:
            raise ValueError("num_workers and timeout are at least 0")
        if num_workers == 0 and (prefetch_factor is not None or persistent_workers):
            raise ValueError("prefetch_factor and persistent_workers need num_workers > 0")
        if prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError("prefetch_factor is at least 0")
        if sampler is not None and shuffle:
            raise ValueError("sampler and shuffle exclude each other")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler excludes batch_size, shuffle, sampler and drop_last")
            batch_size, drop_last = None, False
            _seeded(getattr(batch_sampler, "sampler", None))
        else:
            if sampler is None:
                sampler = _sampler(dataset, shuffle, generator)
            _seeded(sampler)
            batch_sampler = data.BatchSampler(sampler, batch_size, drop_last)
        self.dataset = dataset
        self.batch_size = batch_size
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.num_workers = num_workers
        self.collate_fn = collate_fn or _utils.collate.default_collate
        self.pin_memory = pin_memory
        self.drop_last = drop_last
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.persistent_workers = persistent_workers

    def get_data_loader(
        self, repeat: bool = False, skip: int = 0, num_replicas: int = 1, rank: int = 0
    ) -> data.DataLoader:
        """PyTorch's loader of the batches of slot ``rank`` of ``num_replicas``, without its first ``skip`` ones."""
        assert self.batch_sampler is not None
        if repeat and isinstance(self.sampler, EpochSampler):
            adapted = self._from_epoch(self.sampler, skip * num_replicas, num_replicas, rank)
        else:
            adapted = adapt_batch_sampler(self.batch_sampler, repeat, skip, num_replicas, rank)
        return data.DataLoader(
            self.dataset,
            batch_sampler=adapted,
            num_workers=self.num_workers,
            collate_fn=self.collate_fn,
            pin_memory=self.pin_memory,
            timeout=self.timeout,
            worker_init_fn=self.worker_init_fn,
            multiprocessing_context=self.multiprocessing_context,
            generator=self.generator,
            prefetch_factor=self.prefetch_factor,
            persistent_workers=self.persistent_workers,
        )

    def _from_epoch(self, sampler: EpochSampler, skip: int, num_replicas: int, rank: int) -> data.BatchSampler:
        """As ``adapt_batch_sampler``, without drawing the orders of epochs that are over. ``skip``: batches over all slots."""
        assert self.batch_sampler is not None
        over, within = divmod(skip, max(1, len(self.batch_sampler)))
        sampler.begin_at(over)
        repeated = adapt_batch_sampler(self.batch_sampler, repeat=True, skip=within)
        return adapt_batch_sampler(repeated, num_replicas=num_replicas, rank=rank)

    def __iter__(self) -> Iterator[Any]:
        """One epoch on one slot, for use without a trainer."""
        return iter(self.get_data_loader())

    def __len__(self) -> int:
        """Batches of an epoch, over all slots."""
        return len(self.batch_sampler)


def adapt_batch_sampler(
    batch_sampler: data.BatchSampler,
    repeat: bool = False,
    skip: int = 0,
    num_replicas: int = 1,
    rank: int = 0,
) -> data.BatchSampler:
    """``batch_sampler`` repeated, sharded over ``num_replicas`` slots, and without this slot's first ``skip`` batches."""
    if repeat:
        batch_sampler = samplers.RepeatBatchSampler(batch_sampler)
    if num_replicas > 1:
        batch_sampler = samplers.DistributedBatchSampler(batch_sampler, num_replicas, rank)
    if skip > 0:
        batch_sampler = samplers.SkipBatchSampler(batch_sampler, skip)
    return batch_sampler


class Batches:
    """The batches of ``loader`` without an end: one that ends with the epoch is gone through again.

    ``drawn`` counts them, from what it is given on.
    """

    def __init__(self, loader: Any, drawn: int = 0) -> None:
        self.drawn = drawn
        self._loader = loader
        self._iterator = iter(loader)

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        batch = next(self._iterator, self)
        if batch is self:
            self._iterator = iter(self._loader)
            batch = next(self._iterator, self)
            if batch is self:
                raise RuntimeError("the training data loader yields no batch")
        self.drawn += 1
        return batch


def _sampler(dataset: Any, shuffle: bool, generator: Any) -> data.Sampler:
    """A cached dataset has an order of its own."""
    if shuffle:
        return data.RandomSampler(dataset, generator=generator)
    return dataset.sampler() if isinstance(dataset, CachedDataset) else data.SequentialSampler(dataset)


def _seeded(sampler: Any) -> None:
    """PyTorch's random samplers draw from the default generator unless they have their own: then the order would depend on
    what else the training draws, and would not come again after a restart."""
    if getattr(sampler, "generator", False) is None:
        sampler.generator = torch.Generator()
        sampler.generator.manual_seed(torch.initial_seed() % 2**63)


def batches_of_epoch(loader: Any) -> Optional[int]:
    """How many batches ``loader`` has; None when it cannot say. DeepSpeed's loader that repeats another has that one's."""
    try:
        return len(loader)
    except TypeError:
        inner = getattr(loader, "loader", None)
        return None if inner is None else batches_of_epoch(inner)


def _dataset_repro_warning(fn: str, data_obj: Any, is_deepspeed_trial: bool = False) -> str:
    where = "context" if is_deepspeed_trial else "context.experimental"
    return (
        f"{fn}() returned a {type(data_obj).__name__}: return a determined.pytorch.DataLoader, which shards, shuffles and resumes "
        f"in a reproducible way, or call {where}.disable_dataset_reproducibility_checks() in __init__() to do that yourself"
    )


def data_length(data: _Data) -> int:
    """Records of a batch: the length of its first array or tensor. Raises ValueError when it is empty, TypeError."""
    if isinstance(data, torch.Tensor) or _is_array(data):
        return len(data)
    if isinstance(data, (dict, list, tuple)):
        if not data:
            raise ValueError("a batch without any tensor has no length; override get_batch_length()")
        return len(next(iter(data.values())) if isinstance(data, dict) else data[0])
    raise TypeError(f"a batch of type {type(data).__name__} has no known length; override get_batch_length()")


def to_device(data: Any, device: torch.device, warned_types: Optional[Set[Type[Any]]] = None) -> TorchData:
    """``data`` with every tensor, and all else that has ``.to()``, on ``device``; numpy arrays of numbers become tensors.

    What cannot be moved stays as it is, with a warning once for each type in ``warned_types``.
    """
    if isinstance(data, torch.Tensor):
        return data if data.device == device else data.to(device, non_blocking=device.type != "cpu")
    warned_types = set() if warned_types is None else warned_types
    if isinstance(data, dict):
        return {name: to_device(item, device, warned_types) for name, item in data.items()}
    if isinstance(data, list):
        return [to_device(item, device, warned_types) for item in data]
    if isinstance(data, tuple):
        moved = [to_device(item, device, warned_types) for item in data]
        return type(data)(*moved) if hasattr(data, "_fields") else tuple(moved)
    if _is_array(data) and data.dtype.kind in "fciub":
        return torch.from_numpy(data).to(device)
    if callable(getattr(data, "to", None)):
        return data.to(device)
    if type(data) not in warned_types:
        warned_types.add(type(data))
        logger.warning("an item of type %s stays where it is: it cannot be moved to %s", type(data).__name__, device)
    return data


def _is_array(data: Any) -> bool:
    """Without importing numpy, which PyTorch can do without."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(data, numpy.ndarray)
