"""What the master writes of trials that are trained elsewhere."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

import pytest

from dethpc.domain.reports import ReportKind
from dethpc.master.experiments import journals
from dethpc.rundir.home import Home
from dethpc.rundir.journal import JournalWriter
from tests.waiting import LONG_ENOUGH


def test_whatever_is_reported_reaches_the_disk_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: queue.SimpleQueue[JournalWriter] = queue.SimpleQueue()
    flush = JournalWriter.flush

    def seen(writer: JournalWriter, *arguments: Any) -> None:
        flush(writer, *arguments)
        flushed.put(writer)

    monkeypatch.setattr(JournalWriter, "flush", seen)
    monkeypatch.setattr(journals, "SYNC_SECONDS", 0.01)
    home = Home(tmp_path)
    home.make()
    of_all = journals.Journals(home)
    of_all.start()
    for run_id in ("1.1.1", "1.1.1", "2.2.1"):
        journal = of_all.of(run_id)
        journal.append(
            run_id, ReportKind.METRICS, {"group": "training", "steps_completed": 1, "metrics": {"loss": 1.0}}
        )
        assert flushed.get(timeout=LONG_ENOUGH) is journal.writer
    of_all.stop()
