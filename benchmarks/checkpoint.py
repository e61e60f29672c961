"""A checkpoint through the Core API over ``torch.save`` of the same state to the same file system, both brought to disk.

python benchmarks/checkpoint.py [FOLDER [MEBIBYTES ...]]

The bare way is ``torch.save`` to a file and fsync of it and of its directory. Both are measured in turns, and the median of the
ratios of neighbours is told, with quartiles, so that whatever else the machine does meets both. ``store_path`` returns with the
checkpoint on disk and published; its checksums are made afterwards, beside the training, and are told apart, as is what
``store_path_async`` keeps the training from going on.

Then a training that saves now and then, with the one and with the other: seconds that each checkpoint adds to it.
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

PAIRS = {True: 25, False: 11}  # below 64 MiB, and above


def main() -> None:
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.gettempdir())
    sizes = [int(word) for word in sys.argv[2:]] or [10, 200, 1024]
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(dir=where) as folder, core.init(checkpoint_storage=f"{folder}/storage") as context:
        for size in sizes:
            state = {f"layer{n}": torch.randn(size << 15) for n in range(8)}
            compare(size, state, Path(folder), context)
            beside(size, state, Path(folder), context)


def compare(mebibytes: int, state: Any, folder: Path, context: core.Context) -> None:
    times: dict[str, list[float]] = {"bare": [], "store": [], "sums": [], "async": []}
    for pair in range(-1, PAIRS[mebibytes < 64]):  # the first one warms up and does not count
        found: dict[str, float] = {}
        ways = [bare, store, store_async]
        for way in ways if pair % 2 else ways[::-1]:
            found.update(way(state, folder, context))
            for path in folder.glob("storage/*"):
                shutil.rmtree(path)
        if pair >= 0:
            for name, seconds in found.items():
                times[name].append(seconds)
    low, middle, high = statistics.quantiles([b / a for a, b in zip(times["bare"], times["store"])], n=4)
    ms = {name: statistics.median(values) * 1e3 for name, values in times.items()}
    print(
        f"{mebibytes:5} MiB  torch.save {ms['bare']:6.1f} ms   store_path {ms['store']:6.1f} ms   {middle:.3f} x"
        f" ({low:.3f} to {high:.3f})   checksums, later {ms['sums']:5.0f} ms   store_path_async {ms['async']:6.1f} ms",
        flush=True,
    )


def bare(state: Any, folder: Path, context: core.Context) -> dict[str, float]:
    path = folder / "bare" / "state.pt"
    path.parent.mkdir(exist_ok=True)

    def save() -> None:
        torch.save(state, path)
        for name in (path, path.parent):
            fd = os.open(name, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)

    seconds = timed(save)
    path.unlink()
    return {"bare": seconds}


def store(state: Any, folder: Path, context: core.Context) -> dict[str, float]:
    def save() -> None:
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
            torch.save(state, path / "state.pt")

    return {"store": timed(save), "sums": timed(context.checkpoint.wait)}


def store_async(state: Any, folder: Path, context: core.Context) -> dict[str, float]:
    def save() -> None:
        with context.checkpoint.store_path_async({"steps_completed": 1}) as (path, _):
            torch.save(state, path / "state.pt")

    seconds = timed(save)
    context.checkpoint.wait()
    return {"async": seconds}


def beside(mebibytes: int, state: Any, folder: Path, context: core.Context) -> None:
    """Steps of one thread's work; of 60, every 20th is followed by a checkpoint."""
    torch.set_num_threads(1)
    matrix = torch.randn(512, 512)

    def train(way: Any) -> None:
        for step in range(60):
            for _ in range(4):
                torch.mm(matrix, matrix)
            if step % 20 == 9 and way is not None:
                with way({"steps_completed": step}) as (path, _):
                    torch.save(state, path / "state.pt")

    ways = {"none": None, "store_path": context.checkpoint.store_path, "async": context.checkpoint.store_path_async}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(5):
        for name, way in ways.items():
            times[name].append(timed(functools.partial(train, way)))
            context.checkpoint.wait()
            for path in folder.glob("storage/*"):
                shutil.rmtree(path)
    added = {
        name: statistics.median(b - a for a, b in zip(times["none"], times[name])) / 3 * 1e3
        for name in ("store_path", "async")
    }
    print(
        f"           in a training, each checkpoint adds {added['store_path']:.0f} ms by store_path,"
        f" {added['async']:.0f} ms by store_path_async",
        flush=True,
    )


def timed(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
