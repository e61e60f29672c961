"""A search on a real Slurm while a seeded monkey breaks everything round it. ``benchmarks.monkey`` does the same for hours."""

from __future__ import annotations

from pathlib import Path

import pytest

from dethpc.deploy import slurm_dev
from dethpc.errors import DethpcError
from tests.monkey.faults import FAULTS
from tests.monkey.round import SHAPE, play
from tests.monkey.world import world

SLOW = ("claim damaged", "end.json damaged", "report damaged", "slurmd killed", "slurmd frozen", "slurmctld frozen")
"""Kinds after which it takes a minute until master or Slurm is sure of what happened."""


@pytest.mark.everything
@pytest.mark.slurm
@pytest.mark.parametrize("seed", ["12339"])
def test_nothing_is_lost_doubled_or_left_over_whatever_a_monkey_does(seed: str, tmp_path: Path) -> None:
    """What it did is in ``monkey.jsonl`` of the test's folder. The same seed does the same kinds of things in the same order."""
    try:
        slurm_dev.require_programs(slurm_dev.Shape())
    except DethpcError as error:
        pytest.skip(str(error))
    kinds = [fault for fault in FAULTS if fault.kind not in SLOW]
    with world(tmp_path, **SHAPE) as made:
        found = play(made, seed, tmp_path / "monkey.jsonl", trials=12, most=81, faults=14, kinds=kinds)
    assert found.verdict.clean, str(found.verdict)
    assert found.verdict.trials == 12
