"""Successive halving with promotion through checkpoints: the methods of the older generation."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dethpc.config.sections import searcher as config
from dethpc.config.sections.hyperparameters import Space
from dethpc.domain.text.rungs import place
from dethpc.searcher.base import (
    MAX_INVALID_PER_TRIAL,
    Action,
    Continue,
    Create,
    Exit,
    Note,
    Searcher,
    Stop,
    Wait,
    recalled,
    recorded,
)
from dethpc.searcher.sampling import sample


@dataclass(slots=True)
class Step:
    """What one rung of a bracket is planned to be: that many trials trained up to a length."""

    length: int
    places: int


@dataclass(slots=True)
class Rung:
    """One rung as it fills. ``values`` and ``indexes`` run in parallel, best first: trials that wait here or were promoted."""

    length: int
    places: int  # how many trials will have come this far
    promotes: int  # how many of them go on
    entered: int = 0  # with a value that can be compared
    dead: int = 0  # crashed on the way here or without such a value: they rank worst
    values: list[float] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)

    def remove(self, index: int) -> bool:
        if index not in self.indexes:
            return False
        at = self.indexes.index(index)
        del self.indexes[at], self.values[at]
        return True


class PromotionSearch(Searcher):
    """Brackets of successive halving in which trials wait at a rung and go on from their checkpoints when promoted.

    Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization", AISTATS 2016; several
    brackets as in Hyperband (Li et al., JMLR 18, 2018).

    Nobody waits longer than needed: a trial is promoted as soon as it must be among the best of its rung whatever the others
    will report, and stopped as soon as it cannot be.
    """

    def __init__(self, section: config.Promotion, space: Space, seed: int, plans: list[list[Step]]) -> None:
        """``plans``: the rungs of every bracket, the bracket with most rungs first."""
        super().__init__(section, space, seed)
        self._unit = section.unit_of_length()
        self.brackets = [
            [
                Rung(step.length, step.places, after.places if after else 0)
                for step, after in zip(plan, [*plan[1:], None])
            ]
            for plan in plans
        ]
        self._bracket_of: list[int] = []  # by trial index
        self._rung_of: list[int] = []  # by trial index: the rung that it trains for or stands at
        self._entered: list[int] = []  # by trial index: how many rungs it has entered
        self._made = [0] * len(self.brackets)
        self._invalid = [0] * len(self.brackets)

    # --- decide

    def start(self) -> list[Action]:
        actions: list[Action] = []
        for bracket, rungs in enumerate(self.brackets):
            for _ in range(rungs[0].places):
                actions.append(self._create(len(actions), bracket))
        return actions

    def _create(self, index: int, bracket: int) -> Create:
        search = {"bracket": bracket, "lengths": [self.brackets[bracket][0].length]}
        return Create(index, sample(self._space, self.seed, index), search)

    def validated(self, index: int, length: float, metric: float) -> list[Action]:
        rungs, number = self.brackets[self._bracket_of[index]], self._rung_of[index]
        rung = rungs[number]
        if length < rung.length or self._entered[index] > number:
            return []
        value = self.rank_value(metric)
        actions: list[Action] = [Note(index, "rung", {"rung": number, "value": recorded(value)})]
        place = f"rung {number} ({self._unit} {rung.length})"
        if number == len(rungs) - 1:
            why = f"trained to the full length, {self._unit} {rung.length}: {self.show(value)}"
            return [*actions, Stop(index, why)]
        if math.isinf(value):
            actions.append(Stop(index, f"{place}: {self.show(value)}, which ranks worst"))
            return actions + self._moves(rungs, _Arrival(index, number, value))
        moves = self._moves(rungs, _Arrival(index, number, value))
        if not any(isinstance(move, (Continue, Stop)) and move.index == index for move in moves):
            to_come = rung.places - self._filled(rungs, number) - 1
            moves.append(Wait(index, f"waits at {place} with {self.show(value)}: {to_come} trials are still to come"))
        return actions + moves

    def exited(self, index: int, how: Exit) -> list[Action]:
        bracket = self._bracket_of[index]
        actions: list[Action] = []
        if self._made[bracket] < self._target(bracket):
            actions.append(self._create(self.created_count, bracket))
        return actions + self._moves(self.brackets[bracket], None)

    def _target(self, bracket: int) -> int:
        places = self.brackets[bracket][0].places
        return places + min(self._invalid[bracket], MAX_INVALID_PER_TRIAL * places)

    @property
    def total(self) -> int:
        return sum(self._target(bracket) for bracket in range(len(self.brackets)))

    def _dead(self, rungs: Sequence[Rung], number: int) -> int:
        """Trials that hold a place of the rung and will never have a value there, phantoms from the rung below included."""
        below = 0
        for rung in rungs[:number]:
            filled = rung.entered + rung.dead + below
            below = max(0, filled + rung.promotes - rung.places - len(rung.indexes))
        return rungs[number].dead + below

    def _filled(self, rungs: Sequence[Rung], number: int) -> int:
        return rungs[number].entered + self._dead(rungs, number)

    def _moves(self, rungs: Sequence[Rung], arrival: _Arrival | None) -> list[Action]:
        """Promote whoever must be among the best by now, stop whoever cannot be; ``arrival`` is not yet in its rung."""
        actions: list[Action] = []
        phantoms = 0  # places that the rung below hands on to nobody, for it has too few trials with a value
        for number, rung in enumerate(rungs[:-1]):
            values, indexes = rung.values, rung.indexes
            filled = rung.entered + rung.dead + phantoms
            if arrival is not None and arrival.rung == number:
                filled += 1
                if not math.isinf(arrival.value):
                    at = bisect_right(values, arrival.value)
                    values = [*values[:at], arrival.value, *values[at:]]
                    indexes = [*indexes[:at], arrival.index, *indexes[at:]]
            certain = filled + rung.promotes - rung.places
            for index, value in zip(indexes[: max(0, certain)], values, strict=False):
                if self._rung_of[index] == number:
                    above = rungs[number + 1].length
                    why = f"promoted to rung {number + 1} ({self._unit} {above}) with {self.show(value)}"
                    actions += [Note(index, "promoted", {"rung": number + 1}), Continue(index, above, why)]
            for index, value in zip(indexes[rung.promotes :], values[rung.promotes :], strict=True):
                why = (
                    f"{place(number, self._unit, rung.length)}: {self.show(value)} is worse than the cut-off "
                    f"{self.own_sign(values[rung.promotes - 1]):.6g} (best {rung.promotes} of {rung.places})"
                )
                actions += [Note(index, "dropped", {"rung": number}), Stop(index, why)]
            phantoms = max(0, certain - len(indexes))
        return actions

    @property
    def progress(self) -> float:
        """By training: what the trials that came to each rung have behind them, of all that is planned."""
        done = planned = 0
        for rungs in self.brackets:
            before = 0
            for number, rung in enumerate(rungs):
                done += (rung.length - before) * min(rung.places, self._filled(rungs, number))
                planned += (rung.length - before) * rung.places
                before = rung.length
        return min(1.0, done / max(1, planned))

    def progress_at(self, trained: float, before: float) -> float:
        return before  # which goes by the lengths of rounds and rungs

    def describe(self, most: int | None = None) -> dict[str, Any]:
        brackets = [
            {
                "trials": self._target(bracket),
                "created": self._made[bracket],
                "rungs": [self._show_rung(rungs, number, most) for number, rung in enumerate(rungs)],
            }
            for bracket, rungs in enumerate(self.brackets)
        ]
        return {**super().describe(most), "unit": self._unit, "brackets": brackets}

    def _show_rung(self, rungs: Sequence[Rung], number: int, most: int | None) -> dict[str, Any]:
        rung = rungs[number]
        full = number < len(rungs) - 1 and len(rung.values) >= rung.promotes
        return {
            "length": rung.length,
            "places": rung.places,
            "promotes": rung.promotes,
            "entered": rung.entered + rung.dead,
            "went_on": sum(self._entered[index] > number + 1 for index in rung.indexes),
            "cut_off": self.own_sign(rung.values[rung.promotes - 1]) if full else None,
            "trials": [
                {"index": index, "value": self.own_sign(value), "went_on": self._entered[index] > number + 1}
                for index, value in zip(rung.indexes[:most], rung.values, strict=False)
            ],
        }

    # --- remember

    def created(self, index: int, hparams: Mapping[str, Any], search: Mapping[str, Any]) -> None:
        super().created(index, hparams, search)
        bracket = int(search["bracket"])
        self._bracket_of.append(bracket)
        self._rung_of.append(0)
        self._entered.append(0)
        self._made[bracket] += 1

    def noted(self, index: int, kind: str, data: Mapping[str, Any]) -> None:
        number = int(data["rung"])
        rung = self.brackets[self._bracket_of[index]][number]
        if kind == "promoted":
            self._rung_of[index] = number
        elif kind == "dropped":
            rung.remove(index)
        else:
            value = recalled(data["value"])
            self._entered[index] = number + 1
            if math.isinf(value):
                rung.dead += 1
                return
            rung.entered += 1
            at = bisect_right(rung.values, value)
            rung.values.insert(at, value)
            rung.indexes.insert(at, index)

    def closed(self, index: int, how: Exit, best: float | None = None) -> None:
        super().closed(index, how, best)
        bracket, number = self._bracket_of[index], self._rung_of[index]
        rung = self.brackets[bracket][number]
        top = number == len(self.brackets[bracket]) - 1
        invalid = how is Exit.INVALID_HP and number == 0
        if invalid:
            self._invalid[bracket] += 1
        replaced = invalid and self._invalid[bracket] <= MAX_INVALID_PER_TRIAL * self.brackets[bracket][0].places
        if self._entered[index] <= number:
            rung.dead += not replaced
        elif not top and rung.remove(index):  # it waited
            rung.entered -= 1
            rung.dead += not replaced


@dataclass(slots=True)
class _Arrival:
    index: int
    rung: int
    value: float


class SyncHalving(PromotionSearch):
    """One bracket of ``num_rungs`` rungs that trains ``budget`` in all (Jamieson and Talwalkar, AISTATS 2016)."""

    def __init__(self, section: config.SyncHalving, space: Space, seed: int) -> None:
        plan = plan_by_budget(section.num_rungs, section.divisor, section.full_length(), config.count(section.budget))
        super().__init__(section, space, seed, [plan])


def plan_by_budget(rungs: int, divisor: float, max_length: int, budget: int) -> list[Step]:
    """A bracket whose training is about ``budget`` in all, in the shape of one that ends with a single trial."""
    shape = [divisor ** (rungs - 1 - i) for i in range(rungs)]
    lengths = [max(int(max_length / part), 1) for part in shape]
    places = [max(int(part), 1) for part in shape]
    once = sum((length - before) * n for length, before, n in zip(lengths, [0, *lengths], places, strict=False))
    scaled = [max(int(budget / once * n), 1) for n in places]
    return [Step(length, min(scaled[: i + 1])) for i, length in enumerate(lengths)]


def plan_by_trials(rungs: int, divisor: float, max_length: int, trials: int) -> list[Step]:
    """A bracket that begins with ``trials`` trials."""
    return [
        Step(max(int(max_length / divisor ** (rungs - 1 - i)), 1), max(int(trials / divisor**i), 1))
        for i in range(rungs)
    ]
