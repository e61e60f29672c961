"""Adaptive search by a budget."""

from __future__ import annotations

from dethpc.config.rungs import bracket_rungs
from dethpc.searcher.base import count_of
from dethpc.searcher.sync_halving import PromotionSearch, Step, plan_by_budget


class Adaptive(PromotionSearch):
    """Brackets chosen by ``mode`` that share ``budget`` evenly; ``max_length`` is the most for any one trial.

    Hyperband (Li et al., JMLR 18, 2018) with a choice of brackets.
    """

    def _plans(self) -> list[list[Step]]:
        settings = self.settings
        named = settings.get("bracket_rungs")
        rungs = [max(1, int(r)) for r in named or ()] or bracket_rungs(
            str(settings.get("mode") or "standard"), int(settings.get("max_rungs") or 5)
        )
        divisor, max_length = float(settings.get("divisor") or 4), count_of(settings["max_length"])
        budget = count_of(settings["budget"]) // len(rungs)
        return [plan_by_budget(r, divisor, max_length, budget) for r in sorted(rungs, reverse=True)]
