"""The table of trials."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest

from dethpc.cli import output, tables
from dethpc.cli.trial_table import trial_table
from tests.cli.conftest import trial


def test_hyperparameters_are_flattened_a_few_times_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flattened: list[Any] = []
    flat = output.flat
    monkeypatch.setattr(output, "flat", lambda named: flattened.append(named) or flat(named))
    trials = [{"id": id, "hparams": {"net": {f"h{n}": n * id for n in range(100)}}} for id in (1, 2)]
    tables.show(trial_table({"experiment": {}}, trials))
    lines = capsys.readouterr().out.splitlines()
    assert "net.h99" in lines[0] and "198" in lines[2]
    assert len(flattened) <= 4 * len(trials)


def test_an_error_has_room_before_hyperparameters_and_a_stopped_trial_names_its_rung(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    reasons = [
        "exit code 1: CUDA out of memory on n3",
        "rung 1 (epochs 4): val_loss 0.962249 is worse than the cut-off 0.9",
    ]
    trials = [
        {"id": number, "reason": reason, "wallClockTime": 45.2, "hparams": {f"hp_{n}": n + number for n in range(9)}}
        for number, reason in enumerate(reasons, 1)
    ]
    monkeypatch.setattr(sys, "stdout", drawn := Terminal())
    monkeypatch.setenv("COLUMNS", "80")
    tables.show(trial_table({"experiment": {}}, trials))
    lines = drawn.getvalue().splitlines()
    assert lines[1].endswith("  exit code 1: CUDA out of memory on n3")
    assert lines[2].endswith("  rung 1 (epochs 4)")
    assert len(max(lines[1:3], key=len)) <= 80
    drawn.truncate(0)
    tables.show(trial_table({"experiment": {}}, trials), tables.Layout(wide=True))
    assert "is worse than the cut-off 0.9" in drawn.getvalue()


def test_a_trial_that_its_search_stopped_is_stopped_in_every_table_and_completed_in_json(det: Any, master: Any) -> None:
    early = {"reason": "rung 1 (epochs 4): loss 0.3 did not reach the cut-off 0.2"}
    master.trials = [trial(1, "COMPLETED", 0.2), trial(2, "COMPLETED", 0.3, **early)]
    place = {"bracket": 0, "rung": 1, "length": 4, "value": 0.3, "nextLength": None, "parentTrialId": None}
    master.search = {**master.search, "trials": [{"trialId": 2, "state": "STATE_COMPLETED", **place, **early}]}

    def shown(*command: Any) -> str:
        done = det(*command, master=master)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    for command in (
        ("experiment", "list-trials", 1),
        ("trial", "list", 1, "--csv"),
        ("experiment", "describe", 1, "--search"),
    ):
        states = re.findall(r"^(\d+)[ ,]+(COMPLETED|STOPPED)\b", shown(*command), re.M)
        assert set(states) == {("1", "COMPLETED"), ("2", "STOPPED")}, command
    assert '"STATE_COMPLETED"' in shown("trial", "list", 1, "--json") and "STOPPED" not in shown(
        "trial", "list", 1, "--json"
    )
    lines = shown("trial", "list", 1, "--state", "stopped").splitlines()
    assert [line.split()[0] for line in lines] == ["Trial", "2"]
    assert master.asked[-1][2]["states"] == ["COMPLETED"]
    assert "Trial 2 is STOPPED: nothing to do" in shown("trial", "kill", 2)
    refused = det("experiment", "list", "--state", "stopped", master=master)
    assert refused.returncode == 2 and "'stopped' is not a state" in refused.stderr
