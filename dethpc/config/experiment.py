"""The experiment configuration, as of Determined 0.38."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Optional, Union

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo

from dethpc.config.sections.checkpoint_storage import CheckpointStorage
from dethpc.config.sections.environment import BindMount, Environment
from dethpc.config.sections.hyperparameters import Space, parse_space, plain, read_space
from dethpc.config.sections.resources import PBS, Resources, Slurm
from dethpc.config.sections.searcher import Searcher
from dethpc.config.sections.section import STORED, Length, Section, Whole, mistaken, wrong
from dethpc.config.sections.services import USUAL_LOG_POLICIES, Integrations, LogPolicies, RetentionPolicy, Security
from dethpc.config.sections.training import DataLayer, Optimizations, Profiling, Reproducibility
from dethpc.config.wording import show
from dethpc.errors import ConfigError, Problem, dotted

_COMMAND = "a command: a string, or a list of strings"


def entrypoint(value: Any) -> Any:
    command = value if isinstance(value, list) else [value]
    for number, word in enumerate(command, 1):
        if isinstance(value, list) and not isinstance(word, str):
            raise wrong(_COMMAND, value=f"a list whose word {number} is {show(word)}", hint="put it in quotes")
    if not command or not all(isinstance(word, str) and "\0" not in word for word in command):
        raise wrong(_COMMAND)
    if not command[0].strip():
        raise wrong(_COMMAND, value="one without a program")
    return value


def _space(value: Any) -> Any:
    space, problems = read_space(value)
    if problems:
        first = problems[0]
        raise mistaken(first.message, field=dotted(first.path))
    return plain(space)


class Internal(Section):
    """What the master notes; a configuration that it showed may come back with it."""

    environment: Literal["recorded"]


def _masters_own(value: Any, info: ValidationInfo) -> Any:
    if info.context is STORED:
        return value
    if value == {"environment": "recorded"}:
        return None
    raise mistaken("may not be set: the master keeps notes of its own there")


_RESOURCES_OF_ROWS = {"max_slots": "max_slots", "weight": "weight", "priority": "priority", "pool": "resource_pool"}
"""Fields of ``resources`` by their names in an experiment's row."""


class ExperimentConfig(Section):
    """Every field, its default and its range. What has no effect yet is refused elsewhere, in ``unsupported``."""

    omitted: ClassVar[frozenset[str]] = frozenset(
        {"retention_policy", "data_layer", "internal", "security", "tensorboard_storage"}
    )

    name: str = ""
    description: Optional[str] = None
    labels: list[str] = []
    workspace: str = ""
    project: str = ""
    data: dict[str, Any] = {}
    entrypoint: Annotated[Union[str, list[str]], BeforeValidator(entrypoint)]

    hyperparameters: Annotated[dict[str, Any], BeforeValidator(_space)] = {}
    searcher: Searcher
    max_restarts: Annotated[Whole, Field(ge=0)] = 5
    min_validation_period: Length = {"batches": 0}
    min_checkpoint_period: Length = {"batches": 0}
    checkpoint_policy: Literal["best", "all", "none"] = "best"
    perform_initial_validation: bool = False
    records_per_epoch: Annotated[Whole, Field(ge=0)] = 0
    scheduling_unit: Annotated[Whole, Field(ge=1)] = 100
    reproducibility: Reproducibility = Reproducibility()
    optimizations: Optimizations = Optimizations()
    profiling: Profiling = Profiling()

    resources: Resources = Resources()
    slurm: Slurm = Slurm()
    pbs: PBS = PBS()
    environment: Environment = Environment()
    bind_mounts: list[BindMount] = []
    checkpoint_storage: Optional[CheckpointStorage] = None
    preemption_timeout: Optional[Annotated[Whole, Field(ge=0)]] = None  # seconds

    log_policies: LogPolicies = list(USUAL_LOG_POLICIES)
    retention_policy: Optional[RetentionPolicy] = None
    integrations: Optional[Integrations] = None
    debug: bool = False

    data_layer: Optional[DataLayer] = None

    # Left over from older releases; Determined reads and ignores them.
    internal: Annotated[Optional[Internal], BeforeValidator(_masters_own)] = None
    security: Optional[Security] = None
    tensorboard_storage: Optional[dict[str, Any]] = None

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> ExperimentConfig:
        """The configuration that ``to_json`` gave, perhaps in an earlier release: fields that are gone are left out.

        Raises ConfigError when it was never valid.
        """
        try:
            return cls.model_validate(stored, context=STORED)
        except ValidationError as error:
            problems = [
                Problem(".".join(map(str, e["loc"])), f"what is stored cannot be read: {e['msg']}")
                for e in error.errors()
            ]
            raise ConfigError(problems) from None

    def to_json(self) -> dict[str, Any]:
        """With all defaults filled in, as JSON has it and in the shape that Determined stores.

        ``reproducibility.experiment_seed`` is null and ``name`` is empty where the user gave none: the master chooses.
        """
        return self.model_dump(mode="json")

    def in_pool(self, name: str) -> ExperimentConfig:
        """The same in another resource pool."""
        return self.model_copy(update={"resources": self.resources.model_copy(update={"resource_pool": name})})

    def with_name(self, name: str) -> ExperimentConfig:
        """The same under this name."""
        return self.model_copy(update={"name": name})

    def with_changes(self, changes: Mapping[str, Any]) -> ExperimentConfig:
        """The same with what of ``changes`` an experiment's row has from its configuration. So it says what is, for those who fork
        or continue the experiment."""
        own = {name: changes[name] for name in ("name", "description", "labels") if name in changes}
        resources = {field: changes[name] for name, field in _RESOURCES_OF_ROWS.items() if name in changes}
        if resources:
            own["resources"] = self.resources.model_copy(update=resources)
        return self.model_copy(update=own) if own else self

    def with_seed(self, seed: int) -> ExperimentConfig:
        """The same with this ``reproducibility.experiment_seed``."""
        return self.model_copy(update={"reproducibility": Reproducibility(experiment_seed=seed)})

    def with_source_checkpoint(self, uuid: str) -> ExperimentConfig:
        """The same with trials that start from the weights of this checkpoint."""
        searcher = self.searcher.model_copy(update={"source_checkpoint_uuid": uuid})
        return self.model_copy(update={"searcher": searcher})

    def with_checkpoint_policy(self, counts: dict[str, int]) -> ExperimentConfig:
        """The same with these ``save_*`` of ``checkpoint_storage``, where it has one."""
        section = self.checkpoint_storage
        return (
            self
            if section is None
            else self.model_copy(update={"checkpoint_storage": section.model_copy(update=counts)})
        )

    def with_sbatch_args(self, options: list[str]) -> ExperimentConfig:
        """The same with these options for sbatch."""
        return self.model_copy(update={"slurm": self.slurm.model_copy(update={"sbatch_args": options or None})})

    def with_environment(self) -> ExperimentConfig:
        """The same of an experiment for which an environment is kept."""
        return self.model_copy(update={"internal": Internal(environment="recorded")})

    @property
    def keeps_environment(self) -> bool:
        """Whether the environment of its jobs is in a file, which therefore has to be there. Earlier releases kept none."""
        return self.internal is not None

    @property
    def storage_section(self) -> dict[str, Any]:
        """``checkpoint_storage`` as JSON has it; empty where there is none."""
        return self.checkpoint_storage.model_dump(mode="json") if self.checkpoint_storage else {}

    @cached_property
    def space(self) -> Space:
        """The hyperparameters, as searchers draw them."""
        return parse_space(self.hyperparameters)
