"""``det job``: the table of the queue, and what its commands ask of the master."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from dethpc.cli.nouns.job import job, short
from tests.cli.conftest import Answers, Det


def test_ids_are_short_as_long_as_they_differ() -> None:
    assert short(["0d714127-aaaa", "73853c5c-bbbb"]) == {"0d714127-aaaa": "0d714127", "73853c5c-bbbb": "73853c5c"}
    assert set(short(["0d714127-aaaa", "0d714127-bbbb"]).values()) == {"0d714127-aaa", "0d714127-bbb"}


def test_commands_and_what_they_ask(det: Det, master: Answers) -> None:
    def run(*words: str, code: int = 0) -> str:
        done = det("job", *words, master=master)
        assert done.returncode == code, done.stderr
        return done.stdout or done.stderr

    assert run("update", "0d714127", "--ahead-of", "73853c5c") == "Moved job 0d714127 ahead of job 73853c5c\n"
    batch = run("update-batch", "a1b2.priority=1", "c3d4.resource-pool=compute", "e5f6.behind_of=a1b2")
    assert batch.splitlines() == [
        "Set the priority of job a1b2 to 1",
        "Moved job c3d4 to the resource pool compute",
        "Moved job e5f6 behind job a1b2",
    ]
    assert run("u", "0d714127", "-w", "2.5") == "Set the weight of job 0d714127 to 2.5\n"
    assert [body["updates"] for path, body in master.did("POST") if path == "/api/v1/job-queues"] == [
        [{"jobId": "0d714127", "aheadOf": "73853c5c"}],
        [
            {"jobId": "a1b2", "priority": 1},
            {"jobId": "c3d4", "resourcePool": "compute"},
            {"jobId": "e5f6", "behindOf": "a1b2"},
        ],
        [{"jobId": "0d714127", "weight": 2.5}],
    ]
    head, row = run("list", "-p", "gpu", "--why").splitlines()
    assert head.endswith("  Waiting for") and row.endswith("  2 of 3: It waits for 4 GPUs")
    assert json.loads(run("list", "--why", "--json"))["jobs"][0]["waiting"]["count"] == 3
    head, row = run("list", "-p", "gpu").splitlines()
    assert re.split("  +", head) == [
        "#",
        "ID",
        "Experiment",
        "Type",
        "Job Name",
        "Weight",
        "Submitted",
        "Slots (acquired/needed)",
        "Status",
        "User",
    ]
    assert row.split() == (
        "0 0d714127 1 TYPE_EXPERIMENT digits 2.5 2026-11-20T10:00:00+00:00 1/4 STATE_SCHEDULED ada".split()
    )
    assert json.loads(run("list", "-p", "gpu", "--json"))["jobs"][0]["entityId"] == "1"
    assert run("list", "--csv").splitlines()[1].startswith("0,0d714127,1,TYPE_EXPERIMENT,digits,2.5,")
    assert "there are gpu" in run("ls", "-p", "nowhere", code=1)
    assert "there are gpu" in det("resource-pool", "goodput", "nowhere", master=master).stderr
    assert det("resource-pool", "goodput", "gpu", master=master).returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        ["update", "a1b2"],
        ["update", "a1b2", "--priority", "3", "--weight", "2"],
        ["update", "a1b2", "--priority", "100"],
        ["update-batch", "a1b2"],
        ["update-batch", "a1b2.priority"],
        ["update-batch", "a1b2.priority=high"],
        ["update-batch", "a1b2.colour=red"],
    ],
)
def test_a_wrong_command_line_is_answered_with_what_is_allowed_and_starts_no_master(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETHPC_HOME", str(tmp_path / "home"))
    done = CliRunner().invoke(job, words)
    assert done.exit_code == 2
    assert "priority" in done.output or "OPERATION" in done.output
    assert not (tmp_path / "home").exists()
