"""Datasets of the data layer in the form that ``model.fit()`` takes."""

from __future__ import annotations

import operator
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence, Tuple
from weakref import WeakKeyDictionary, WeakSet

import keras
import numpy as np

from dethpc import core
from dethpc.core._info import get_cluster_info
from dethpc.data_layer import Caching, Decorator, Order, Records

_batches: WeakKeyDictionary[core.Context, WeakSet[CachedBatches]] = WeakKeyDictionary()
"""Those that are told in which epoch a training is."""


class DataLayer:
    """``context.experimental`` of old trial classes, for scripts. ::

        with det.core.init() as core_context:
            data_layer = det.keras.DataLayer(core_context)

            @data_layer.cache_train_dataset("mnist", "v1", shuffle=True)
            def train_set():
                return x, y

            model.fit(train_set().batch(32), shuffle=False, callbacks=[DeterminedCallback(core_context, ...)])

    ``seed``: of shuffles; None: the trial's, and 0 outside the cluster.
    """

    def __init__(self, core_context: core.Context, seed: Optional[int] = None) -> None:
        info = get_cluster_info()
        section = None
        if info is not None and info.task_type == "TRIAL":
            section = info.trial._settings.data_layer
            seed = info.trial.trial_seed if seed is None else seed

        def wrap(records: Records, order: Order, training: bool) -> CachedDataset:
            return CachedDataset(records, order, core_context, training)

        self._caching = Caching(section, seed or 0, _items, wrap)

    def cache_train_dataset(
        self,
        dataset_id: str,
        dataset_version: str,
        shuffle: bool = False,
        skip_shuffle_at_epoch_end: bool = False,
    ) -> Decorator[CachedDataset]:
        """Decorates a function that returns what Keras takes: a tuple or dict of arrays, a PyDataset (its batches are taken apart),
        a ``tf.data.Dataset``, or an iterable of records, such as a generator of ``(x, y)`` without a batch dimension. The first
        trial on a node calls it and keeps the records there, and all others read what is kept.

        ``dataset_id`` and ``dataset_version`` name what is kept: change the version with the records. ``shuffle``: in an order that
        follows from the seed, another one in each epoch unless ``skip_shuffle_at_epoch_end``; it comes again when a trial goes
        on. With several workers each gets batches of its own. Raises, when the decorated function is called, DataLayerError,
        ImportError without the package lmdb, TypeError for what is no dataset.
        """
        return self._caching.train(dataset_id, dataset_version, shuffle, skip_shuffle_at_epoch_end)

    def cache_validation_dataset(
        self, dataset_id: str, dataset_version: str, shuffle: bool = False
    ) -> Decorator[CachedDataset]:
        """As ``cache_train_dataset``, in the same order each time, and all of it on each worker: the chief's metrics count."""
        return self._caching.validation(dataset_id, dataset_version, shuffle)


class CachedDataset(Sequence[Any]):
    """The cached records, in the order in which they were made. ``batch()`` is what ``fit()`` takes."""

    def __init__(
        self,
        records: Records,
        order: Order,
        core_context: core.Context,
        training: bool,
        functions: Tuple[Callable[..., Any], ...] = (),
    ) -> None:
        self._records, self._order, self._core, self._training = records, order, core_context, training
        self._functions = functions

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: Any) -> Any:
        record = self._records[index]
        for function in self._functions:
            record = function(*record) if isinstance(record, tuple) else function(record)
        return record

    def map(self, function: Callable[..., Any]) -> CachedDataset:
        """The same with ``function`` applied to each record when it is read; it gets the parts of a tuple one by one, as in
        ``tf.data``."""
        functions = (*self._functions, function)
        return CachedDataset(self._records, self._order, self._core, self._training, functions)

    def batch(self, batch_size: int, drop_remainder: bool = False, **options: Any) -> CachedBatches:
        """Batches of ``batch_size`` records. ``options``: of ``keras.utils.PyDataset``, such as ``workers``. Raises ValueError
        where a worker would get none."""
        return CachedBatches(self, batch_size, drop_remainder, **options)


class CachedBatches(keras.utils.PyDataset):
    """Pass ``shuffle=False`` to ``fit()``: the order is the one that the decorator was asked for, and Keras would put the batches
    of an epoch in another one."""

    def __init__(self, dataset: CachedDataset, batch_size: int, drop_remainder: bool, **options: Any) -> None:
        super().__init__(**options)
        if batch_size < 1:
            raise ValueError(f"batch_size is at least 1, not {batch_size}")
        self._dataset, self._size = dataset, batch_size
        distributed = dataset._core.distributed
        self._rank, self._workers = (distributed.rank, distributed.size) if dataset._training else (0, 1)
        whole = len(dataset) // batch_size if drop_remainder else -(-len(dataset) // batch_size)
        self._length = whole // self._workers  # each worker has as many as the others
        if not self._length:
            raise ValueError(
                f"{len(dataset)} records give {whole} batches of {batch_size}, for {self._workers} workers"
            )
        self._indexes = self._of_epoch(0)
        _batches.setdefault(dataset._core, WeakSet()).add(self)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self._length:
            raise IndexError(f"there are {self._length} batches, and none is number {index}")
        begin = (index * self._workers + self._rank) * self._size
        records = [self._dataset[n] for n in self._indexes[begin : begin + self._size]]
        return keras.tree.map_structure(lambda *parts: np.stack([_array(part) for part in parts]), *records)

    def begin(self, epoch: int) -> None:
        """What comes next is epoch number ``epoch``, from 0."""
        self._indexes = self._of_epoch(epoch)

    def _of_epoch(self, epoch: int) -> Sequence[int]:
        return self._dataset._order.epoch(len(self._dataset), epoch)


def begin_epoch(core_context: core.Context, epoch: int) -> None:
    """All batches of this training begin epoch number ``epoch``: a training that goes on does not begin with the first."""
    for batches in _batches.get(core_context, ()):
        batches.begin(epoch)


def _array(value: Any) -> Any:
    return keras.ops.convert_to_numpy(value) if keras.ops.is_tensor(value) else np.asarray(value)


def _items(dataset: Any) -> Iterable[Any]:
    """The records of what Keras takes. Raises TypeError, and ValueError for arrays that are not equally long."""
    if isinstance(dataset, keras.utils.PyDataset):
        if dataset.num_batches is None:
            raise ValueError("a PyDataset without an end cannot be cached: let its num_batches be a number")
        return (record for n in range(dataset.num_batches) for record in _rows(dataset[n]))
    if callable(getattr(dataset, "as_numpy_iterator", None)):
        arrays: Iterable[Any] = dataset.as_numpy_iterator()
        return arrays
    if isinstance(dataset, (tuple, dict, np.ndarray)) or keras.ops.is_tensor(dataset):
        return _rows(dataset)
    if dataset is None or isinstance(dataset, (str, bytes)) or not hasattr(dataset, "__iter__"):
        raise TypeError(
            f"a cached function returns arrays, a PyDataset or an iterable of records, and not a {type(dataset).__name__}"
        )
    records: Iterable[Any] = iter(dataset)
    return records


def _rows(arrays: Any) -> Iterator[Any]:
    arrays = keras.tree.map_structure(_array, arrays)
    lengths = {len(array) if array.ndim else 0 for array in keras.tree.flatten(arrays)}
    if len(lengths) != 1:
        raise ValueError(f"arrays of one dataset are equally long, and these have {sorted(lengths)} records")
    return (keras.tree.map_structure(operator.itemgetter(n), arrays) for n in range(lengths.pop()))
