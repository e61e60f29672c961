"""Configuration policies: what an admin demands of every experiment's configuration, here or in one workspace.

The invariant configuration lies over the experiment's own; the constraints bound what stands there then. Those of the whole master
lie over those of a workspace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

from dethpc.config import task
from dethpc.config.experiment import ExperimentConfig
from dethpc.config.loading import merged_source
from dethpc.config.secrets import revealed
from dethpc.config.source import dump, read
from dethpc.config.task import TaskConfig
from dethpc.config.template import Template, check
from dethpc.config.wording import show
from dethpc.domain.facts import Experiment
from dethpc.domain.nested import leaves
from dethpc.domain.records import ConfigPolicy
from dethpc.domain.secrets import masked_at
from dethpc.engine.experiments import DEFAULT_PRIORITY, LOWEST_PRIORITY
from dethpc.errors import ConfigError, Problem, Refused, path_of
from dethpc.master.durable.records import RecordReader

EXPERIMENTS = "EXPERIMENT"
TASKS = "NTSC"
"""The kinds of work that there are policies for. The second is Determined's word for notebooks, TensorBoards, shells and commands;
here it means generic tasks, too."""

WORKLOADS = (EXPERIMENTS, TASKS)

_FORM = (
    "invariant_config (a part of an experiment's configuration) and constraints (resources.max_slots, priority_limit)"
)


def parsed(text: str, workspace_id: int, workload: str, before: ConfigPolicy | None) -> ConfigPolicy:
    """Of YAML or JSON. Secrets that are masked, as they were shown, are those of ``before``. Raises ConfigError with every
    mistake."""
    source, problems = read(text, "config")
    content = source.data
    if not content and not problems:
        raise Refused("the policies are empty: there is nothing to set; det config-policies delete deletes them")
    problems += [
        Problem((name,), f"unknown field; there are {_FORM}")
        for name in content
        if name not in ("invariant_config", "constraints")
    ]
    invariant, constraints = content.get("invariant_config") or {}, content.get("constraints") or {}
    for name, section in (("invariant_config", invariant), ("constraints", constraints)):
        if not isinstance(section, dict):
            problems.append(Problem((name,), f"must be a mapping, not {show(section)}"))
    if not problems:
        problems += [source.placed(problem) for problem in _mistakes(constraints)]
    if not isinstance(invariant, dict):
        raise ConfigError(problems)
    plain, masks = revealed(invariant, [before.invariant_config] if before else [])
    places = [
        Problem((name,), "an experiment or a task is where its user puts it: a policy cannot say where")
        for name in _PLACES
        if name in plain
    ]
    for problem in masks + places or _mistakes_in(plain, workload):
        problem.path = ("invariant_config", *path_of(problem.field))
        problems.append(source.placed(problem))
    if problems:
        raise ConfigError(problems)
    return ConfigPolicy(workspace_id, workload, dict(plain), constraints)


def _mistakes_in(invariant: Mapping[str, Any], workload: str) -> list[Problem]:
    try:
        if workload == TASKS:
            task.load(dump(dict(invariant)), defaults={"entrypoint": "true"})
        else:
            check(Template("invariant_config", invariant))
    except ConfigError as error:
        return error.problems
    return []


_PLACES = ("workspace", "project")


def _mistakes(constraints: Mapping[str, Any]) -> Iterator[Problem]:
    resources = constraints.get("resources") or {}
    if not isinstance(resources, dict):
        yield Problem(("constraints", "resources"), f"must be a mapping, not {show(resources)}")
        resources = {}
    for name in constraints:
        if name not in ("resources", "priority_limit"):
            yield Problem(("constraints", name), f"unknown field; there are {_FORM}")
    for name in resources:
        if name != "max_slots":
            yield Problem(("constraints", "resources", name), "unknown field; there is max_slots")
    for path, value in (
        (("constraints", "resources", "max_slots"), resources.get("max_slots")),
        (("constraints", "priority_limit"), constraints.get("priority_limit")),
    ):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            yield Problem(path, f"must be a whole number above 0, not {show(value)}")
        elif value is not None and path[-1] == "priority_limit" and value > LOWEST_PRIORITY:
            yield Problem(path, f"must be at most {LOWEST_PRIORITY}, the last of all priorities, not {show(value)}")


def policies_of(records: RecordReader, workspace_id: int, workload: str = EXPERIMENTS) -> list[ConfigPolicy]:
    """Of the workspace, then of the whole master."""
    rows = {row.workspace_id: row for row in records.find(ConfigPolicy, workload=workload)}
    return [rows[number] for number in (workspace_id, 0) if number in rows]


class Bounds(Protocol):
    """What constraints bound."""

    @property
    def slots_per_trial(self) -> int | None: ...

    @property
    def max_slots(self) -> int | None: ...

    @property
    def priority(self) -> int | None: ...


@contextmanager
def imposed(text: str, policies: Sequence[ConfigPolicy]) -> Iterator[str]:
    """The configuration with the invariant ones over it. A ConfigError that is raised meanwhile names where a value was written."""
    with ExitStack() as stack:
        for policy in policies:
            if policy.invariant_config:
                text = stack.enter_context(_over(text, policy))
        yield text


@contextmanager
def _over(text: str, policy: ConfigPolicy) -> Iterator[str]:
    own, problems = read(text, "config")
    if problems:
        raise ConfigError(problems)
    where = f"config policy of {_place(policy)}"
    plain = _without(own.data, policy.invariant_config)
    source = merged_source(dump(policy.invariant_config), plain, file=where, under_name="config")
    try:
        yield dump(source.data)
    except ConfigError as error:
        for problem in error.problems:
            path = path_of(problem.field)
            problem.file, problem.line = source.place(path)
            if problem.file == "config":
                problem.file, problem.line = own.place(path)
        raise


def overridden(text: str, whole: str, policies: Sequence[ConfigPolicy]) -> list[str]:
    """What the configuration says and is otherwise in ``whole``, with the invariant ones ``imposed``; for its owner."""
    if not any(policy.invariant_config for policy in policies):
        return []
    own, outcome = read(text, "config")[0].data, read(whole, "config")[0].data
    notes: dict[str, str] = {}
    for policy in policies:
        for joined_path, item in leaves(policy.invariant_config, "\0"):  # keys of data may have dots
            path = tuple(joined_path.split("\0"))
            if item is None:
                continue
            value, fixed = _at(own, path), _at(outcome, path)
            joined = isinstance(value, list) and isinstance(fixed, list) and all(item in fixed for item in value)
            if value is not None and value != fixed and not joined:
                name = ".".join(path)
                reason = f"the config policy of {_place(policy)} says so"
                now, before = (show(masked_at(one, path), path) for one in (fixed, value))
                notes[name] = f"{name} is {now}, not {before}: {reason}"
    return list(notes.values())


def _at(config: Any, path: Sequence[str]) -> Any:
    """What it says there, or above, where that is no mapping; None: nothing."""
    for name in path:
        config = config.get(name) if isinstance(config, dict) else config
    return config


def without_imposed(config: dict[str, Any], policies: Sequence[ConfigPolicy]) -> dict[str, Any]:
    """A configuration without the items of lists that ``imposed`` adds to it."""
    for policy in policies:
        config = _without(config, policy.invariant_config)
    return config


def _without(own: Any, fixed: Any) -> Any:
    """``own`` without the items of its lists that ``fixed`` has there, too: what an experiment that continues, or a fork's parent,
    got of the policy is not added once more."""
    if isinstance(own, dict) and isinstance(fixed, list):  # by kind of slot
        return {name: _without(value, fixed) for name, value in own.items()}
    if isinstance(own, dict) and isinstance(fixed, dict):
        return {name: _without(value, fixed.get(name)) for name, value in own.items()}
    if isinstance(own, list) and isinstance(fixed, list):
        return [item for item in own if item not in fixed]
    return own


def bounded(config: ExperimentConfig, policies: Sequence[ConfigPolicy]) -> ExperimentConfig:
    """With the bounds of the constraints where it names none: an experiment without ``max_slots`` or ``priority`` is bound by them,
    too. Raises Refused where it names others."""
    check_constraints(config.resources, policies)
    update = _usual(config.resources, policies)
    return config.model_copy(update={"resources": config.resources.model_copy(update=update)}) if update else config


def _usual(resources: Bounds, policies: Sequence[ConfigPolicy]) -> dict[str, Any]:
    """What stands for the ``max_slots`` and the ``priority`` that ``resources`` do not name."""
    values = {"max_slots": usual_slots(policies), "priority": _usual_priority(policies)}
    return {name: value for name, value in values.items() if value is not None and getattr(resources, name) is None}


def bounded_task(config: TaskConfig, policies: Sequence[ConfigPolicy]) -> TaskConfig:
    """As ``bounded``, of a task, which has its slots and no more."""
    resources = config.resources
    for policy in policies:
        if (most := _max_slots(policy)) is not None and resources.slots > most:
            raise Refused(
                f"resources.slots is {resources.slots}, and the config policy of {_place(policy)} allows {most}"
            )
        check_priority(resources.priority, policy)
    priority = _usual_priority(policies)
    if priority is None or resources.priority is not None:
        return config
    return config.model_copy(update={"resources": resources.model_copy(update={"priority": priority})})


def _usual_priority(policies: Sequence[ConfigPolicy]) -> int | None:
    """Of what names none; None: nothing bounds it."""
    limits = [limit for policy in policies if (limit := policy.constraints.get("priority_limit"))]
    return max(DEFAULT_PRIORITY, *limits) if limits else None


def usual_slots(policies: Sequence[ConfigPolicy]) -> int | None:
    """``max_slots`` of what names none: what they fix, else the least of the bounds; None: nothing bounds it."""
    value, _ = _fixed(policies).get("max_slots", (None, None))
    bounds = (most for policy in policies if (most := _max_slots(policy)) is not None)
    return min(bounds, default=None) if value is None else int(value)


def _fixed(policies: Sequence[ConfigPolicy]) -> dict[str, tuple[Any, ConfigPolicy]]:
    """What their invariant configurations say of resources, and which policy does: the master's before a workspace's."""
    return {
        name: (value, policy)
        for policy in policies
        for name, value in (policy.invariant_config.get("resources") or {}).items()
        if value is not None
    }


def _max_slots(policy: ConfigPolicy) -> int | None:
    return (policy.constraints.get("resources") or {}).get("max_slots")


def check_constraints(resources: Bounds, policies: Sequence[ConfigPolicy]) -> None:
    """Raises Refused."""
    for policy in policies:
        most = _max_slots(policy)
        for name, slots in (("slots_per_trial", resources.slots_per_trial), ("max_slots", resources.max_slots)):
            if most is not None and slots is not None and slots > most:
                raise Refused(
                    f"resources.{name} is {slots}, and the config policy of {_place(policy)} allows {most} slots"
                )
        check_priority(resources.priority, policy)


def bounds_there(experiment: Experiment, policies: Sequence[ConfigPolicy]) -> dict[str, Any]:
    """The ``max_slots`` and the ``priority`` that an experiment gets which moves to where these hold and names none. What has ended
    or runs elsewhere is bound by nothing. Raises Refused where they do not allow what it names."""
    if experiment.state.terminal or not experiment.kind.submitted:
        return {}
    resources = ExperimentConfig.from_json(experiment.config).resources
    check_constraints(resources, policies)
    return _usual(resources, policies)


def check_priority(priority: int | None, policy: ConfigPolicy) -> None:
    """Raises Refused."""
    limit = policy.constraints.get("priority_limit")
    if limit is not None and priority is not None and priority < limit:
        raise Refused(
            f"resources.priority is {priority}, and the config policy of {_place(policy)} allows no priority before {limit} (1 is "
            "served first)"
        )


def check_changes(resources: Mapping[str, Any], policies: Sequence[ConfigPolicy]) -> None:
    """That what is set of ``resources`` keeps to the limit of priorities, and is not what a policy fixes. Raises Refused."""
    for policy in policies:
        check_priority(resources.get("priority"), policy)
    for name, (fixed, policy) in _fixed(policies).items():
        if resources.get(name) not in (None, fixed):
            raise Refused(
                f"resources.{name} cannot be {show(resources[name])}: the config policy of {_place(policy)} says {show(fixed)}"
            )


def _place(policy: ConfigPolicy) -> str:
    return f"workspace {policy.workspace_id}" if policy.workspace_id else "this master"
