"""One record as bytes: CRC-32 (4 bytes, big endian), then the record pickled.

A tensor is kept as the array of what it shows: pickled by PyTorch, a row of a matrix would take the whole matrix along. Caches are
one user's own (``place``), as checkpoints are: unpickling trusts them.
"""

from __future__ import annotations

import io
import pickle
import sys
import zlib
from typing import Any, Tuple

from dethpc.errors import DatasetDamaged

_CRC = 4  # bytes


def encode(value: Any) -> bytes:
    """Raises TypeError for what cannot be pickled."""
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, protocol=5).dump(value)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise TypeError(f"a record of type {type(value).__name__} cannot be cached: {error}") from error
    data = buffer.getvalue()
    return zlib.crc32(data).to_bytes(_CRC, "big") + data


def decode(stored: bytes) -> Any:
    """Raises DatasetDamaged when it is not what ``encode`` returned."""
    data = memoryview(stored)[_CRC:]
    if len(stored) < _CRC or zlib.crc32(data) != int.from_bytes(stored[:_CRC], "big"):
        raise DatasetDamaged("a record is damaged: its checksum differs from when it was stored")
    return pickle.loads(data)  # nosec B301  # the user's own cache


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or type(value) is not torch.Tensor or value.layout is not torch.strided or value.is_quantized:
            return NotImplemented
        return _tensor, _plain(value.detach().cpu(), torch)


def _plain(tensor: Any, torch: Any) -> Tuple[str, Tuple[int, ...], bytes]:
    """(dtype, shape, bytes): numpy has no bfloat16, and a process that reads text need not have numpy."""
    flat = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    data = b"" if flat.numel() == 0 else bytes(flat.view(torch.uint8).numpy())
    return str(tensor.dtype).partition(".")[2], tuple(tensor.shape), data


def _tensor(dtype: str, shape: Tuple[int, ...], data: bytes) -> Any:
    import torch

    kind = getattr(torch, dtype)
    if not data:
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(bytearray(data), dtype=kind).reshape(shape)
