"""How often a node looks into the run's directory for a word that ends it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dethpc.exec.supervision import supervise
from dethpc.exec.supervision.supervise import QUIET_SECONDS, Watch
from dethpc.rundir import layout
from dethpc.rundir.files import write_json
from dethpc.rundir.layout import RunDir

SECONDS = 600


def test_a_node_looks_for_a_kill_seldom_until_a_signal_comes_and_then_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir, clock, looks = RunDir(tmp_path / "run"), [1000.0], list[Path]()
    run_dir.make()
    read = layout.read_json

    def reading(path: Path) -> Any:
        looks.append(path)
        return read(path)

    monkeypatch.setattr(layout, "read_json", reading)
    monkeypatch.setattr(supervise.time, "monotonic", lambda: clock[0])
    signals = SimpleNamespace(at_once=False, came=False)
    watch = Watch(run_dir, 0, signals)  # type: ignore[arg-type]
    for _ in range(SECONDS):
        assert watch.verdict() == ""
        clock[0] += 1.0
    assert len(looks) == SECONDS / QUIET_SECONDS
    write_json(run_dir.closed, {"intent": "kill", "reason": "enough", "at": 0})
    signals.came = True
    clock[0] += supervise.LOOK_SECONDS
    assert watch.verdict() == "killed: enough"
