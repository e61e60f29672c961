"""Adaptive search by a number of trials."""

from __future__ import annotations

from dethpc.config.sections import searcher as config
from dethpc.config.sections.hyperparameters import Space
from dethpc.searcher.sync_halving import PromotionSearch, plan_by_trials


class AdaptiveSimple(PromotionSearch):
    """Brackets chosen by ``mode`` that share ``max_trials`` evenly, the remainder to those with most rungs.

    Hyperband (Li et al., JMLR 18, 2018) with a choice of brackets. With fewer trials than brackets the last ones get none.
    """

    def __init__(self, section: config.AdaptiveSimple, space: Space, seed: int) -> None:
        rungs = section.rungs()
        even, remainder = divmod(section.max_trials, len(rungs))
        plans = [
            plan_by_trials(r, section.divisor, section.full_length(), even + (i < remainder))
            for i, r in enumerate(rungs)
            if even + (i < remainder) > 0
        ]
        super().__init__(section, space, seed, plans)
