"""The ``searcher`` section: one model per search method, told apart by ``name``."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Optional, Union

from pydantic import Field, model_validator

from dethpc.config.section import PositiveLength, Section, Whole, wrong

Mode = Literal["aggressive", "standard", "conservative"]
Concurrency = Annotated[Whole, Field(ge=0)]
AtLeastOne = Annotated[Whole, Field(ge=1)]
Divisor = Annotated[float, Field(gt=1)]


class _Common(Section):
    omitted: ClassVar[frozenset[str]] = frozenset({"max_length", "stop_once"})

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


class AsyncHalving(_Halving):
    name: Literal["async_halving"]
    num_rungs: AtLeastOne


class AdaptiveASHA(_Halving):
    name: Literal["adaptive_asha"]
    mode: Mode = "standard"
    max_rungs: AtLeastOne = 5
    bracket_rungs: list[Whole] = []


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


class AdaptiveSimple(_WarmStart):
    name: Literal["adaptive_simple"]
    max_trials: Annotated[Whole, Field(ge=1, le=2000)]
    max_length: Optional[PositiveLength] = None
    mode: Mode = "standard"
    divisor: Divisor = 4.0
    max_rungs: AtLeastOne = 5


class Adaptive(_WarmStart):
    name: Literal["adaptive"]
    budget: PositiveLength
    max_length: Optional[PositiveLength] = None
    mode: Mode = "standard"
    divisor: Divisor = 4.0
    max_rungs: AtLeastOne = 5
    bracket_rungs: list[Whole] = []
    train_stragglers: bool = True


class SyncHalving(_WarmStart):
    name: Literal["sync_halving"]
    num_rungs: AtLeastOne
    budget: PositiveLength
    max_length: Optional[PositiveLength] = None
    divisor: Divisor = 4.0
    train_stragglers: bool = True


Searcher = Annotated[
    Union[Single, Random, Grid, AdaptiveASHA, AsyncHalving, PBT, Custom, AdaptiveSimple, Adaptive, SyncHalving],
    Field(discriminator="name"),
]
