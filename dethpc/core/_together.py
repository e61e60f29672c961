"""One step of all workers, which succeeds for all of them or fails for all."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple, TypeVar, Union

from dethpc.core._distributed import DistributedContext, Group
from dethpc.errors import CheckpointError

T = TypeVar("T")


def together(group: Union[DistributedContext, Group], call: Callable[[], T]) -> List[T]:
    """Every worker's result, by rank. If one fails all fail: that one with its own exception, the others with its words, as a
    CheckpointError if it was one and else a RuntimeError."""
    failure: Optional[BaseException] = None
    try:
        result: Tuple[bool, Any] = (True, call())
    except Exception as error:
        failure, result = error, (False, (isinstance(error, CheckpointError), str(error) or repr(error)))
    results = group.allgather(result)
    if failure is not None:
        raise failure
    for rank, (ok, told) in enumerate(results):
        if not ok:
            kind = CheckpointError if told[0] else RuntimeError
            raise kind(f"rank {rank}: {told[1]}")
    return [value for _, value in results]
