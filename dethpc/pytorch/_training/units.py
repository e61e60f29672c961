"""Units of training lengths and periods: batches and epochs."""

from __future__ import annotations

import sys
from typing import Container, Optional, Union

from dethpc.core import Unit


class TrainUnit:
    """A length or a period of training: use :class:`Batch` or :class:`Epoch`.

    ``value``: a whole number is a length, or a period ("every 100"); a container is a schedule ("at 1, 5 and 10").
    """

    def __init__(self, value: Union[int, Container[int]]) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"

    def should_stop(self, step_num: int) -> bool:
        """Whether something is due after ``step_num`` units. A period below 1 is due after every one."""
        if isinstance(self.value, int):
            return self._divides(step_num)
        return step_num in self.value

    def _divides(self, steps: int) -> bool:
        assert isinstance(self.value, int)
        return self.value < 1 or (steps > 0 and steps % self.value == 0)

    @staticmethod
    def _from_searcher_unit(length: int, unit: Optional[Unit], global_batch_size: Optional[int] = None) -> TrainUnit:
        """A length of the searcher's section. Records need the global batch size. Raises ValueError."""
        if unit is Unit.EPOCHS:
            return Epoch(length)
        if unit is Unit.BATCHES:
            return Batch(length)
        if unit is not Unit.RECORDS:
            raise ValueError(f"{unit!r} is not a unit of training: batches, records or epochs")
        if not global_batch_size:
            raise ValueError("a length in records needs the hyperparameter global_batch_size")
        return Batch._from_records(length, global_batch_size)

    def _to_searcher_unit(self) -> Unit:
        return Unit.BATCHES if isinstance(self, Batch) else Unit.EPOCHS

    @staticmethod
    def _from_values(
        batches: Optional[int] = None,
        records: Optional[int] = None,
        epochs: Optional[int] = None,
        global_batch_size: Optional[int] = None,
    ) -> TrainUnit:
        """A period of the configuration: one of the three, where 0 is never. Raises ValueError."""
        given = [value for value in (batches, records, epochs) if value is not None]
        if len(given) != 1:
            raise ValueError(f"give one of batches, records and epochs, not {len(given)} of them")
        if given[0] < 1:
            return Batch(sys.maxsize)
        if batches is not None:
            return Batch(batches)
        if epochs is not None:
            return Epoch(epochs)
        assert records is not None
        return TrainUnit._from_searcher_unit(records, Unit.RECORDS, global_batch_size)


class Epoch(TrainUnit):
    """Epochs: ``Epoch(2)`` is a length of two, or every second one; ``Epoch([1, 5])`` is after the first and the fifth."""


class Batch(TrainUnit):
    """Batches: ``Batch(100)`` is a length of a hundred, or every hundredth; ``Batch([5, 30])`` is after the 5th and the 30th."""

    @staticmethod
    def _from_records(records: int, global_batch_size: int) -> Batch:
        return Batch(max(records // global_batch_size, 1))
