"""The ``searcher`` section: one model per search method, told apart by ``name``."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, Optional, Union, get_args

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from dethpc.config.sections.section import LARGEST, STORED, PositiveLength, Section, Whole, at_most, mistaken, wrong

Mode = Literal["aggressive", "standard", "conservative"]
MOST_TRIALS = 100_000
"""Of one search. More would keep the master from everything else."""

MOST_RUNGS = 100
"""Of a bracket, and brackets of a search."""

MOST_SAMPLED = 10_000
"""Trials of a search whose sampler learns from all before: each draw looks at every one of them."""

Concurrency = Annotated[Whole, Field(ge=0), at_most(MOST_TRIALS)]
AtLeastOne = Annotated[Whole, Field(ge=1)]
Trials = Annotated[AtLeastOne, at_most(MOST_TRIALS)]
Rungs = Annotated[AtLeastOne, at_most(MOST_RUNGS)]
Brackets = Annotated[list[Rungs], at_most(MOST_RUNGS)]
Divisor = Annotated[float, Field(gt=1), at_most(1000)]


def _sampler(value: Any, info: ValidationInfo) -> Any:
    name = value.get("name") if isinstance(value, dict) else value
    if not isinstance(name, str) or not name:
        raise wrong("the name of a sampler of Optuna, such as tpe, or {name: tpe, OPTION: VALUE}")
    for option, number in value.items() if isinstance(value, dict) else ():
        if isinstance(number, (int, float)) and abs(number) > MOST_SAMPLED and info.context is not STORED:
            raise wrong(f"at most {MOST_SAMPLED:,}", field=str(option))
    return value


Sampler = Annotated[Union[str, dict[str, Any]], BeforeValidator(_sampler)]
"""Where hyperparameters come from: a sampler of Optuna by its name, or a mapping of its name and options."""


def _can_be_sampled(search: Union[Random, Halving], info: ValidationInfo) -> None:
    """Raises when there are more trials than a sampler can learn from."""
    if search.sampler is None or info.context is STORED:
        return
    most_at_once = MOST_SAMPLED // 10
    at_once = search.max_concurrent_trials or search.max_trials
    if search.max_trials > MOST_SAMPLED:
        raise wrong(f"at most {MOST_SAMPLED:,} with a sampler", field="max_trials", value=f"{search.max_trials:,}")
    if at_once > most_at_once:
        raise wrong(f"at most {most_at_once:,} with a sampler", field="max_concurrent_trials", value=f"{at_once:,}")


AnyLength = Union[int, dict[str, int], None]


def count(length: Union[int, dict[str, int]]) -> int:
    """The number in a length: ``100`` or ``{"batches": 100}``."""
    return next(iter(length.values())) if isinstance(length, dict) else length


class Method(Section):
    """What every search method has."""

    omitted: ClassVar[frozenset[str]] = frozenset({"max_length", "stop_once", "sampler"})

    name: str
    metric: str = Field(min_length=1)
    smaller_is_better: bool = True

    def full_length(self) -> Optional[int]:
        """How long a trial trains at most, in ``unit_of_length``. None: only the training code knows."""
        return None

    def time_name(self) -> Optional[str]:
        """What training is measured by: ``time_metric``, else the unit of the lengths. None: the lengths are bare numbers."""
        lengths = [length for length in self._lengths() if length is not None]
        units = [unit for length in lengths if isinstance(length, dict) for unit in length]
        return units[0] if units else None if lengths else "batches"

    def unit_of_length(self) -> str:
        """``time_name``; bare numbers count batches."""
        return self.time_name() or "batches"

    def _lengths(self) -> tuple[AnyLength, ...]:
        return ()


class WarmStart(Method):
    """A method whose trials may start from the weights of an earlier trial."""

    source_trial_id: Optional[Whole] = None
    source_checkpoint_uuid: Optional[str] = None

    @model_validator(mode="after")
    def _one_source(self, info: ValidationInfo) -> WarmStart:
        # The master writes down which checkpoint of the trial it is.
        if info.context is not STORED and self.source_trial_id is not None and self.source_checkpoint_uuid is not None:
            raise mistaken("set source_trial_id or source_checkpoint_uuid, not both", field="source_checkpoint_uuid")
        return self


class _FullLength(WarmStart):
    """A method that trains every trial to its end, and may say which."""

    max_length: Optional[PositiveLength] = None

    def full_length(self) -> Optional[int]:
        return None if self.max_length is None else count(self.max_length)

    def _lengths(self) -> tuple[AnyLength, ...]:
        return (self.max_length,)


class Single(_FullLength):
    """One trial."""

    name: Literal["single"]


class Random(_FullLength):
    """``max_trials`` independent draws."""

    name: Literal["random"]
    sampler: Optional[Sampler] = None
    max_trials: Trials
    max_concurrent_trials: Concurrency = 16

    @model_validator(mode="after")
    def _few_enough_to_sample(self, info: ValidationInfo) -> Random:
        _can_be_sampled(self, info)
        return self


class Grid(_FullLength):
    """Every point of a grid."""

    name: Literal["grid"]
    max_concurrent_trials: Concurrency = 16


class Halving(WarmStart):
    """Trials are compared at growing amounts of training, measured by ``time_metric`` up to ``max_time`` (or ``max_length``)."""

    time_metric: Optional[str] = None
    max_time: Optional[AtLeastOne] = None
    max_length: Optional[PositiveLength] = None
    divisor: Divisor = 4.0
    max_trials: Trials
    max_concurrent_trials: Concurrency = 16
    stop_once: Optional[bool] = None
    sampler: Optional[Sampler] = None

    @model_validator(mode="after")
    def _few_enough_to_sample(self, info: ValidationInfo) -> Halving:
        _can_be_sampled(self, info)
        return self

    @model_validator(mode="after")
    def _some_length(self) -> Halving:
        if self.max_length is None and (self.time_metric is None or self.max_time is None):
            missing = "time_metric" if self.time_metric is None else "max_time"
            raise mistaken("is missing: time_metric and max_time (or max_length) go together", field=missing)
        if self.max_length is not None and (self.time_metric is not None or self.max_time is not None):
            raise mistaken(
                "set max_length, or time_metric and max_time, not both",
                field="max_length",
            )
        return self

    def full_length(self) -> int:
        length = self.max_time if self.max_length is None else self.max_length
        assert length is not None  # one of the two is required
        return count(length)

    def time_name(self) -> Optional[str]:
        return self.time_metric or super().time_name()

    def _lengths(self) -> tuple[AnyLength, ...]:
        return (self.max_length,)

    def rungs(self) -> list[int]:
        """How many rungs each bracket has, most first."""
        raise NotImplementedError

    def _room_for(self, rungs: int, field: str) -> None:
        """Raises when that many rungs cannot differ in length."""
        if self.full_length() < rungs:
            limit = "max_time" if self.max_length is None else "max_length"
            allowed = f"at most {self.full_length()}, one unit of {limit} for each rung"
            raise wrong(allowed, field=field, value=f"{rungs} rungs")


class AsyncHalving(Halving):
    name: Literal["async_halving"]
    num_rungs: Rungs

    @model_validator(mode="after")
    def _enough_length(self) -> AsyncHalving:
        self._room_for(self.num_rungs, "num_rungs")
        return self

    def rungs(self) -> list[int]:
        return [self.num_rungs]


class AdaptiveASHA(Halving):
    name: Literal["adaptive_asha"]
    mode: Mode = "standard"
    max_rungs: Rungs = 5
    bracket_rungs: Brackets = []

    @model_validator(mode="after")
    def _enough_length(self) -> AdaptiveASHA:
        self._room_for(max(self.bracket_rungs, default=1), "bracket_rungs")
        return self

    def rungs(self) -> list[int]:
        return sorted(self.bracket_rungs, reverse=True) or bracket_rungs(self.mode, self.useful_rungs())

    def useful_rungs(self) -> int:
        """At most ``max_rungs``; no more than the length can be divided into, nor than the trials can fill."""
        by_length, by_trials = (
            int(math.log(number) / math.log(self.divisor) + 1e-9) + 1
            for number in (self.full_length(), self.max_trials)
        )
        return min(self.max_rungs, by_length, by_trials)


class PBT(Method):
    """Population-based training."""

    class Replace(Section):
        truncate_fraction: Annotated[float, Field(ge=0, le=0.5)]

    class Explore(Section):
        resample_probability: Annotated[float, Field(ge=0, le=1)]
        perturb_factor: Annotated[float, Field(ge=0, le=1)]

    name: Literal["pbt"]
    population_size: Annotated[AtLeastOne, at_most(2000)]
    num_rounds: Annotated[AtLeastOne, at_most(10_000)]
    length_per_round: PositiveLength
    replace_function: Replace
    explore_function: Explore

    @model_validator(mode="after")
    def _few_enough(self, info: ValidationInfo) -> PBT:
        replaced = int(self.replace_function.truncate_fraction * self.population_size)
        trials = self.population_size + replaced * (self.num_rounds - 1)
        if trials > MOST_TRIALS and info.context is not STORED:
            raise wrong(f"at most {MOST_TRIALS:,} trials in all rounds", field="num_rounds", value=f"{trials:,} trials")
        if self.full_length() > LARGEST and info.context is not STORED:
            raise wrong("a length of all rounds below 2**63", field="length_per_round")
        return self

    def full_length(self) -> int:
        return self.num_rounds * count(self.length_per_round)

    def _lengths(self) -> tuple[AnyLength, ...]:
        return (self.length_per_round,)


class Custom(Method):
    name: Literal["custom"]
    unit: Optional[Literal["batches", "records", "epochs"]] = None

    def time_name(self) -> str:
        return self.unit or "batches"


class Promotion(WarmStart):
    """Trials wait at growing lengths, and the best go on from their checkpoints."""

    max_length: PositiveLength
    divisor: Divisor = 4.0

    def full_length(self) -> int:
        return count(self.max_length)

    def rungs(self) -> list[int]:
        """How many rungs each bracket has, most first."""
        raise NotImplementedError

    def _lengths(self) -> tuple[AnyLength, ...]:
        return (self.max_length,)


class AdaptiveSimple(Promotion):
    name: Literal["adaptive_simple"]
    max_trials: Annotated[Whole, Field(ge=1, le=2000)]
    mode: Mode = "standard"
    max_rungs: Rungs = 5

    def rungs(self) -> list[int]:
        return bracket_rungs(self.mode, self.max_rungs)


class _Budget(Promotion):
    """``budget`` is what all trials train together, roughly."""

    budget: PositiveLength
    train_stragglers: bool = True

    @model_validator(mode="after")
    def _few_enough(self, info: ValidationInfo) -> _Budget:
        if info.context is STORED:
            return self
        shortest = max(1, int(self.full_length() / self.divisor ** (self.rungs()[0] - 1)))
        trials = count(self.budget) // shortest
        if trials > MOST_TRIALS:
            allowed = f"at most {MOST_TRIALS * shortest:,}: {MOST_TRIALS:,} trials of {shortest:,}, the length of the first rung"
            raise wrong(allowed, field="budget", value=f"{count(self.budget):,}")
        return self

    def _lengths(self) -> tuple[AnyLength, ...]:
        return (self.max_length, self.budget)


class Adaptive(_Budget):
    name: Literal["adaptive"]
    mode: Mode = "standard"
    max_rungs: Rungs = 5
    bracket_rungs: Brackets = []

    def rungs(self) -> list[int]:
        return sorted(self.bracket_rungs, reverse=True) or bracket_rungs(self.mode, self.max_rungs)


class SyncHalving(_Budget):
    name: Literal["sync_halving"]
    num_rungs: Rungs

    def rungs(self) -> list[int]:
        return [self.num_rungs]


def bracket_rungs(mode: Mode, max_rungs: int) -> list[int]:
    """How many rungs each bracket of an adaptive search has, most first.

    The more brackets with few rungs, the more trials are trained long before anyone judges them.
    """
    if mode == "aggressive":
        return [max_rungs]
    fewest = 1 if mode == "conservative" else (max_rungs - 1) // 2 + 1
    return list(range(max_rungs, fewest - 1, -1))


Searcher = Annotated[
    Union[Single, Random, Grid, AdaptiveASHA, AsyncHalving, PBT, Custom, AdaptiveSimple, Adaptive, SyncHalving],
    Field(discriminator="name"),
]


def fields_of_method(name: object) -> Optional[frozenset[str]]:
    """The fields that a ``searcher`` section may have with this method; None: there is no such method."""
    for method in get_args(get_args(Searcher)[0]):
        if name in get_args(method.model_fields["name"].annotation):
            return frozenset(method.model_fields)
    return None
