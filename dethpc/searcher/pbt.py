"""Population-based training."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dethpc.config.sections import searcher as config
from dethpc.config.sections.hyperparameters import Double, Int, Log, Space
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
from dethpc.searcher.sampling import draw, sample


class PBT(Searcher):
    """A population that is trained round after round; after each the worst are replaced by altered copies of the best.

    Jaderberg et al., "Population Based Training of Neural Networks", arXiv:1711.09846, 2017, with truncation selection. Rounds
    are synchronous: a trial that has trained its round waits until all of the population have, and their checkpoints are there.

    A copy is a new trial that begins with its parent's latest checkpoint; its own length counts from 0. A trial that crashed
    keeps its place in the population as the worst, and so is the first to be replaced. Invalid hyperparameters are replaced at
    once: in the first round by another draw, later by another copy of the same parent.
    """

    def __init__(self, section: config.PBT, space: Space, seed: int) -> None:
        super().__init__(section, space, seed)
        self._unit = section.unit_of_length()
        self._size = section.population_size
        self._rounds = section.num_rounds
        self._length = config.count(section.length_per_round)
        self._truncate = int(section.replace_function.truncate_fraction * self._size)
        self._resample = section.explore_function.resample_probability
        self._factor = section.explore_function.perturb_factor
        # By trial index.
        self._hparams: list[Mapping[str, Any]] = []
        self._parent: list[int | None] = []
        self._born: list[int] = []  # the round it began with
        self._round: list[int] = []  # the round it is in
        self._reported: list[int] = []  # how many rounds it has ended with a value
        self._parked: list[int] = []  # how many rounds it has ended with a checkpoint
        self._values: list[dict[int, float]] = []  # its rank value by round
        self._gone: set[int] = set()
        self._members: list[list[int]] = []  # by round

    # --- decide

    def start(self) -> list[Action]:
        return [self._create(index, 0, None) for index in range(self._size)]

    def _create(self, index: int, number: int, parent: int | None) -> Create:
        search = {"round": number, "parent": parent, "lengths": [self._length]}
        if parent is None:
            return Create(index, sample(self._space, self.seed, index), search)
        return Create(index, self._explore(self._hparams[parent], index), search, source=parent)

    def _explore(self, hparams: Mapping[str, Any], index: int) -> dict[str, Any]:
        """Each hyperparameter drawn again with ``resample_probability``, else moved up or down by ``perturb_factor``."""
        rng = random.Random(f"{self.seed}:{index}")

        def altered(space: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
            new: dict[str, Any] = {}
            for name in sorted(space):
                hp = space[name]
                if isinstance(hp, Mapping):
                    new[name] = altered(hp, values[name])
                elif rng.random() < self._resample:
                    new[name] = draw(hp, rng)
                else:
                    new[name] = self._perturbed(hp, values[name], up=rng.random() >= 0.5)
            return new

        return altered(self._space, hparams)

    def _perturbed(self, hp: Any, value: Any, *, up: bool) -> Any:
        if isinstance(hp, Int):  # exactly: 50 moved up by 10 % is 55 and not 56
            factor = Fraction(repr(self._factor))
            exact = value * (1 + factor if up else 1 - factor)
            return min(max(math.ceil(exact) if up else math.floor(exact), hp.minval), hp.maxval)
        moved = value * (1 + self._factor if up else 1 - self._factor) if isinstance(hp, (Double, Log)) else value
        if isinstance(hp, Double):
            return min(max(moved, hp.minval), hp.maxval)
        if isinstance(hp, Log):
            low, high = sorted((hp.base**hp.minval, hp.base**hp.maxval))
            return min(max(moved, low), high)
        return moved

    def validated(self, index: int, length: float, metric: float) -> list[Action]:
        number = self._round[index]
        if length < self._target(index, number) or self._reported[index] > number:
            return []
        value = self.rank_value(metric)
        actions: list[Action] = [Note(index, "round", {"round": number, "value": recorded(value)})]
        if number == self._rounds - 1:
            return [*actions, Stop(index, f"trained all {self._rounds} rounds: {self.show(value)}")]
        return [*actions, Wait(index, f"waits for the others at the end of round {number} with {self.show(value)}")]

    def _target(self, index: int, number: int) -> int:
        """The length that the trial has when round ``number`` ends."""
        return (number - self._born[index] + 1) * self._length

    def parked(self, index: int) -> list[Action]:
        number = self._round[index]
        if self._parked[index] > number:
            return []
        return [Note(index, "parked", {"round": number}), *self._next_round(number, index)]

    def exited(self, index: int, how: Exit) -> list[Action]:
        number = self._round[index]
        if how is Exit.INVALID_HP and self._replaces_invalid(index):
            return [self._create(self.created_count, number, self._parent[index])]
        return self._next_round(number, None)

    def _replaces_invalid(self, index: int) -> bool:
        return (
            self.invalid_count <= MAX_INVALID_PER_TRIAL * self._planned and self._reported[index] <= self._born[index]
        )

    def _next_round(self, number: int, arriving: int | None) -> list[Action]:
        """What follows when every trial of the round has a checkpoint or is gone; ``arriving`` has one, not noted yet."""
        if number != len(self._members) - 1 or number >= self._rounds - 1:
            return []
        alive = [m for m in self._members[number] if m not in self._gone]
        if not alive or any(self._parked[m] <= number and m != arriving for m in alive):
            return []
        alive.sort(key=lambda m: (self._value(m, number), m))
        replaced = max(0, self._truncate - (self._size - len(alive)))
        survivors, worst = alive[: len(alive) - replaced], alive[len(alive) - replaced :]
        actions: list[Action] = []
        for index in worst:
            actions.append(Stop(index, self._why(number, index, survivors[-1])))
        for index in survivors:
            why = f"goes on with round {number + 1}: {self.show(self._value(index, number))}"
            actions.append(Note(index, "goes_on", {"round": number + 1}))
            actions.append(Continue(index, self._target(index, number + 1), why))
        for i in range(self._truncate):
            actions.append(self._create(self.created_count + i, number + 1, survivors[i % len(survivors)]))
        return actions

    def _why(self, number: int, index: int, last_survivor: int) -> str:
        return (
            f"round {number} ({self._unit} {(number + 1) * self._length}): {self.show(self._value(index, number))} is among "
            f"the worst {self._truncate} of {self._size}; the cut-off was {self.show(self._value(last_survivor, number))}"
        )

    def _value(self, index: int, number: int) -> float:
        """The trial's rank value at the end of round ``number``; the worst where it has none."""
        return self._values[index].get(number, math.inf)

    @property
    def _planned(self) -> int:
        return self._size + self._truncate * (self._rounds - 1)

    @property
    def total(self) -> int:
        return self._planned + min(self.invalid_count, MAX_INVALID_PER_TRIAL * self._planned)

    @property
    def progress(self) -> float:
        return min(1.0, (sum(self._reported) - sum(self._born)) / (self._size * self._rounds))

    def progress_at(self, trained: float, before: float) -> float:
        return before  # which goes by the lengths of rounds and rungs

    def describe(self, most: int | None = None) -> dict[str, Any]:
        """One bracket whose rungs are the rounds."""
        last = len(self._members) - 1
        rungs = []
        for number, members in enumerate(self._members):
            ranked = sorted((self._value(m, number), m) for m in members if self._reported[m] > number)
            rungs.append(
                {
                    "length": (number + 1) * self._length,
                    "places": self._size,
                    "entered": len(ranked),
                    "went_on": sum(self._round[index] > number for _, index in ranked),
                    "cut_off": None,
                    "trials": [
                        {
                            "index": index,
                            "value": self.own_sign(value),
                            "went_on": self._round[index] > number,
                            "parent": self._parent[index],
                        }
                        for value, index in ranked[:most]
                    ],
                }
            )
        about = {"round": max(last, 0), "rounds": self._rounds, "unit": self._unit}
        return {**super().describe(most), **about, "brackets": [{"trials": self.total, "rungs": rungs}]}

    # --- remember

    def created(self, index: int, hparams: Mapping[str, Any], search: Mapping[str, Any]) -> None:
        super().created(index, hparams, search)
        number = int(search["round"])
        self._hparams.append(hparams)
        self._parent.append(search.get("parent"))
        self._born.append(number)
        self._round.append(number)
        self._reported.append(number)
        self._parked.append(number)
        self._values.append({})
        self._join(number, index)

    def _join(self, number: int, index: int) -> None:
        while len(self._members) <= number:
            self._members.append([])
        self._members[number].append(index)

    def noted(self, index: int, kind: str, data: Mapping[str, Any]) -> None:
        number = int(data["round"])
        if kind == "round":
            self._reported[index] = number + 1
            self._values[index][number] = recalled(data["value"])
        elif kind == "parked":
            self._parked[index] = number + 1
        else:
            self._round[index] = number
            self._join(number, index)

    def closed(self, index: int, how: Exit, best: float | None = None) -> None:
        super().closed(index, how, best)
        self._gone.add(index)
