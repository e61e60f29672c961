"""The ``searcher`` section: one model per search method, told apart by ``name``."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Optional, Union

from pydantic import BeforeValidator, Field, model_validator

from dethpc.config.section import PositiveLength, Section, Whole, wrong

Mode = Literal["aggressive", "standard", "conservative"]
Concurrency = Annotated[Whole, Field(ge=0)]
AtLeastOne = Annotated[Whole, Field(ge=1)]
Divisor = Annotated[float, Field(gt=1)]


def _sampler(value: Any) -> Any:
    name = value.get("name") if isinstance(value, dict) else value
    if not isinstance(name, str) or not name:
        raise wrong("the name of a sampler of Optuna, such as tpe, or {name: tpe, OPTION: VALUE}")
    return value


Sampler = Annotated[Union[str, dict[str, Any]], BeforeValidator(_sampler)]
"""Where hyperparameters come from: a sampler of Optuna by its name, or a mapping of its name and options."""


def count(length: Any) -> int:
    """The number in a length: ``100`` or ``{"batches": 100}``."""
    return int(next(iter(length.values())) if isinstance(length, dict) else length)


class _Common(Section):
    omitted: ClassVar[frozenset[str]] = frozenset({"max_length", "stop_once", "sampler"})

    metric: str = Field(min_length=1)
    smaller_is_better: bool = True


class _WarmStart(_Common):
    """A method whose trials may start from the weights of an earlier trial."""

    source_trial_id: Optional[Whole] = None
    source_checkpoint_uuid: Optional[str] = None

    @model_validator(mode="after")
    def _one_source(self) -> _WarmStart:
        if self.source_trial_id is not None and self.source_checkpoint_uuid is not None:
            raise wrong(
                "either source_trial_id or source_checkpoint_uuid", field="source_checkpoint_uuid", found="both sources"
            )
        return self


class Single(_WarmStart):
    """One trial."""

    name: Literal["single"]
    max_length: Optional[PositiveLength] = None


class Random(_WarmStart):
    """``max_trials`` independent draws."""

    name: Literal["random"]
    sampler: Optional[Sampler] = None
    max_trials: AtLeastOne
    max_concurrent_trials: Concurrency = 16
    max_length: Optional[PositiveLength] = None


class Grid(_WarmStart):
    """Every point of a grid."""

    name: Literal["grid"]
    max_concurrent_trials: Concurrency = 16
    max_length: Optional[PositiveLength] = None


class _Halving(_WarmStart):
    """Trials are compared at growing amounts of training, measured by ``time_metric`` up to ``max_time`` (or ``max_length``)."""

    time_metric: Optional[str] = None
    max_time: Optional[AtLeastOne] = None
    max_length: Optional[PositiveLength] = None
    divisor: Divisor = 4.0
    max_trials: AtLeastOne
    max_concurrent_trials: Concurrency = 16
    stop_once: Optional[bool] = None
    sampler: Optional[Sampler] = None

    @model_validator(mode="after")
    def _some_length(self) -> _Halving:
        if self.max_length is None and (self.time_metric is None or self.max_time is None):
            missing = "time_metric" if self.time_metric is None else "max_time"
            raise wrong("time_metric together with max_time (or max_length)", field=missing, found="nothing")
        if self.max_length is not None and (self.time_metric is not None or self.max_time is not None):
            raise wrong(
                "either max_length, or time_metric together with max_time",
                field="max_length",
                found="both ways to say it",
            )
        return self

    def full_length(self) -> int:
        return count(self.max_time if self.max_length is None else self.max_length)

    def _room_for(self, rungs: int, field: str) -> None:
        """Raises when so many rungs cannot differ in length."""
        if self.full_length() < rungs:
            limit = "max_time" if self.max_length is None else "max_length"
            allowed = f"at most {self.full_length()}, one unit of {limit} for each rung"
            raise wrong(allowed, field=field, found=f"{rungs} rungs")


class AsyncHalving(_Halving):
    name: Literal["async_halving"]
    num_rungs: AtLeastOne

    @model_validator(mode="after")
    def _enough_length(self) -> AsyncHalving:
        self._room_for(self.num_rungs, "num_rungs")
        return self


class AdaptiveASHA(_Halving):
    name: Literal["adaptive_asha"]
    mode: Mode = "standard"
    max_rungs: AtLeastOne = 5
    bracket_rungs: list[AtLeastOne] = []

    @model_validator(mode="after")
    def _enough_length(self) -> AdaptiveASHA:
        self._room_for(max(self.bracket_rungs, default=1), "bracket_rungs")
        return self


class PBT(_Common):
    """Population-based training."""

    class Replace(Section):
        truncate_fraction: Annotated[float, Field(ge=0, le=0.5)]

    class Explore(Section):
        resample_probability: Annotated[float, Field(ge=0, le=1)]
        perturb_factor: Annotated[float, Field(ge=0, le=1)]

    name: Literal["pbt"]
    population_size: AtLeastOne
    num_rounds: AtLeastOne
    length_per_round: PositiveLength
    replace_function: Replace
    explore_function: Explore


class Custom(_Common):
    name: Literal["custom"]
    unit: Optional[Literal["batches", "records", "epochs"]] = None


class _Promotion(_WarmStart):
    """Trials wait at growing lengths, and the best go on from their checkpoints."""

    max_length: PositiveLength
    divisor: Divisor = 4.0


class AdaptiveSimple(_Promotion):
    name: Literal["adaptive_simple"]
    max_trials: Annotated[Whole, Field(ge=1, le=2000)]
    mode: Mode = "standard"
    max_rungs: AtLeastOne = 5


class Adaptive(_Promotion):
    name: Literal["adaptive"]
    budget: PositiveLength
    mode: Mode = "standard"
    max_rungs: AtLeastOne = 5
    bracket_rungs: list[AtLeastOne] = []
    train_stragglers: bool = True


class SyncHalving(_Promotion):
    name: Literal["sync_halving"]
    num_rungs: AtLeastOne
    budget: PositiveLength
    train_stragglers: bool = True


Searcher = Annotated[
    Union[Single, Random, Grid, AdaptiveASHA, AsyncHalving, PBT, Custom, AdaptiveSimple, Adaptive, SyncHalving],
    Field(discriminator="name"),
]
