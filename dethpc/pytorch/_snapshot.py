"""A copy of a training's state, for a checkpoint that is written while the training goes on."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import os
import pathlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch

_Kind = Tuple[torch.Size, torch.dtype]

_PIECE = 8 << 20  # bytes that one thread copies at a time
_THREADS = 4  # that copy; one seldom gets all that memory gives


class Snapshot:
    """Copies states into this machine's memory, always into the same buffers where tensors keep their shapes: memory that is new to
    a process takes longer to get than to fill.

    It holds the last copy's memory until it is dropped; a copy is good until the next one is taken.
    """

    def __init__(self) -> None:
        self._buffers: Dict[_Kind, List[torch.Tensor]] = {}
        self._used: Dict[_Kind, List[torch.Tensor]] = {}
        self._copies: Dict[Any, torch.Tensor] = {}
        self._moves: List[Tuple[torch.Tensor, torch.Tensor]] = []
        self._pool: Optional[ThreadPoolExecutor] = None

    def take(self, state: Any) -> Any:
        """The same state with every tensor copied, the containers new, and all else copied by ``copy.deepcopy``. Tensors that share
        their memory, as tied weights do, share that of the copy."""
        try:
            snapshot = self._copy(state)
            self._move()
            for device in {key[0] for key in self._copies if key[0].type == "cuda"}:  # a model may lie on several
                torch.cuda.current_stream(device).synchronize()
        finally:
            self._buffers, self._used, self._copies, self._moves = self._used, {}, {}, []
        return snapshot

    def has_room(self, state: Any) -> bool:
        """Whether a copy takes at most half of the memory that is left to this process; one that has been taken already counts."""
        held = sum(tensor.nbytes for tensors in self._buffers.values() for tensor in tensors)
        return bool(2 * max(0, _bytes(state) - held) <= _memory_left())

    def _copy(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._copy_tensor(value)
        if type(value) in (list, tuple):
            return type(value)(self._copy(item) for item in value)
        if isinstance(value, dict):
            mapping = copy.copy(value)  # of its own class, with its attributes: modules keep their versions there
            for key, item in value.items():
                mapping[key] = self._copy(item)
            return mapping
        return copy.deepcopy(value)

    def _copy_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.detach()
        if hasattr(tensor, "__tensor_flatten__"):  # made of others, as a DTensor is of what this worker has
            names, about = tensor.__tensor_flatten__()
            attributes = {name: getattr(tensor, name) for name in names}  # a DTensor's mesh, too
            parts = {name: self._copy_tensor(p) if isinstance(p, torch.Tensor) else p for name, p in attributes.items()}
            wrapped: torch.Tensor = type(tensor).__tensor_unflatten__(parts, about, tensor.size(), tensor.stride())
            return wrapped
        if tensor.is_meta:
            return tensor  # it has no values
        odd = tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested
        if odd or type(tensor) is not torch.Tensor:
            return tensor.to("cpu", copy=True)
        bits = tensor.is_conj(), tensor.is_neg()  # the same memory, read as other values
        key = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.size(), tensor.stride(), bits)
        if key in self._copies and tensor.numel():
            return self._copies[key]
        kind = (tensor.size(), tensor.dtype)
        free = self._buffers.get(kind)
        buffer = free.pop() if free else torch.empty(tensor.size(), dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        self._used.setdefault(kind, []).append(buffer)
        self._copies[key] = buffer
        if tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
            self._moves.append((buffer, tensor))
        else:
            buffer.copy_(tensor, non_blocking=tensor.is_cuda)
        return buffer

    def _move(self) -> None:
        """Fill the buffers. This thread and a few others take piece after piece, and it waits for none that another has not begun:
        PyTorch's own threads wait for each other, which takes 100 times as long where others use the processors, too."""
        pieces = _pieces(self._moves)

        def work() -> None:
            with contextlib.suppress(IndexError):
                while True:
                    for target, source, size in pieces.pop():
                        ctypes.memmove(target, source, size)

        helpers = min(_THREADS, _cores(), len(pieces) // 4) - 1  # to wake one takes as long as a piece
        if helpers > 0 and self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, "dethpc-snapshot")
        begun = [self._pool.submit(work) for _ in range(helpers)] if self._pool is not None else []
        work()
        for one in begun:
            if not one.cancel():
                one.result()


def _pieces(moves: List[Tuple[torch.Tensor, torch.Tensor]]) -> List[List[Tuple[int, int, int]]]:
    """Targets, sources and bytes, in lists of ``_PIECE`` bytes at most."""
    pieces: List[List[Tuple[int, int, int]]] = []
    room = 0
    for target, source in moves:
        done, size = 0, source.nbytes
        while done < size:
            if not room:
                pieces.append([])
                room = _PIECE
            part = min(room, size - done)
            pieces[-1].append((target.data_ptr() + done, source.data_ptr() + done, part))
            done, room = done + part, room - part
    return pieces


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _bytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        inner = getattr(value, "_local_tensor", value)  # of a DTensor
        return int(inner.numel() * inner.element_size())
    if isinstance(value, dict):
        return sum(map(_bytes, value.values()))
    return sum(map(_bytes, value)) if isinstance(value, (list, tuple)) else 0


def _memory_left(root: pathlib.Path = pathlib.Path("/")) -> float:
    """Of the machine and of the control groups that this process is in, in bytes."""
    limits = [float("inf")]
    with contextlib.suppress(OSError, ValueError):
        limits.append(_number(root / "proc/meminfo", "MemAvailable:") * 1024.0)
    for group, limit, used, files in _groups(root):
        with contextlib.suppress(OSError, ValueError):  # "max" is no limit
            # Pages of files that nobody has used for a while make room by themselves.
            usage = int((group / used).read_text()) - _number(group / "memory.stat", files)
            limits.append(float(int((group / limit).read_text()) - usage))
    return min(limits)


def _groups(root: pathlib.Path) -> Iterator[Tuple[pathlib.Path, str, str, str]]:
    """Each group, and where it says its limit and its use: version 2, and 1."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            top, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
            if "memory" in controllers.split(","):
                top, names = top / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            elif controllers:
                continue
            here = top / path.lstrip("/")
            for group in (here, *here.parents):
                if group == top.parent:
                    break
                yield (group, *names)


def _number(file: pathlib.Path, name: str) -> int:
    """Of a file with a name and a number on each line. Raises ValueError, OSError."""
    for line in file.read_text().splitlines():
        fields = line.split()
        if fields and fields[0] == name:
            return int(fields[1])
    raise ValueError(name)
