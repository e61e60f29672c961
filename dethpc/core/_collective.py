"""One step of all workers, which succeeds for all of them or fails for all."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple, Type, TypeVar, Union

from dethpc.core._distributed import DistributedContext, Group
from dethpc.errors import CheckpointDamaged, CheckpointError
from dethpc.storage.driver import StoreAway

T = TypeVar("T")

_KINDS: Dict[str, Type[Exception]] = {kind.__name__: kind for kind in (CheckpointDamaged, CheckpointError, StoreAway)}


def collectively(group: Union[DistributedContext, Group], call: Callable[[], T]) -> List[T]:
    """Every worker's result, by rank. If one fails all fail: that one with its own exception, the others with its words, as the
    same kind of CheckpointError, or StoreAway, if it was one and else as a RuntimeError."""
    failure: Optional[BaseException] = None
    try:
        result: Tuple[bool, Any] = (True, call())
    except Exception as error:
        failure, result = error, (False, (_KINDS.get(type(error).__name__), str(error) or repr(error)))
    results = group.allgather(result)
    if failure is not None:
        raise failure
    for rank, (ok, outcome) in enumerate(results):
        if not ok:
            raise (outcome[0] or RuntimeError)(f"rank {rank}: {outcome[1]}")
    return [value for _, value in results]
