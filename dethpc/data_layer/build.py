"""Records written to LMDB, in their order, each under its index."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Callable, Iterable, List, Tuple

from dethpc.data_layer.about import DATA
from dethpc.data_layer.record import encode
from dethpc.errors import DataLayerError
from dethpc.extras import needed

_MAP = 64 << 20  # bytes; it doubles
_BATCH = 16 << 20  # bytes of a transaction

index = struct.Struct(">Q").pack


def lmdb() -> Any:
    """The module. Raises ImportError that says how to install it."""
    with needed("the data layer", "LMDB", "data_layer"):
        import lmdb as found
    return found


def write(folder: Path, records: Iterable[Any], make_room: Callable[[int], None]) -> int:
    """Write ``data.mdb`` in ``folder``; how many records. ``make_room(bytes)`` is called before the file grows to so many.

    Raises DataLayerError when there is none, or the disk is full, TypeError for what cannot be kept, and what ``records`` raise.
    """
    library = lmdb()
    env = library.open(str(folder / DATA), subdir=False, lock=False, map_size=_MAP, sync=False, metasync=False)
    try:
        count, waiting, size, written = 0, [], 0, 0  # type: Tuple[int, List[Tuple[bytes, bytes]], int, int]
        for record in records:
            value = encode(record)
            waiting.append((index(count), value))
            count, size = count + 1, size + len(value)
            if size >= _BATCH:
                written = _commit(library, env, waiting, written + size, make_room)
                waiting, size = [], 0
        _commit(library, env, waiting, written + size, make_room)
        env.sync(True)
    except library.Error as error:
        raise DataLayerError(f"a dataset cannot be written in {folder}: {error}") from error
    finally:
        env.close()
    if not count:
        raise DataLayerError("the dataset has no records, and an empty one is not cached: does it find its files?")
    return count


def _commit(
    library: Any, env: Any, waiting: List[Tuple[bytes, bytes]], written: int, make_room: Callable[[int], None]
) -> int:
    make_room(written)
    while True:
        try:
            with env.begin(write=True) as transaction:
                for key, value in waiting:
                    if not transaction.put(key, value, append=True):
                        raise library.Error(f"record {int.from_bytes(key, 'big')} is there already")
            return written
        except library.MapFullError:
            env.set_mapsize(2 * env.info()["map_size"])
