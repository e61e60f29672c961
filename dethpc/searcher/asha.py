"""Adaptive ASHA and asynchronous halving."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from heapq import nsmallest
from typing import Any

from dethpc.config.sections import searcher as config
from dethpc.config.sections.hyperparameters import Space
from dethpc.domain.text.rungs import place
from dethpc.searcher.base import (
    MAX_INVALID_PER_TRIAL,
    Action,
    Create,
    Exit,
    Note,
    Searcher,
    Stop,
    recalled,
    recorded,
)
from dethpc.searcher.draws import draws
from dethpc.searcher.halving import Bracket, Rung, share_concurrency, share_trials


class AdaptiveASHA(Searcher):
    """``max_trials`` trials over brackets that ``mode`` chooses (or ``bracket_rungs`` names), judged as they report.

    Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020; the brackets as in Hyperband (Li et al.,
    JMLR 18, 2018): several halvings side by side, from one that judges early to one that judges late.

    A trial that crashes ranks worst in the rung that it did not reach; one with invalid hyperparameters is forgotten and
    replaced; one that ends without ever having reported the metric ranks worst in the first rung.
    """

    def __init__(self, section: config.Halving, space: Space, seed: int) -> None:
        super().__init__(section, space, seed)
        self._draws = draws(section.sampler, space, seed)
        self._unit = section.unit_of_length()
        self._bare = section.time_name() is None
        rungs = section.rungs()
        self._trials = share_trials(section.max_trials, section.divisor, rungs)
        self._concurrent = self._concurrency(section, rungs)
        full_length = section.full_length()
        self.brackets = [Bracket(r, section.divisor, full_length) for r in rungs[: len(self._trials)]]
        self._search = [{"bracket": i, "lengths": b.lengths} for i, b in enumerate(self.brackets)]
        self._bracket_of = array("B")  # by trial index
        self._reached = array("B")  # by trial index: how many rungs it has entered
        self._made = [0] * len(self.brackets)
        self._invalid = [0] * len(self.brackets)

    def _concurrency(self, section: config.Halving, rungs: list[int]) -> list[int]:
        return share_concurrency(section.max_concurrent_trials, section.divisor, self._trials)

    # --- decide

    def start(self) -> list[Action]:
        actions: list[Action] = []
        for bracket, concurrent in enumerate(self._concurrent):
            for _ in range(concurrent):
                actions.append(self._create(len(actions), bracket))
        return actions

    def _create(self, index: int, bracket: int) -> Create:
        return Create(index, self._draws.draw(index), self._search[bracket])

    def validated(self, index: int, length: float, metric: float) -> list[Action]:
        rungs = self.brackets[self._bracket_of[index]].rungs
        reached = self._reached[index]
        if reached == len(rungs) or length < rungs[reached].length:
            return []
        value = self.rank_value(metric)
        verdict = self.brackets[self._bracket_of[index]].judge(reached, length, value)
        actions: list[Action] = [Note(index, "rung", {"rung": r, "value": recorded(value)}) for r in verdict.entered]
        if not verdict.goes_on:
            last = verdict.entered[-1]
            actions.append(Stop(index, self._why(last, rungs[last], value, top=last == len(rungs) - 1)))
        return actions

    def _why(self, number: int, rung: Rung, value: float, *, top: bool) -> str:
        at = place(number, self._unit, rung.length)
        if top:
            return f"trained to the full length, {self._unit} {rung.length}: {self.show(value)}"
        if math.isinf(value):
            return f"{at}: {self.show(value)}, which ranks worst"
        entered = len(rung) + 1
        return (
            f"{at}: {self.show(value)} is worse than the cut-off {self.own_sign(rung.cut_off):.6g} "
            f"(best {rung.keeps(entered)} of {entered} so far)"
        )

    def exited(self, index: int, how: Exit) -> list[Action]:
        bracket = self._bracket_of[index]
        if self._made[bracket] < self._target(bracket):
            return [self._create(self.created_count, bracket)]
        return []

    def _target(self, bracket: int) -> int:
        trials = self._trials[bracket]
        return trials + min(self._invalid[bracket], MAX_INVALID_PER_TRIAL * trials)

    @property
    def total(self) -> int:
        return sum(self._target(bracket) for bracket in range(len(self.brackets)))

    @property
    def shortcoming(self) -> str:
        """Of all that reach a rung, the first goes on: only trials that end by themselves leave no value in any top rung. (One that
        never reported ranks worst in the first rung, which may be the top one.)"""
        if any(value < math.inf for bracket in self.brackets for value in bracket.rungs[-1].values):
            return ""
        length = max(bracket.rungs[-1].length for bracket in self.brackets)
        if self._bare:
            return (
                f"no trial completed an operation of length {length}, by which a search without a unit compares its trials: the "
                "training code ended before, or does not ask for core_context.searcher.operations()"
            )
        return (
            f"no trial reported {self._unit} {length}, up to which the search was to train: the training code ended before, or "
            f"does not report {self._unit}"
        )

    def describe(self, most: int | None = None) -> dict[str, Any]:
        brackets = [
            {
                "trials": self._target(number),
                "created": self._made[number],
                "max_concurrent_trials": self._concurrent[number],
                "rungs": [self._show_rung(r, rung, most) for r, rung in enumerate(bracket.rungs)],
            }
            for number, bracket in enumerate(self.brackets)
        ]
        return {**super().describe(most), "unit": self._unit, "brackets": brackets}

    def _show_rung(self, number: int, rung: Rung, most: int | None) -> dict[str, Any]:
        entries = zip(rung.values, rung.indexes, strict=True)
        ordered = sorted(entries) if most is None else nsmallest(most, entries)
        return {
            "length": rung.length,
            "entered": len(rung),
            "went_on": sum(self._reached[index] > number + 1 for index in rung.indexes),
            "cut_off": self.own_sign(rung.cut_off),
            "trials": [
                {"index": index, "value": self.own_sign(value), "went_on": self._reached[index] > number + 1}
                for value, index in ordered
            ],
        }

    # --- remember

    def created(self, index: int, hparams: Mapping[str, Any], search: Mapping[str, Any]) -> None:
        super().created(index, hparams, search)
        bracket = int(search["bracket"])
        self._bracket_of.append(bracket)
        self._reached.append(0)
        self._made[bracket] += 1
        self._draws.created(index, hparams)

    def noted(self, index: int, kind: str, data: Mapping[str, Any]) -> None:
        rung = int(data["rung"])
        if self._reached[index] == rung:
            self.brackets[self._bracket_of[index]].rungs[rung].add(index, recalled(data["value"]))
            self._reached[index] += 1

    def closed(self, index: int, how: Exit, best: float | None = None) -> None:
        super().closed(index, how, best)
        bracket, reached = self._bracket_of[index], self._reached[index]
        rungs = self.brackets[bracket].rungs
        self._draws.learned(index, None if best is None else self.rank_value(best), reached, reached == len(rungs))
        if how is Exit.INVALID_HP:
            self._invalid[bracket] += 1
            for rung in rungs[:reached]:
                rung.remove(index)
        elif reached < len(rungs) and (how is Exit.ERRORED or (how is Exit.COMPLETED and reached == 0)):
            rungs[reached].add(index, math.inf)


class AsyncHalving(AdaptiveASHA):
    """One bracket with ``num_rungs`` rungs (Li et al., MLSys 2020)."""

    def _concurrency(self, section: config.Halving, rungs: list[int]) -> list[int]:
        # 0: as many as it takes for one trial to be expected at the top.
        most = section.max_concurrent_trials or int(section.divisor ** (rungs[0] - 1))
        return [min(max(most, 1), self._trials[0])]
