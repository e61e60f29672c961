"""Sharded checkpoints of PyTorch: ``torch.distributed.checkpoint`` into the trial's checkpoints.

For models of FSDP2 (``fully_shard``), tensor parallel ones and whatever else has DTensors in its state: every worker writes its own
part, and a checkpoint fits any number of workers. ::

    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state, "epoch": epoch}
    dcp.async_save(core_context, state, {"steps_completed": steps})

    if info.latest_checkpoint is not None:
        dcp.load(core_context, info.latest_checkpoint, state)  # into the tensors of ``state``
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])

All workers make all calls, in step. They are those of ``torch.distributed``, where it is initialized, and of the core context.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import weakref
from typing import Any, Dict, Iterator, List, Optional, Set

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as torch_dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.stateful import Stateful

from dethpc import core
from dethpc.pytorch._snapshot import Snapshot

__all__ = ["async_save", "load", "save"]

State = Dict[str, Any]

LARGE = 16 << 20
"""Bytes from which a tensor has a file of its own, which a store can share with the checkpoint before when it has not changed."""


def save(core_context: core.Context, state: State, metadata: Optional[Dict[str, Any]] = None) -> str:
    """Save ``state`` as ``torch.distributed.checkpoint.save`` does, publish it, and return the storage id.

    ``metadata``: as for ``core_context.checkpoint.store_path``.
    """
    several = _several(core_context)
    with core_context.checkpoint.store_path(metadata, shard=several) as (path, storage_id):
        _write(state, path, None)
    return storage_id


def async_save(core_context: core.Context, state: State, metadata: Optional[Dict[str, Any]] = None) -> str:
    """As ``save``, but the training waits only until ``state`` is copied to this machine's memory; writing and publishing go on
    beside it, as for ``core_context.checkpoint.store_async``. The memory of the copy is kept for the next one."""
    several = _several(core_context)
    checkpoint = core_context.checkpoint
    checkpoint.wait()  # it may still be writing the last copy
    mine = _beside.get(checkpoint)
    if mine is None:
        # What runs in another thread must not meet the training's collectives.
        group = dist.new_group(backend="gloo") if dist.is_initialized() else None
        mine = _beside[checkpoint] = (Snapshot(), group)
    snapshot, group = mine
    copy = snapshot.take({name: _state_of(value) for name, value in state.items()})
    return checkpoint.store_async(lambda path: _write(copy, path, group), metadata, shard=several)


def load(core_context: core.Context, storage_id: str, state: State) -> None:
    """Load a checkpoint into ``state``, as ``torch.distributed.checkpoint.load`` does: into its tensors, in place.

    The number of workers may differ from the one that saved. Of the checkpoint, each machine reads the files that its workers need.
    Raises CheckpointError, as ``core_context.checkpoint.restore_path``, and on all workers RuntimeError when the checkpoint does
    not have what ``state`` has.
    """
    _several(core_context)
    checkpoint = core_context.checkpoint
    with checkpoint.restore_path(storage_id, selector=lambda path: path == _METADATA) as path:
        if not (path / _METADATA).is_file():
            raise ValueError(f"checkpoint {storage_id} is none of torch.distributed.checkpoint: it has no {_METADATA}")
        content = torch_dcp.FileSystemReader(path).read_metadata()
    files = _files_for(state, content) | {_METADATA}
    with checkpoint.restore_path(storage_id, selector=files.__contains__) as path, _plain_words():
        torch_dcp.load(state, storage_reader=torch_dcp.FileSystemReader(path), **_alone())


_METADATA = ".metadata"

_beside: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""For each checkpoint context: the memory of its copies, and the workers' process group for what they do in the background."""


class _Writer(torch_dcp.FileSystemWriter):
    """One file for each worker and for each large tensor. The store brings them to disk."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__(path, sync_files=False)

    def write_data(self, plan: Any, planner: Any) -> torch.futures.Future[Any]:
        large = [item for item in plan.items if _size(item) >= LARGE]
        others = [item for item in plan.items if _size(item) < LARGE]
        written: List[Any] = []
        for items, together, word in ((others, True, ""), (large, False, "large_")):
            self.single_file_per_rank = together
            place = dataclasses.replace(plan.storage_data, prefix=plan.storage_data.prefix + word)
            part = dataclasses.replace(plan, items=items, storage_data=place)
            written += super().write_data(part, planner).wait() if items else []
        done: torch.futures.Future[Any] = torch.futures.Future()
        done.set_result(written)
        return done


def _write(state: State, path: pathlib.Path, group: Any) -> None:
    options = _alone() or {"process_group": group}
    with _plain_words():
        torch_dcp.save(state, storage_writer=_Writer(path), **options)


@contextlib.contextmanager
def _plain_words() -> Iterator[None]:
    """PyTorch's exception is no ``Exception``, so nobody's ``except`` would find it, and it is a page long."""
    try:
        yield
    except CheckpointException as error:
        raise RuntimeError("; ".join(f"rank {rank}: {why[0]}" for rank, why in error.failures.items())) from error


def _alone() -> Dict[str, Any]:
    return {} if dist.is_initialized() else {"no_dist": True}


def _several(core_context: core.Context) -> bool:
    """Whether several workers save together. Raises ValueError where those of PyTorch are not those of the core context."""
    size = core_context.distributed.size
    world_size = dist.get_world_size() if dist.is_initialized() else 1
    if world_size != size:
        raise ValueError(
            f"the core context has {size} workers, and torch.distributed {world_size}: initialize its process group first, and "
            "make the core context with distributed=DistributedContext.from_torch_distributed()"
        )
    return size > 1


def _state_of(value: Any) -> Any:
    return value.state_dict() if isinstance(value, Stateful) else value


def _files_for(state: State, content: torch_dcp.Metadata) -> Set[str]:
    """The files that this worker's part of ``state`` is in."""
    planner = torch_dcp.DefaultLoadPlanner()
    try:
        planner.set_up_planner({name: _state_of(value) for name, value in state.items()}, content, False)
        items = planner.create_local_plan().items
    except (RuntimeError, ValueError):  # it does not fit: loading says so, on all workers
        return set()
    places: Any = content.storage_data
    return {places[item.storage_index].relative_path for item in items}


def _size(item: Any) -> int:
    if item.tensor_data is None:
        return 0
    properties = item.tensor_data.properties
    return int(item.tensor_data.chunk.sizes.numel() * torch.empty(0, dtype=properties.dtype).element_size())
