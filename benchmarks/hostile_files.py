"""What reading a journal and a log with a line of gigabytes costs: PYTHONPATH=. python benchmarks/hostile_files.py.

The lines are holes, which take no room on the disk. Each reading has a process of its own; its peak counts beyond its imports.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from dethpc.domain.reports import ReportKind
from dethpc.rundir import logline
from dethpc.rundir.journal import JournalWriter
from dethpc.rundir.layout import RunDir
from tests.memory import megabytes_taken


def measure(what: str, setup: str, code: str) -> None:
    began = time.monotonic()
    took = megabytes_taken(setup, code)
    print(f"{what}: {took} MiB, {time.monotonic() - began:.1f} s with the start of the process", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        with JournalWriter(path) as journal:
            journal.append(ReportKind.PROGRESS, {"progress": 0.5})
        with open(path, "r+b") as file:
            file.truncate(3 << 30)
        setup = "from dethpc.rundir.journal import RemainsReader, read"
        measure("one look at a journal with a line of 3 GiB", setup, f"read({str(path)!r}, 0, 0, 1 << 20)")
        remains = f"r = RemainsReader({str(path)!r})\nwhile not r.whole: r.read(1 << 20)"
        measure("all looks at it, once its attempt is over", setup, remains)

        attempt = RunDir(Path(folder) / "1.1.1").attempt(0)
        attempt.make()
        attempt.log(0).write_text(logline.format(logline.LogLine(1e9, "INFO", 0, "stdout", "hello")))
        with open(attempt.log(0), "r+b") as file:
            file.truncate(2 << 30)
        setup = "from pathlib import Path; from dethpc.master.runs import logs"
        ask = f"logs.sources(Path({folder!r}), ['1.1.1']), logs.Filter(), 3"
        measure("the last 3 lines of a log of 2 GiB in one line", setup, f"list(logs.looks({ask}, newest_first=True))")
        measure("all of that log", setup, f"list(logs.looks({ask}))")
