"""A checkpoint through the Core API over ``torch.save`` and fsync of the same state to the same file system.

python benchmarks/checkpoint.py [FOLDER [MEBIBYTES ...]]

Both bring their data to disk and are measured in pairs, in turns, so that whatever else the machine does meets both. The third
figure is the Core API's own work without the disk: what it would cost where fsync is free.
"""

from __future__ import annotations

import functools
import logging
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from dethpc import core
from dethpc.storage import manifest

PAIRS = 9


def main() -> None:
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.gettempdir())
    sizes = [int(word) for word in sys.argv[2:]] or [16, 128, 512]
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(dir=where) as folder, core.init(checkpoint_storage=f"{folder}/storage") as context:
        for size in sizes:
            compare(size, Path(folder), context)


def compare(mebibytes: int, folder: Path, context: core.Context) -> None:
    state = {f"layer{n}": torch.randn(mebibytes << 15) for n in range(8)}
    plain, ours, sums = [], [], []
    for pair in range(-1, PAIRS):  # the first one warms up and does not count
        a = timed(lambda: save(state, folder / "plain.pt"))
        b, uuid = store(state, context)
        c = timed(functools.partial(manifest.measure, folder / "storage" / uuid, ["state.pt"]))
        (folder / "plain.pt").unlink()
        shutil.rmtree(folder / "storage" / uuid)
        if pair >= 0:
            plain.append(a)
            ours.append(b)
            sums.append(c)
    ratio = statistics.median(b / a for a, b in zip(plain, ours))
    a, b, c = (statistics.median(times) * 1e3 for times in (plain, ours, sums))
    print(
        f"{mebibytes:5} MiB  torch.save {a:7.0f} ms   store_path {b:7.0f} ms   {ratio:.2f} x   checksums alone {c:5.0f} ms"
    )


def save(state: Any, path: Path) -> None:
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def store(state: Any, context: core.Context) -> tuple[float, str]:
    begin = time.perf_counter()
    with context.checkpoint.store_path({"steps_completed": 1}) as (path, uuid):
        torch.save(state, path / "state.pt")
    return time.perf_counter() - begin, uuid


def timed(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
