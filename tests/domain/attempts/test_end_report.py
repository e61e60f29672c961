"""End reports: read from every release, described in the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dethpc.domain.attempts.end_report import EndReport

ROOT = Path(__file__).parents[3]


def test_report_is_read_as_it_was_written() -> None:
    report = EndReport(False, 137, 9, True, "preempted", "train", "killed by signal 9", 1, ["a", "b"], 12.5)
    assert EndReport.from_json(report.to_json()) == report


@pytest.mark.parametrize(
    ("content", "report"),
    [
        ({}, EndReport()),
        ({"finished": True, "exit_code": 0, "energy": 12}, EndReport(finished=True, exit_code=0)),
        ({"exit_code": None, "stop_reason": None, "tail": None, "node": None, "at": None}, EndReport()),
        ({"exit_code": "1", "node": "n0", "tail": "text", "at": "now", "message": None}, EndReport()),
    ],
)
def test_what_another_release_wrote_or_left_out_counts_as_not_said(content: dict[str, Any], report: EndReport) -> None:
    assert EndReport.from_json(content) == report


def test_documentation_and_templates_name_the_fields() -> None:
    fields = set(EndReport._fields)
    section = (ROOT / "docs" / "run-directory.md").read_text().split("## end.json")[1].split("\n## ")[0]
    cells = " ".join(re.findall(r"^\| (`.*?) \|", section, re.M))
    assert set(re.findall(r"`(\w+)`", cells)) == fields
    script = (ROOT / "templates" / "sbatch" / "run.j2").read_text()
    read = set(re.findall(r'end\.get\("(\w+)"\)', script))
    assert read and read <= fields
