"""What a search would do, before it does it."""

from __future__ import annotations

import math

from dethpc.config import load
from dethpc.config.source import dump
from dethpc.master.http.access import Owner
from dethpc.master.http.router import new_router
from dethpc.master.http.wire import preview as wire

router = new_router(prefix="/api/v1", tags=["experiments"])


@router.post("/preview-hp-search")
def preview_search(request: wire.PreviewRequest, who: Owner) -> wire.Preview:
    """How many trials of the given experiment configuration train for which length, the shortest first."""
    from dethpc.simulator.preview import preview  # a master that is not asked for it holds no simulator in memory

    config = load(dump(request.config or {})).config
    seed = request.seed or config.reproducibility.experiment_seed or 0
    name = config.searcher.unit_of_length()
    trials = [
        wire.TrialSummary(
            count=count,
            unit=wire.SearchUnit(max_length=True)
            if math.isinf(length)
            else wire.SearchUnit(name=name, value=math.ceil(length)),
        )
        for length, count in sorted(preview(config.searcher, config.space, seed).items())
    ]
    return wire.Preview(summary=wire.SearchSummary(config=config.searcher.model_dump(mode="json"), trials=trials))
