"""``cache_train_dataset`` and ``cache_validation_dataset``, whatever the framework makes of records."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Generic, Iterable, Mapping, Optional, Tuple, TypeVar

from dethpc.core._random import generators, restore_generators
from dethpc.data_layer.cache import Cache
from dethpc.data_layer.key import Key
from dethpc.data_layer.order import Order
from dethpc.data_layer.place import place
from dethpc.data_layer.records import Records

T = TypeVar("T")

Decorator = Callable[[Callable[..., Any]], Callable[..., T]]


class Caching(Generic[T]):
    """``section``: the configuration's ``data_layer``. ``seed`` says how shuffles come out. ``items``: the records of what a
    decorated function returns. ``wrap``: what its caller gets instead; the last argument says whether it is for training."""

    def __init__(
        self,
        section: Optional[Mapping[str, Any]],
        seed: int,
        items: Callable[[Any], Iterable[Any]],
        wrap: Callable[[Records, Order, bool], T],
    ) -> None:
        self._section, self._seed, self._items, self._wrap = section, seed, items, wrap
        self._makers: Dict[Key, Any] = {}

    def train(
        self, dataset_id: str, dataset_version: str, shuffle: bool, skip_shuffle_at_epoch_end: bool
    ) -> Decorator[T]:
        """Another order in each epoch, unless ``skip_shuffle_at_epoch_end``."""
        order = Order(self._seed, shuffle, reshuffle=not skip_shuffle_at_epoch_end)
        return self._decorator(Key.of(dataset_id, dataset_version), order, True)

    def validation(self, dataset_id: str, dataset_version: str, shuffle: bool) -> Decorator[T]:
        """The same order in each validation."""
        order = Order(self._seed, shuffle, reshuffle=False)
        return self._decorator(Key.of(dataset_id, dataset_version), order, False)

    def _decorator(self, key: Key, order: Order, training: bool) -> Decorator[T]:
        def decorate(function: Callable[..., Any]) -> Callable[..., T]:
            self._know(key, function)

            @functools.wraps(function)
            def cached(*args: Any, **kwargs: Any) -> T:
                before = generators()
                try:
                    records = Cache(place(self._section)).records(key, lambda: self._items(function(*args, **kwargs)))
                finally:
                    # Who makes the dataset and who finds it made must go on with the same random numbers.
                    restore_generators(before)
                return self._wrap(records, order, training)

            return cached

        return decorate

    def _know(self, key: Key, function: Callable[..., Any]) -> None:
        """Raises ValueError where two functions make what would be one dataset: one of them would never be called."""
        maker = _place(function)
        first = self._makers.setdefault(key, maker)
        if first != maker:
            raise ValueError(
                f"{key} is made by {first[0]} (line {first[2]}), and also by {maker[0]} (line {maker[2]}): of one key there is one "
                "dataset; give them two ids"
            )


def _place(function: Callable[..., Any]) -> Tuple[str, str, int]:
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", repr(function))
    return name, getattr(code, "co_filename", ""), getattr(code, "co_firstlineno", 0)
