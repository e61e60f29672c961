"""The configuration of a task without a trial: a command, a notebook, a shell, a TensorBoard, or a generic task."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Optional, Union

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from dethpc.config.combine import fill
from dethpc.config.experiment import ExperimentConfig, entrypoint
from dethpc.config.problems import problems_of
from dethpc.config.sections.environment import BindMount, Environment
from dethpc.config.sections.resources import PBS, Device, Slurm, device, memory
from dethpc.config.sections.section import Section, Whole, absolute, wrong
from dethpc.config.sections.services import Integrations
from dethpc.config.source import read
from dethpc.config.unsupported import ignored, without_container
from dethpc.domain.entrypoint import is_trial_class
from dethpc.errors import ConfigError, Problem

_DURATION = re.compile(r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s)?")


def _duration(value: Any) -> Any:
    text = f"{value}s" if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not text or not _DURATION.fullmatch(text):
        raise wrong("a duration such as 30m, 1h30m or 90s")
    return text


def seconds(duration: str) -> float:
    """Of a checked duration such as ``1h30m``."""
    match = _DURATION.fullmatch(duration)
    parts = match.groupdict() if match else {}
    return sum(float(parts.get(unit) or 0) * size for unit, size in (("h", 3600), ("m", 60), ("s", 1)))


Duration = Annotated[str, BeforeValidator(_duration)]


class TaskResources(Section):
    """``slots``: of the one run of the task; 0: cores alone."""

    omitted: ClassVar[frozenset[str]] = frozenset({"agent_label"})

    slots: Annotated[Whole, Field(ge=0)] = 1
    resource_pool: str = ""
    priority: Optional[Annotated[Whole, Field(ge=1, le=99)]] = None
    weight: Annotated[float, Field(gt=0)] = 1.0
    is_single_node: Optional[bool] = None
    shm_size: Optional[Annotated[Union[int, str], BeforeValidator(memory)]] = None
    devices: list[Annotated[Device, BeforeValidator(device)]] = []
    agent_label: Optional[str] = None


class TaskConfig(Section):
    """Every field, its default and its range."""

    omitted: ClassVar[frozenset[str]] = frozenset(
        {
            "name",
            "idle_timeout",
            "notebook_idle_type",
            "tensorboard_args",
            "work_dir",
            "integrations",
            "workspace",
            "project",
        }
    )

    name: Optional[str] = None
    description: Optional[str] = None
    workspace: Optional[str] = None
    project: Optional[str] = None
    entrypoint: Annotated[Union[str, list[str]], BeforeValidator(entrypoint)]
    resources: TaskResources = TaskResources()
    environment: Environment = Environment()
    bind_mounts: list[BindMount] = []
    slurm: Slurm = Slurm()
    pbs: PBS = PBS()
    work_dir: Optional[Annotated[str, AfterValidator(absolute)]] = None
    idle_timeout: Optional[Duration] = None
    notebook_idle_type: Optional[Literal["kernels_or_terminals", "kernel_connections", "activity"]] = None
    tensorboard_args: Optional[list[str]] = None
    integrations: Optional[Integrations] = None
    debug: bool = False

    def of_job(self) -> ExperimentConfig:
        """What its job is made from: the configuration of an experiment that trains nothing."""
        shared = self.model_dump(mode="json", include={"environment", "bind_mounts", "slurm", "pbs", "debug"})
        resources = self.resources.model_dump(mode="json")
        return ExperimentConfig.from_json(
            {
                **shared,
                "entrypoint": _argv(self.entrypoint),
                "name": self.name or self.description or "",
                "resources": {"slots_per_trial": resources.pop("slots"), **resources},
                "searcher": {"name": "single", "metric": "none"},
                "log_policies": [],
            }
        )


def _argv(entrypoint: Union[str, list[str]]) -> Union[str, list[str]]:
    """A text, and a list of one, are a line of the shell, even where it looks like a trial class."""
    line = entrypoint if isinstance(entrypoint, str) else entrypoint[0] if len(entrypoint) == 1 else None
    if line is None:
        return entrypoint
    return ["/bin/sh", "-c", line] if is_trial_class(line) else line


@dataclass(frozen=True)
class LoadedTask:
    """A valid configuration. ``warnings`` are lines for the user, ``without_container`` those that hold where the task starts
    without a container."""

    config: TaskConfig
    warnings: list[str]
    without_container: list[str]


def load(text: str, *, defaults: Mapping[str, Any], file: str = "config") -> LoadedTask:
    """Read and check the configuration of a task. ``defaults`` are laid under it. Raises ConfigError with all problems at once."""
    source, problems = read(text, file)
    fill(source, dict(defaults), "the master's defaults")
    config = None
    if not problems:
        try:
            config = TaskConfig.model_validate(source.data)
        except ValidationError as error:
            problems = [
                source.placed(problem) for problem in problems_of(error, TaskConfig, source, elsewhere=ELSEWHERE)
            ]
    if config is None or problems:
        raise ConfigError(problems)
    return LoadedTask(config, list(ignored(source)), list(without_container(source)))


def in_words_of_tasks(error: ConfigError) -> ConfigError:
    """What is wrong with its job, by the names that its own configuration has."""
    return ConfigError(list(_renamed(error.problems)))


def _renamed(problems: list[Problem]) -> Iterator[Problem]:
    for problem in problems:
        field, message = (text.replace("slots_per_trial", "slots") for text in (problem.field, problem.message))
        yield Problem(field, message).at(problem.file, problem.line)


ELSEWHERE = {
    "slots_per_trial": "of experiments; a task has resources.slots",
    "hyperparameters": "of experiments; a task has none",
    "searcher": "of experiments; a task has none",
}
