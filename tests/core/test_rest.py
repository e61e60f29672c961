"""Reports of those who have not the attempt's journal."""

from __future__ import annotations

from typing import Any, List

import pytest

from dethpc.core import _rest
from dethpc.domain.reports import ReportKind
from dethpc.errors import MasterUnreachable


def test_closing_does_not_try_each_of_many_reports_at_a_master_that_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Away:
        tried: List[str] = []

        def request(self, method: str, path: str, **_: Any) -> None:
            self.tried.append(path)
            raise MasterUnreachable("nobody is there")

    monkeypatch.setattr(_rest, "_PATIENCE", 0.0)
    away: Any = Away()
    reporter = _rest.RestReporter(away, 3, 1, "1.3")
    for step in range(100):
        reporter.report(ReportKind.METRICS, {"group": "training", "steps_completed": step, "metrics": {"loss": 1.0}})
    reporter.close()
    assert 1 <= len(away.tried) < 10
    assert "100 reports are lost" in caplog.text
