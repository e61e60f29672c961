"""Adaptive search by a budget."""

from __future__ import annotations

from dethpc.config.sections import searcher as config
from dethpc.config.sections.hyperparameters import Space
from dethpc.searcher.sync_halving import PromotionSearch, plan_by_budget


class Adaptive(PromotionSearch):
    """Brackets chosen by ``mode`` that share ``budget`` evenly; ``max_length`` is the most for any one trial.

    Hyperband (Li et al., JMLR 18, 2018) with a choice of brackets.
    """

    def __init__(self, section: config.Adaptive, space: Space, seed: int) -> None:
        rungs = section.rungs()
        budget = config.count(section.budget) // len(rungs)
        plans = [plan_by_budget(r, section.divisor, section.full_length(), budget) for r in rungs]
        super().__init__(section, space, seed, plans)
