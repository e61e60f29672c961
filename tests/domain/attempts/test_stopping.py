"""Requests to stop: read and written in one way, and spelled alike by Python and by the scripts that Slurm runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dethpc.domain.attempts.stopping import StopReason, StopRequest
from dethpc.rundir.files import write_json
from dethpc.rundir.layout import AttemptDir

DOCS = Path(__file__).parents[3] / "docs" / "run-directory.md"
TEMPLATES = Path(__file__).parents[3] / "templates" / "sbatch"


def test_request_is_read_as_it_was_written(tmp_path: Path) -> None:
    request = StopRequest(StopReason.TIME_LIMIT, 10.5, 40.0)
    attempt = AttemptDir(tmp_path)
    assert attempt.stop_request() is None
    write_json(attempt.stop, request.to_json())
    assert attempt.stop_request() == request
    assert request.to_json() == {"reason": "time_limit", "at": 10.5, "deadline": 40.0}


@pytest.mark.parametrize(
    ("content", "request_"),
    [
        ({}, StopRequest("", 0.0)),
        ({"reason": None, "at": None, "deadline": "soon"}, StopRequest("", 0.0)),
        ({"reason": "pause", "at": 3, "deadline": 5, "intent": "stop"}, StopRequest("pause", 3.0, 5.0)),
    ],
)
def test_request_of_another_release_is_still_a_request(content: dict[str, Any], request_: StopRequest) -> None:
    assert StopRequest.from_json(content) == request_


def test_documentation_names_every_reason() -> None:
    section = DOCS.read_text().split("## stop.json")[1].split("\n## ")[0]
    assert {reason.value for reason in StopReason} <= set(re.findall(r"`(\w+)`", section))


def test_scripts_spell_reasons_and_fields_as_the_programs_do() -> None:
    signals, run = (TEMPLATES / "signals.j2").read_text(), (TEMPLATES / "run.j2").read_text()
    traps = dict(reversed(found) for found in re.findall(r"trap 'stop (\w+)' (\w+)", signals))
    assert traps == {"USR1": StopReason.TIME_LIMIT.value, "TERM": StopReason.PREEMPTED.value}
    compared = re.findall(r'"\$1" = (\w+)', signals)
    requeues = re.findall(r'"(\w+)"', re.search(r'"stop_reason"\) in \((.*?)\)', run)[1])  # type: ignore[index]
    assert compared and requeues
    assert {*compared, *requeues} <= {reason.value for reason in StopReason}
    fields = re.findall(r'"(\w+)": ', re.search(r"'(\{.*?\})", signals)[1])  # type: ignore[index]
    assert fields == list(StopRequest("", 0.0).to_json())
