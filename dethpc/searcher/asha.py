"""Adaptive ASHA and asynchronous halving.

Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020; the brackets as in Hyperband (Li et al., JMLR
18, 2018): several halvings side by side, from one that judges early to one that judges late.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dethpc.searcher.base import Action, Create, Exit, Note, Searcher, Stop
from dethpc.searcher.halving import (
    Bracket,
    bracket_rungs,
    settings_of,
    share_concurrency,
    share_trials,
    useful_rungs,
)
from dethpc.searcher.sampling import parse_space, sample

MAX_INVALID_PER_TRIAL = 10


class AdaptiveASHA(Searcher):
    """``max_trials`` trials over brackets that ``mode`` chooses (or ``bracket_rungs`` names)."""

    def __init__(self, settings: Mapping[str, Any], hyperparameters: Mapping[str, Any], seed: int) -> None:
        super().__init__(settings, hyperparameters, seed)
        self._space = parse_space(hyperparameters)
        divisor, full_length = settings_of(settings)
        max_trials = int(settings["max_trials"])
        rungs = self._rungs(settings, divisor, full_length, max_trials)
        self._trials = share_trials(max_trials, divisor, rungs)
        self._concurrent = share_concurrency(int(settings.get("max_concurrent_trials") or 16), self._trials)
        self.brackets = [Bracket(r, divisor, full_length) for r in rungs[: len(self._trials)]]
        self.bracket_of: list[int] = []  # by trial index
        self._made = [0] * len(self.brackets)
        self._invalid = [0] * len(self.brackets)

    def _rungs(self, settings: Mapping[str, Any], divisor: float, full_length: float, max_trials: int) -> list[int]:
        most = useful_rungs(int(settings.get("max_rungs") or 5), divisor, full_length, max_trials)
        named = settings.get("bracket_rungs")
        if named:
            return sorted({min(int(r), most) for r in named}, reverse=True)
        return bracket_rungs(str(settings.get("mode") or "standard"), most)

    # --- decide

    def start(self) -> list[Action]:
        actions: list[Action] = []
        for bracket, (trials, concurrent) in enumerate(zip(self._trials, self._concurrent, strict=True)):
            for _ in range(min(trials, concurrent)):
                actions.append(self._create(len(actions), bracket))
        return actions

    def _create(self, index: int, bracket: int) -> Create:
        return Create(index, sample(self._space, self.seed, index), {"bracket": bracket})

    def validated(self, index: int, length: float, metric: float) -> list[Action]:
        verdict = self.brackets[self.bracket_of[index]].judge(index, length, self.rank_value(metric))
        actions: list[Action] = [Note(index, "rung", {"rung": r, "value": v}) for r, v in verdict.entered]
        if verdict.stop:
            actions.append(Stop(index, verdict.stop))
        return actions

    def exited(self, index: int, how: Exit) -> list[Action]:
        bracket = self.bracket_of[index]
        if self._made[bracket] < self._target(bracket):
            return [self._create(self.created_count, bracket)]
        return []

    def _target(self, bracket: int) -> int:
        trials = self._trials[bracket]
        return trials + min(self._invalid[bracket], MAX_INVALID_PER_TRIAL * trials)

    @property
    def total(self) -> int:
        return sum(self._target(bracket) for bracket in range(len(self.brackets)))

    # --- remember

    def created(self, index: int, hparams: Mapping[str, Any], search: Mapping[str, Any]) -> None:
        super().created(index, hparams, search)
        self.bracket_of.append(int(search["bracket"]))
        self._made[self.bracket_of[index]] += 1

    def noted(self, index: int, kind: str, data: Mapping[str, Any]) -> None:
        self.brackets[self.bracket_of[index]].enter(index, int(data["rung"]), float(data["value"]))

    def closed(self, index: int, how: Exit) -> None:
        super().closed(index, how)
        self._invalid[self.bracket_of[index]] += how is Exit.INVALID_HP


class AsyncHalving(AdaptiveASHA):
    """One bracket with ``num_rungs`` rungs."""

    def _rungs(self, settings: Mapping[str, Any], divisor: float, full_length: float, max_trials: int) -> list[int]:
        return [max(1, int(settings.get("num_rungs") or settings.get("max_rungs") or 5))]
