"""Adaptive search by a number of trials."""

from __future__ import annotations

from dethpc.config.rungs import bracket_rungs
from dethpc.searcher.base import count_of
from dethpc.searcher.sync_halving import PromotionSearch, Step, plan_by_trials


class AdaptiveSimple(PromotionSearch):
    """Brackets chosen by ``mode`` that share ``max_trials`` evenly, the remainder to those with most rungs.

    Hyperband (Li et al., JMLR 18, 2018) with a choice of brackets. With fewer trials than brackets the last ones get none.
    """

    def _plans(self) -> list[list[Step]]:
        settings = self.settings
        rungs = bracket_rungs(str(settings.get("mode") or "standard"), int(settings.get("max_rungs") or 5))
        divisor, max_length = float(settings.get("divisor") or 4), count_of(settings["max_length"])
        even, left = divmod(int(settings["max_trials"]), len(rungs))
        shares = [even + (i < left) for i in range(len(rungs))]
        return [
            plan_by_trials(r, divisor, max_length, share) for r, share in zip(rungs, shares, strict=True) if share > 0
        ]
