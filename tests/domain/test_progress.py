"""How far an experiment is said to be."""

from __future__ import annotations

from typing import Any

import pytest

from dethpc.domain.progress import progress

RANDOM = {"name": "random", "metric": "loss"}


@pytest.mark.parametrize(
    ("searcher", "experiment", "said"),
    [
        (RANDOM, {"progress": 0.0}, None),
        (RANDOM, {"progress": 0.25}, 0.25),  # one of four has ended
        ({**RANDOM, "max_length": {"batches": 10}}, {"progress": 0.0}, 0.0),
        ({**RANDOM, "name": "adaptive_asha", "time_metric": "batches", "max_time": 9}, {"progress": 0.0}, 0.0),
    ],
)
def test_progress_is_unknown_while_nothing_tells_it(searcher: Any, experiment: Any, said: float | None) -> None:
    assert progress({**experiment, "config": {"searcher": searcher}}) == said
    assert progress(experiment, {"searcher": searcher}) == said
