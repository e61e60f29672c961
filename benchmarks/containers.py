"""What a container adds to the start of a task: the wrap of each runtime around an empty Python, beside the node's
own, warm, on an unpacked Debian.

Each starts a process of its own, in turns. A runtime that is not installed is left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.frame import Row, Spent, alternate, cpu_of_children, median, ratio, run, timed
from dethpc.containers import RUNTIMES, Bind, Env, Extras

IMAGE = Path.home() / ".cache" / "dethpc" / "debian-bookworm-python3"
"""As the tests make it."""

LIMIT = 300.0  # ms
BINDS = (Bind("/srv", "/srv"), Bind("/opt", "/opt", read_only=True))


def rows(options: argparse.Namespace) -> Iterator[Row]:
    if not IMAGE.is_dir():
        sys.exit(f"no image at ~/{IMAGE.relative_to(Path.home())}: `pytest tests/containers`, as root, makes it once")
    env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/tmp", "USER": "nobody"}

    def command(name: str) -> list[str]:
        own = ["--userns"] if name == "apptainer" and os.geteuid() == 0 else []
        wrapped = RUNTIMES[name].wrap(str(IMAGE), ["python3", "-c", "pass"], BINDS, Env(), "", Extras(options=own))
        return list(wrapped.command)

    names = [name for name in ("apptainer", "charliecloud") if shutil.which(RUNTIMES[name].binary)]
    commands = {name: command(name) for name in ("none", *names)}
    ways = {
        name: partial(timed, partial(subprocess.run, words, check=True, env=env, cwd="/"), cpu_of_children)
        for name, words in commands.items()
    }
    spent = alternate(ways, 7 if options.quick else 25)
    kinds: dict[str, Callable[[Spent], float]] = {
        "": lambda took: 1e3 * took.clock,
        ", processor time": lambda took: 1e3 * took.cpu,
    }
    for what, of in kinds.items():
        empty = [of(took) for took in spent["none"]]
        for name in names:
            ours = [of(took) for took in spent[name]]
            added = median([a - b for a, b in zip(ours, empty, strict=True)])
            yield Row(
                f"{name} adds to the start{what}",
                "ms",
                added,
                {"no container": median(empty)},
                LIMIT,
                ratio(ours, empty),
            )


if __name__ == "__main__":
    run(__doc__, rows)
