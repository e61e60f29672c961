"""Reduces the metrics of batches and slots to the reported ones."""

from __future__ import annotations

import numbers
from typing import Any, Dict, Iterable, List, Optional, Sequence, Union

import torch

from dethpc.core import DistributedContext
from dethpc.errors import InvalidTrial
from dethpc.pytorch._reducer import Reducer, _simple_reduce_metrics

Metrics = Dict[str, Any]


def snapshot(metrics: Union[torch.Tensor, Metrics]) -> Metrics:
    """A batch's metrics for later: no graph, nothing that the next batch could change, and no waiting for the device.
    Raises InvalidTrial for what is neither a loss nor metrics by their names."""
    if isinstance(metrics, torch.Tensor):
        metrics = {"loss": metrics}
    if not isinstance(metrics, dict):
        raise InvalidTrial(f"train_batch() returns the loss, or a dict of metrics, not a {type(metrics).__name__}")
    return {name: _copy(value) if isinstance(value, torch.Tensor) else value for name, value in metrics.items()}


def _copy(value: torch.Tensor) -> Union[torch.Tensor, float]:
    if value.is_cpu and value.ndim == 0 and value.is_floating_point():
        return float(value.item())  # a third of the cost of a clone, and this is done for each batch
    value = value.detach()
    return value.clone() if value.numel() == 1 or value.device.type == "cpu" else value.cpu()


def joined(parts: List[Metrics]) -> Metrics:
    """The means over the parts of one batch, each from ``snapshot``; for tensors of one number without waiting for the device."""
    if len(parts) < 2:
        return parts[0] if parts else {}
    return {name: _joined([metrics[name] for metrics in parts if name in metrics]) for name in parts[0]}


def _joined(values: List[Any]) -> Any:
    if all(isinstance(value, torch.Tensor) and value.numel() == 1 for value in values):
        return torch.stack([value.reshape(()).float() for value in values]).mean()
    return _mean(values)


def fetched(batches: List[Metrics]) -> List[Metrics]:
    """What ``snapshot`` made, with arrays in place of tensors; a device is waited for once for each metric."""
    out = [dict(metrics) for metrics in batches]
    for name in {name for metrics in out for name, value in metrics.items() if isinstance(value, torch.Tensor)}:
        where = [metrics for metrics in out if isinstance(metrics.get(name), torch.Tensor)]
        values = [metrics[name] for metrics in where]
        if len({(value.shape, value.dtype, value.device) for value in values}) == 1:
            values = list(array(torch.stack(values)))
        else:
            values = [array(value) for value in values]
        for metrics, value in zip(where, values):
            metrics[name] = value
    return out


def for_callbacks(batches: List[Metrics]) -> List[Metrics]:
    """What ``fetched`` made, with numpy's numbers in place of Python's: callbacks written for Determined call their methods."""
    return [
        {name: as_numpy(value) if type(value) is float else value for name, value in metrics.items()}
        for metrics in batches
    ]


def array(value: Any) -> Any:
    """A tensor as numpy's array, or on the CPU where numpy is missing or lacks its type; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach().cpu()
    try:
        return value.numpy()
    except (RuntimeError, TypeError):
        return value.float() if value.is_floating_point() else value


def arrays(metrics: Metrics) -> Metrics:
    return {name: array(value) for name, value in metrics.items()}


def averaged(batches: List[Metrics]) -> Metrics:
    """The mean of each metric over the batches that have it; None for what has no mean."""
    names = dict.fromkeys(name for metrics in batches for name in metrics)
    return {name: _mean(metrics[name] for metrics in batches if name in metrics) for name in names}


def _mean(values: Iterable[Any]) -> Optional[float]:
    values = list(values)
    try:
        plain = all(type(value) is float for value in values)  # most are
        numbers_ = values if plain else [one for value in values if value is not None for one in flat(value)]
    except (TypeError, ValueError):
        return None
    return sum(numbers_) / len(numbers_) if numbers_ else None


def flat(value: Any) -> List[float]:
    """All numbers of a number, list or array. Raises TypeError, ValueError."""
    if isinstance(value, numbers.Real):
        return [float(value)]
    if isinstance(value, str):
        raise TypeError("text is not a number")
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [one for item in value for one in flat(item)]
    return [float(value)]


def across_slots(everybodys: List[List[Metrics]]) -> List[Metrics]:
    """Each batch's metrics, averaged over the slots. A slot without metrics does not count."""
    everybodys = [batches for batches in everybodys if batches]
    if len(everybodys) < 2:
        return everybodys[0] if everybodys else []
    return [averaged(list(same)) for same in zip(*everybodys)]


def reducers(chosen: Union[Reducer, Dict[str, Reducer]], names: Sequence[str]) -> Dict[str, Reducer]:
    """A reducer for each metric. Raises InvalidTrial when some have none, or it is no Reducer."""
    if not isinstance(chosen, dict):
        chosen = dict.fromkeys(names, chosen)
    if set(chosen) != set(names):
        raise InvalidTrial(
            f"evaluation_reducer() has reducers for {sorted(chosen)}, but the validation metrics are {sorted(names)}"
        )
    for name, reducer in chosen.items():
        if not isinstance(reducer, Reducer):
            raise InvalidTrial(f"evaluation_reducer(): {reducer!r} for {name!r} is no determined.pytorch.Reducer")
    return chosen


def reduced(
    distributed: DistributedContext, batches: List[Metrics], chosen: Union[Reducer, Dict[str, Reducer]]
) -> Metrics:
    """A validation's metrics, on all slots. Raises ValueError when the batches of the slots have different metrics."""
    names = list(batches[0]) if batches else []
    by_name = reducers(chosen, names) if batches else {}
    mine = {
        name: _simple_reduce_metrics(reducer, [one for metrics in batches for one in flat(metrics[name])])
        for name, reducer in by_name.items()
    }
    everybodys = [one for one in distributed.allgather((mine, len(batches))) if one[1]]
    if not everybodys:
        raise RuntimeError("the validation data loader yields no batch")
    if any(set(values) != set(everybodys[0][0]) for values, _ in everybodys):
        raise ValueError("the slots return validation metrics of different names")
    by_name = by_name or reducers(chosen, list(everybodys[0][0]))
    counts = [count for _, count in everybodys]
    return {
        name: as_numpy(_simple_reduce_metrics(reducer, [values[name] for values, _ in everybodys], counts))
        for name, reducer in by_name.items()
    }


def as_numpy(value: float) -> Any:
    """A numpy.float64 where numpy is there: callbacks written for Determined call its methods."""
    try:
        import numpy
    except ImportError:
        return value
    return numpy.float64(value)
