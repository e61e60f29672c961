"""The master's own log is read by number of line."""

from __future__ import annotations

from pathlib import Path

import pytest

from dethpc.master import own_log
from dethpc.rundir import lines


def test_the_masters_log_by_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_BLOCK", 60)
    monkeypatch.setattr(lines, "MOST", 100)
    path = tmp_path / "master.log"
    assert own_log.read(path) == ([], 0, 0)
    path.write_text("2025-11-13 02:13:20,123 INFO dethpc.master: up\nTraceback\n2025-11-13T02:13:21Z ERROR x\n")
    entries, count, end = own_log.read(path)
    assert [(entry.id, entry.level) for entry in entries] == [(1, "INFO"), (2, "UNSPECIFIED"), (3, "ERROR")]
    assert entries[2].timestamp == "2025-11-13T02:13:21.000Z"
    assert [entry.id for entry in own_log.read(path, -1)[0]] == [3]
    assert [entry.id for entry in own_log.read(path, 1, 1)[0]] == [2]
    with path.open("a") as file:
        file.write("more\nhalf")
    entries, count, end = own_log.read_after(path, count, end)
    assert [(entry.id, entry.message) for entry in entries] == [(4, "more")]
    for first in range(-5, 6):  # lines are counted by the block, and only those shown are read
        for limit in range(4):
            numbers = range(1, 5)[first:][: limit or None] if first else range(1, 5)[: limit or None]
            assert [entry.id for entry in own_log.read(path, first, limit)[0]] == list(numbers)
    assert own_log.read(path, 10**30)[0] == [] and len(own_log.read(path, -(10**30), 10**30)[0]) == 4
    path.write_text("anew\n")
    assert [entry.id for entry in own_log.read_after(path, count, end)[0]] == [1]
