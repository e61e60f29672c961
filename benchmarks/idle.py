"""What an idle master costs: resident memory and processor time, after some listings."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from benchmarks.frame import Figure, Row, run
from benchmarks.setting import local


def rows(options: argparse.Namespace) -> Iterator[Row]:
    seconds = 15 if options.quick else 60
    with local() as master:
        for listing in ("experiment", "resource-pool"):
            master.det(listing, "list")
        time.sleep(5)
        before, start = master.cpu(), time.monotonic()
        time.sleep(seconds)
        share = (master.cpu() - before) / (time.monotonic() - start)
        yield Row("memory of an idle master", "MiB", Figure(master.memory()), limit=110)
        yield Row("processor time of an idle master", "% of a core", Figure(100 * share), limit=0.2)


if __name__ == "__main__":
    run(__doc__, rows)
