"""Metrics that cannot be averaged over slots: reduced from what all of them have seen."""

from __future__ import annotations

import abc
import enum
import itertools
from typing import Any, Callable, Dict, List, Optional, TypeVar, Union, overload


class Reducer(enum.Enum):
    """How ``evaluate_batch()``'s values become one: see ``PyTorchTrial.evaluation_reducer()``."""

    AVG = 1
    SUM = 2
    MAX = 3
    MIN = 4


def _simple_reduce_metrics(reducer: Reducer, metrics: Any, num_batches: Optional[List[int]] = None) -> float:
    """One number from ``metrics``, a list of numbers; an average is weighted by ``num_batches``."""
    values = [float(value) for value in metrics]
    if reducer is Reducer.SUM:
        return sum(values)
    if reducer is Reducer.MAX:
        return max(values)
    if reducer is Reducer.MIN:
        return min(values)
    if num_batches and len(values) != len(num_batches):
        raise RuntimeError(f"{len(values)} values cannot be weighted by {len(num_batches)} numbers of batches")
    weights = num_batches or [1] * len(values)
    return sum(value * weight for value, weight in zip(values, weights)) / sum(weights)


class MetricReducer(metaclass=abc.ABCMeta):
    """Computes a metric over all slots in three steps. ::

    class MeanOfAll(pytorch.MetricReducer):
        def __init__(self): self.reset()
        def reset(self): self.total, self.count = 0, 0
        def update(self, values): self.total += sum(values); self.count += len(values)      # step 1, of your own making
        def per_slot_reduce(self): return self.total, self.count                            # step 2, on each slot
        def cross_slot_reduce(self, per_slot_metrics):                                      # step 3
            totals, counts = zip(*per_slot_metrics)
            return sum(totals) / sum(counts)

    self.mean = context.wrap_reducer(MeanOfAll(), name="mean")   # then self.mean.update(...) for each batch
    """

    @abc.abstractmethod
    def reset(self) -> None:
        """Forget all values; called before each stretch of training and each validation."""

    @abc.abstractmethod
    def per_slot_reduce(self) -> Any:
        """This slot's contribution: anything that can be pickled, the smaller the better."""

    @abc.abstractmethod
    def cross_slot_reduce(self, per_slot_metrics: List[Any]) -> Any:
        """The metric from all slots' contributions, by rank: a dict of metrics if it was wrapped without a name, else no dict."""


class _SimpleReducer(MetricReducer):
    """Keeps every value, and calls a function on all of them."""

    def __init__(self, fn: Callable[[List[Any]], Any]) -> None:
        self.fn = fn
        self.values: List[Any] = []

    def reset(self) -> None:
        self.values = []

    def update(self, value: Any) -> None:
        """Add the value of a batch."""
        self.values.append(value)

    def per_slot_reduce(self) -> Any:
        return self.values

    def cross_slot_reduce(self, per_slot_metrics: List[Any]) -> Any:
        """Slots have taken turns with the batches, so taking turns restores their order."""
        nothing = object()
        turns = itertools.zip_longest(*per_slot_metrics, fillvalue=nothing)
        return self.fn([value for turn in turns for value in turn if value is not nothing])


class _WrappedReducer:
    def __init__(self, reducer: MetricReducer, name: Optional[str], for_training: bool, for_validation: bool) -> None:
        self.reducer = reducer
        self.name = name
        self.for_training = for_training
        self.for_validation = for_validation

    def __str__(self) -> str:
        inner = self.reducer.fn if isinstance(self.reducer, _SimpleReducer) else type(self.reducer)
        return f"the reducer {getattr(inner, '__name__', inner)} (name={self.name!r})"

    def reset(self) -> None:
        self._call("reset")

    def per_slot_reduce(self) -> Any:
        return self._call("per_slot_reduce")

    def cross_slot_reduce(self, per_slot_metrics: List[Any]) -> Dict[str, Any]:
        """The metrics by their names. Raises AssertionError when they do not fit the name."""
        metrics = self._call("cross_slot_reduce", per_slot_metrics)
        if self.name is None:
            if not isinstance(metrics, dict):
                raise AssertionError(f"{self} has no name, so it must return a dict, not a {type(metrics).__name__}")
            return metrics
        if isinstance(metrics, dict):
            raise AssertionError(f"{self} has a name and returned a dict: leave the name out for several metrics")
        return {self.name: metrics}

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return getattr(self.reducer, method)(*arguments)
        except Exception as error:
            raise ValueError(f"{self} failed in {method}(): {error!r}") from error


T = TypeVar("T", bound=MetricReducer)


class _PyTorchReducerContext:
    """Registers reducers and runs them."""

    def __init__(self, allgather_fn: Callable[[Any], List[Any]] = lambda mine: [mine]) -> None:
        self._wrapped_reducers: List[_WrappedReducer] = []
        self._allgather_fn = allgather_fn

    @overload
    def wrap_reducer(
        self, reducer: T, name: Optional[str] = None, for_training: bool = True, for_validation: bool = True
    ) -> T: ...

    @overload
    def wrap_reducer(
        self,
        reducer: Callable[[List[Any]], Any],
        name: Optional[str] = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> _SimpleReducer: ...

    def wrap_reducer(
        self,
        reducer: Union[Callable[[List[Any]], Any], MetricReducer],
        name: Optional[str] = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> MetricReducer:
        """Register a metric that is computed over all slots.

        ``reducer`` is a :class:`MetricReducer`, which is returned, or a function that takes the list of all values, in the
        order of the batches; then what is returned has ``update(value)`` for you to call once for each batch. The metric
        is reported under ``name``; without a name the reducer returns a dict of metrics.

        ``for_training``, ``for_validation``: where it counts. Raises AssertionError when ``reducer`` is wrapped already, or
        is neither.
        """
        if any(reducer is wrapped.reducer for wrapped in self._wrapped_reducers):
            raise AssertionError(f"this {type(reducer).__name__} is wrapped already")
        if not isinstance(reducer, MetricReducer):
            if not callable(reducer):
                raise AssertionError(f"a reducer is a function or a MetricReducer, not a {type(reducer).__name__}")
            reducer = _SimpleReducer(reducer)
        self._wrapped_reducers.append(_WrappedReducer(reducer, name, for_training, for_validation))
        return reducer

    def reset_reducers(self) -> None:
        for wrapped in self._wrapped_reducers:
            wrapped.reset()

    def run_cross_slot_reduction(self, reducables: List[_WrappedReducer], gathered: List[Any]) -> Dict[str, Any]:
        """The metrics of ``reducables``; ``gathered`` has each slot's contributions, in the order of ``reducables``."""
        metrics: Dict[str, Any] = {}
        for wrapped, contributions in zip(reducables, zip(*gathered)):
            metrics.update(wrapped.cross_slot_reduce(list(contributions)))
        return metrics

    def reduce_metrics(self, for_training: bool) -> Dict[str, Any]:
        """All slots call this together, and all get the metrics."""
        wrapped = [w for w in self._wrapped_reducers if (w.for_training if for_training else w.for_validation)]
        if not wrapped:
            return {}
        return self.run_cross_slot_reduction(wrapped, self._allgather_fn([w.per_slot_reduce() for w in wrapped]))
