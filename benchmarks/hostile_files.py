"""What reading a journal and a log with a line of gigabytes costs.

The lines are holes, which take no room on the disk. Each reading has a process of its own; its peak counts beyond its imports. All
looks at the journal come once its attempt is over; others have their turn between two.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.frame import Figure, Row, run
from dethpc.domain.reports import ReportKind
from dethpc.rundir import logline
from dethpc.rundir.journal import JournalWriter
from dethpc.rundir.layout import RunDir
from tests.memory import megabytes_taken

LIMIT = 64  # MiB


def row(what: str, setup: str, code: str) -> Row:
    began = time.monotonic()
    taken = megabytes_taken(setup, code)
    seconds = f"{time.monotonic() - began:.1f} s with the start of the process"
    return Row(what, "MiB", Figure(taken), limit=LIMIT, note=seconds)


def rows(options: argparse.Namespace) -> Iterator[Row]:
    journal_size, log_size = (512, 512) if options.quick else (3072, 2048)  # MiB
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        with JournalWriter(path) as journal:
            journal.append(ReportKind.PROGRESS, {"progress": 0.5})
        os.truncate(path, journal_size << 20)
        setup = "from dethpc.rundir.journal import RemainsReader, read"
        line = f"a journal with a line of {journal_size:,} MiB"
        yield row(f"one look at {line}", setup, f"read({str(path)!r}, 0, 0, 1 << 20)")
        remains = f"r = RemainsReader({str(path)!r})\nwhile not r.whole: r.read(1 << 20)"
        yield row(f"all looks at {line}", setup, remains)

        attempt = RunDir(Path(folder) / "1.1.1").attempt(0)
        attempt.make()
        attempt.log(0).write_text(logline.format(logline.LogLine(1e9, "INFO", 0, "stdout", "hello")))
        os.truncate(attempt.log(0), log_size << 20)
        setup = (
            "from pathlib import Path; from dethpc.master.files import logs; from dethpc.rundir.layout import RunDir"
        )
        ask = f"logs.sources(lambda run: RunDir(Path({folder!r}, run)), ['1.1.1']), logs.Filter(), 3"
        line = f"a log of {log_size:,} MiB in one line"
        yield row(f"the last 3 lines of {line}", setup, f"list(logs.looks({ask}, newest_first=True))")
        yield row(f"all of {line}", setup, f"list(logs.looks({ask}))")


if __name__ == "__main__":
    run(__doc__, rows)
