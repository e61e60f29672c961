"""A checkpoint through the Core API over ``torch.save`` of the same state to the same file system, both brought to disk.

The bare way is ``torch.save`` to a file and fsync of it and of its directory. ``store_path`` returns with the checkpoint on disk
and published; its checksums are made afterwards, by a thread that yields to the training, and are told apart. Renaming and flushing
the directory and the manifest cost less than the noise.

How long the training stands still: with ``store_async`` for a copy of its state in memory, from which a thread writes the files.
Inside the block of ``store_path_async`` the training writes the files itself; the limit is for what comes on top of that, and the
whole is told beside it.

Then a training that saves now and then, with the one and with the other: what each checkpoint adds to it.
"""

from __future__ import annotations

import argparse
import functools
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.frame import Row, alternate, median, ratio, run, timed
from dethpc import core
from dethpc.pytorch import Snapshot

PAIRS = {True: 25, False: 11}  # below 64 MiB, and above


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="on the file system to measure"
    )
    parser.add_argument("--mebibytes", type=int, nargs="+", help="default: 10 200 1024")


def rows(options: argparse.Namespace) -> Iterator[Row]:
    logging.disable(logging.WARNING)
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as folder,
        core.init(checkpoint_storage=f"{folder}/storage") as context,
    ):
        for size in options.mebibytes or ([10, 100] if options.quick else [10, 200, 1024]):
            state = {f"layer{n}": torch.randn(size << 15) for n in range(8)}
            yield from compare(size, state, Path(folder), context, 7 if options.quick else PAIRS[size < 64])
            yield from beside(size, state, Path(folder), context, 2 if options.quick else 5)


def compare(mebibytes: int, state: Any, folder: Path, context: core.Context, rounds: int) -> Iterator[Row]:
    def once(way: Callable[..., dict[str, float]]) -> dict[str, float]:
        found = way(state, folder, context)
        for path in folder.glob("storage/*"):
            shutil.rmtree(path)
        return found

    snapshot = Snapshot()

    def store_copy(state: Any, folder: Path, context: core.Context) -> dict[str, float]:
        """As a PyTorchTrial's Trainer does it."""

        def save() -> None:
            taken = snapshot.take(state)
            context.checkpoint.store_async(lambda path: torch.save(taken, path / "state.pt"), {"steps_completed": 1})

        seconds = timed(save).clock
        context.checkpoint.wait()
        return {"copy": seconds}

    ways = {way.__name__: functools.partial(once, way) for way in (bare, store, store_async, store_copy)}
    found = alternate(ways, rounds)
    ms = {name: [1e3 * one[name] for one in each if name in one] for each in found.values() for name in each[0]}
    peers, size = {"torch.save": median(ms["bare"])}, f"{mebibytes:,} MiB"
    most = 1.2 if mebibytes <= 10 else 1.05
    yield Row(f"store_path, {size}", "ms", median(ms["store"]), peers, most, ratio(ms["store"], ms["bare"]), of="ratio")
    for name, way in (("store_async", "copy"), ("store_path_async, but for writing the files", "async")):
        stands = f"training stands still for {name}, {size}"
        yield Row(stands, "ms", median(ms[way]), peers, 0.15, ratio(ms[way], ms["bare"]), of="ratio")
    whole = median([ours + write for ours, write in zip(ms["async"], ms["write"])])
    yield Row(f"training stands still for store_path_async, its files written, {size}", "ms", whole, peers)
    yield Row(f"checksums, later, {size}", "ms", median(ms["sums"]), peers)


def bare(state: Any, folder: Path, context: core.Context) -> dict[str, float]:
    path = folder / "bare" / "state.pt"
    path.parent.mkdir(exist_ok=True)

    def save() -> None:
        torch.save(state, path)
        for name in (path, path.parent):
            fd = os.open(name, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)

    seconds = timed(save).clock
    path.unlink()
    return {"bare": seconds}


def store(state: Any, folder: Path, context: core.Context) -> dict[str, float]:
    def save() -> None:
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
            torch.save(state, path / "state.pt")

    return {"store": timed(save).clock, "sums": timed(context.checkpoint.wait).clock}


def store_async(state: Any, folder: Path, context: core.Context) -> dict[str, float]:
    written = [0.0]

    def save() -> None:
        with context.checkpoint.store_path_async({"steps_completed": 1}) as (path, _):
            written[0] = timed(lambda: torch.save(state, path / "state.pt")).clock

    seconds = timed(save).clock
    context.checkpoint.wait()
    return {"async": seconds - written[0], "write": written[0]}


def beside(mebibytes: int, state: Any, folder: Path, context: core.Context, rounds: int) -> Iterator[Row]:
    """Steps of one thread's work; of 60, every 20th is followed by a checkpoint."""
    torch.set_num_threads(1)
    matrix = torch.randn(512, 512)

    def train(way: Any) -> float:
        def steps() -> None:
            for step in range(60):
                for _ in range(4):
                    torch.mm(matrix, matrix)
                if step % 20 == 9 and way is not None:
                    with way({"steps_completed": step}) as (path, _):
                        torch.save(state, path / "state.pt")

        seconds = timed(steps).clock
        context.checkpoint.wait()
        for path in folder.glob("storage/*"):
            shutil.rmtree(path)
        return seconds

    checkpoint = context.checkpoint
    ways = {"none": None, "store_path": checkpoint.store_path, "store_path_async": checkpoint.store_path_async}
    times = alternate({name: functools.partial(train, way) for name, way in ways.items()}, rounds, warm=0)
    for name in ("store_path", "store_path_async"):
        added = [1e3 * (with_it - without) / 3 for with_it, without in zip(times[name], times["none"])]
        yield Row(f"a checkpoint by {name} adds to a training, {mebibytes:,} MiB", "ms", median(added))


if __name__ == "__main__":
    run(__doc__, rows, arguments)
