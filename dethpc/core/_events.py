"""Event files, which TensorBoard reads: a TFRecord for each report, holding an ``Event`` protocol buffer.

A TFRecord is: length (8 bytes, little-endian), masked CRC-32C of it (4), data, masked CRC-32C of the data (4). See TensorFlow,
``tensorflow/core/lib/io/record_writer.h`` and ``tensorflow/core/util/event.proto``.
"""

from __future__ import annotations

import os
import struct
import time
from array import array
from pathlib import Path
from typing import Dict, List, Optional

_POLYNOMIAL = 0x82F63B78  # Castagnoli, reflected


class EventFile:
    """One event file in ``folder``; it begins with the first scalars. Not for several threads at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: Optional[int] = None

    def add(self, at: float, step: int, scalars: Dict[str, float]) -> None:
        """Append values by tag. Raises OSError."""
        if not scalars:
            return
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            name = (
                f"events.out.tfevents.{int(time.time()):010d}.{os.uname().nodename}.{os.getpid()}.{time.monotonic_ns()}"
            )
            self._file = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.write(self._file, _record(_double(1, at) + _bytes(3, b"brain.Event:2")))
        values = b"".join(
            _bytes(1, _bytes(1, tag.encode("utf-8", "replace")) + _float(2, value)) for tag, value in scalars.items()
        )
        os.write(self._file, _record(_double(1, at) + _whole(2, step) + _bytes(5, values)))

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _masked(length)) + data + struct.pack("<I", _masked(data))


# --- protocol buffers: key (field number and type), value


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _whole(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _float(field: int, value: float) -> bytes:
    try:
        packed = struct.pack("<f", value)
    except OverflowError:  # beyond single precision
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return _varint(field << 3 | 5) + packed


# --- CRC-32C, two bytes at a time: this runs beside the training and must not hold it up


_table: List[int] = []


def crc32c(data: bytes) -> int:
    if not _table:
        single = []
        for byte in range(256):
            for _ in range(8):
                byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
            single.append(byte)
        _table.extend(single[high ^ single[low] & 0xFF] ^ single[low] >> 8 for high in range(256) for low in range(256))
    table, crc = _table, 0xFFFFFFFF
    even = len(data) & ~1
    for pair in _pairs(data[:even]):
        crc = crc >> 16 ^ table[(crc ^ pair) & 0xFFFF]
    if even < len(data):
        low = (crc ^ data[-1]) & 0xFF
        crc = crc >> 8 ^ _one(low)
    return crc ^ 0xFFFFFFFF


def _pairs(data: bytes) -> array[int]:
    import sys

    pairs = array("H", data)
    if sys.byteorder == "big":
        pairs.byteswap()
    return pairs


def _one(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


def _masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
