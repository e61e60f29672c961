"""Altered and random bytes for everything that takes in what others wrote; ``benchmarks.fuzz`` does so for hours."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings

from tests.fuzz.targets import TARGETS, altered


@pytest.mark.parametrize("name", TARGETS)
def test_no_bytes_do_harm(name: str) -> None:
    target, seeds = TARGETS[name]

    @settings(max_examples=120, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=altered(seeds))
    def take(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            target(data, Path(folder))

    for seed in seeds:
        take = example(data=seed)(take)
    take()
