"""The table of trials."""

from __future__ import annotations

from typing import Any

import pytest

from dethpc.cli import output, tables
from dethpc.cli.trial_table import trial_table


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
