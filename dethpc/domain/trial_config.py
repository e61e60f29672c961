"""What a trial and its reports need of the experiment's configuration, typed: where the models of the config room cannot be had.

It is read from the effective configuration, in which every field has its value: no default is written here. What a configuration
lacks all the same, as a sketch outside the cluster may, is absent (None, false, 0 or empty).
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Optional, Sequence, Union

from dethpc.domain.attempts.log_policies import LogPolicy

UNITS = ("batches", "records", "epochs")
WORKDIR = "/run/determined/workdir"
"""Where the context directory lies in Determined's containers: ``container_path`` of a bind mount may be relative to it."""


class Length(NamedTuple):
    """A length of training; ``unit`` is None for a bare number."""

    number: int
    unit: Optional[str] = None

    @classmethod
    def of(cls, value: Any) -> Optional[Length]:
        """From ``100`` or ``{"batches": 100}``; None from None."""
        if isinstance(value, dict):
            return next((cls(int(number), unit) for unit, number in value.items()), None)
        return None if value is None else cls(int(value))


class BindMount(NamedTuple):
    """A path of the node that the trial finds at another path."""

    host_path: str
    container_path: str


class SearcherConfig(NamedTuple):
    """By which metric trials are compared, and for how long they train."""

    name: str
    metric: str
    smaller_is_better: bool
    time_metric: Optional[str]
    max_time: Optional[int]
    max_length: Optional[Length]
    unit: Optional[str]
    """What lengths are measured in; None where they are bare numbers, or measured by a metric of the user's own."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> SearcherConfig:
        """From the whole configuration."""
        searcher: Mapping[str, Any] = config.get("searcher") or {}
        lengths = (Length.of(searcher.get(name)) for name in ("max_length", "length_per_round", "budget"))
        units = [searcher.get("unit"), *(length.unit for length in lengths if length), searcher.get("time_metric")]
        return cls(
            name=searcher.get("name") or "",
            metric=searcher.get("metric") or "",
            smaller_is_better=searcher.get("smaller_is_better") is not False,
            time_metric=searcher.get("time_metric"),
            max_time=searcher.get("max_time"),
            max_length=Length.of(searcher.get("max_length")),
            unit=next((unit for unit in units if unit in UNITS), None),
        )

    @property
    def stops_trials(self) -> bool:
        """Whether the search ends trials by what they validate."""
        return self.name not in ("single", "random", "grid")

    @property
    def full_length(self) -> Optional[int]:
        """How many ``unit`` a whole trial trains; None: only the training code knows."""
        if self.max_length is not None:
            return self.max_length.number
        return self.max_time if self.time_metric in UNITS else None


class TrialConfig(NamedTuple):
    """An experiment's configuration as its trials need it."""

    entrypoint: Union[str, list[str]]
    data: dict[str, Any]
    searcher: SearcherConfig
    checkpoint_storage: dict[str, Any]
    data_layer: dict[str, Any]
    checkpoint_policy: str
    min_validation_period: Optional[Length]
    min_checkpoint_period: Optional[Length]
    perform_initial_validation: bool
    records_per_epoch: int
    scheduling_unit: int
    profiling_enabled: bool
    bind_mounts: tuple[BindMount, ...]
    log_policies: tuple[LogPolicy, ...]
    debug: bool
    slots_per_trial: int
    max_slots: Optional[int]
    """Of all trials of the experiment together."""
    hyperparameters: dict[str, Any]
    python: str
    """``environment.python``; "" where it is not set."""
    sets_up: bool
    """Whether ``environment.setup`` has anything to run."""
    variables: dict[str, str]
    """``environment.environment_variables``, whichever slots they are for."""

    @classmethod
    def from_json(cls, config: Mapping[str, Any]) -> TrialConfig:
        """From the configuration as ``spec.json`` and the database have it."""
        mounts = config.get("bind_mounts") or ()
        environment: Mapping[str, Any] = config.get("environment") or {}
        resources: Mapping[str, Any] = config.get("resources") or {}
        return cls(
            entrypoint=config.get("entrypoint") or "",
            data=config.get("data") or {},
            searcher=SearcherConfig.of(config),
            checkpoint_storage=config.get("checkpoint_storage") or {},
            data_layer=config.get("data_layer") or {},
            checkpoint_policy=config.get("checkpoint_policy") or "",
            min_validation_period=Length.of(config.get("min_validation_period")),
            min_checkpoint_period=Length.of(config.get("min_checkpoint_period")),
            perform_initial_validation=bool(config.get("perform_initial_validation")),
            records_per_epoch=int(config.get("records_per_epoch") or 0),
            scheduling_unit=int(config.get("scheduling_unit") or 0),
            profiling_enabled=bool((config.get("profiling") or {}).get("enabled")),
            bind_mounts=tuple(BindMount(str(m["host_path"]), str(m["container_path"])) for m in mounts),
            log_policies=LogPolicy.all_of(config.get("log_policies") or ()),
            debug=bool(config.get("debug")),
            slots_per_trial=int(resources.get("slots_per_trial", 1)),
            max_slots=resources.get("max_slots"),
            hyperparameters=config.get("hyperparameters") or {},
            python=str(environment.get("python") or ""),
            sets_up=bool(environment.get("setup")),
            variables=_variables(environment.get("environment_variables") or {}),
        )


def _variables(given: Union[Mapping[str, Sequence[str]], Sequence[str]]) -> dict[str, str]:
    """``given``: by the kind of slots, or one list for all, as people write it."""
    lists = [given[kind] or () for kind in sorted(given)] if isinstance(given, dict) else [given]
    return dict(setting.split("=", 1) for listed in lists for setting in listed if "=" in setting)
