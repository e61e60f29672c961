"""A checkpoint brought to S3 (moto's server, in a process of its own) over s3fs's own parallel ``put`` of the same files, and
boto3's ``upload_file`` in as many threads.

Ours also sums every file, counts what has arrived and publishes a manifest: all requests of a checkpoint are in its time. Limits
are for the ratio of bytes per second, ours over the driver's. By the clock most of the time is the server's, so bytes per second of
this process's own processor time are told beside it.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.frame import Row, Spent, alternate, median, ratio, run, timed
from dethpc import storage

SHAPES = {"one file of 128 MiB": (1, 128), "32 files of 4 MiB": (32, 4)}
SERVER = "from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"


def rows(options: argparse.Namespace) -> Iterator[Row]:
    port = _free_port()
    quiet = subprocess.DEVNULL
    server = subprocess.Popen([sys.executable, "-c", SERVER.format(port=port)], stdout=quiet, stderr=quiet)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name, (count, mebibytes) in SHAPES.items():
                yield from _compared(
                    name, count, mebibytes, f"http://127.0.0.1:{port}", folder, 3 if options.quick else 9
                )
    finally:
        server.terminate()
        server.wait()


def _compared(name: str, count: int, mebibytes: int, url: str, folder: str, rounds: int) -> Iterator[Row]:
    section = {"type": "s3", "bucket": "bench", "endpoint_url": url, "access_key": "k", "secret_key": "s"}
    store: Any = storage.build(section, disk=f"{folder}/disk")
    fs, numbers = store._driver.fs, itertools.count()
    _made(fs)
    source = Path(folder, name.replace(" ", "-"))
    source.mkdir()
    for n in range(count):
        (source / f"part{n}").write_bytes(os.urandom(mebibytes << 20))

    def speed(act: Any) -> Spent:
        place = f"{name.split()[0]}-{next(numbers)}"
        took = timed(lambda: act(place))
        fs.rm(f"bench/{place}", recursive=True)
        return Spent(count * mebibytes / took.clock, count * mebibytes / took.cpu)

    def ours(place: str) -> None:
        store.stage(place)
        store.publish(place, store.add(place, source))

    def theirs(place: str) -> None:
        fs.put(f"{source}/", f"bench/{place}/", recursive=True)

    import boto3
    from botocore.config import Config

    keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=url, config=Config(max_pool_connections=16), **keys)

    def bare(place: str) -> None:
        with ThreadPoolExecutor(16) as pool:
            for _ in pool.map(
                lambda file: client.upload_file(str(file), "bench", f"{place}/{file.name}"), source.iterdir()
            ):
                pass

    ways = {"ours": ours, "s3fs": theirs, "boto3": bare}
    found = alternate({name: partial(speed, way) for name, way in ways.items()}, rounds)
    for by, what, limit in (("clock", "", 0.9), ("cpu", ", by processor time", None)):
        speeds = {way: [getattr(one, by) for one in each] for way, each in found.items()}
        peers = {"s3fs put": median(speeds["s3fs"]), "boto3, 16 threads": median(speeds["boto3"])}
        times = ratio(speeds["ours"], speeds["s3fs"])
        figure = median(speeds["ours"])
        yield Row(f"upload to S3, {name}{what}", "MiB/s", figure, peers, limit, times, of="ratio", rule=">=")


def _made(fs: Any) -> None:
    """The bucket, once the server listens."""
    until = time.monotonic() + 60
    while True:
        try:
            if not fs.exists("bench"):
                fs.mkdir("bench")
            return
        except Exception:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def _free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


if __name__ == "__main__":
    run(__doc__, rows)
