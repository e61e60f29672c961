"""The resources that an experiment requests by sbatch options, in its script, in ``slurm.sbatch_args`` and in its shell. They are
defaults below its configuration."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from dethpc.config import load
from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.ports import PoolInfo
from dethpc.domain.slurm import gres
from dethpc.errors import ConfigError, Problem
from dethpc.scheduler.slurm import options as known
from dethpc.scheduler.slurm import request as requests
from dethpc.scheduler.slurm.options import Argument, Option, Unreadable, Use
from dethpc.scheduler.slurm.request import Request
from dethpc.scheduler.slurm.script import all_options, directive
from dethpc.scheduler.slurm.user_script import UserScript


@dataclass(frozen=True)
class Cluster:
    """What is known of where it is to run. ``cpus_per_slot`` by pool, of those that have one; ``unknown_gpus`` are pools whose GPUs
    Slurm does not know; ``local``: there is no Slurm."""

    defaults: Mapping[str, Any]
    pools: Sequence[PoolInfo]
    cpus_per_slot: Mapping[str, int] = field(default_factory=dict)
    unknown_gpus: frozenset[str] = frozenset()
    local: bool = False

    def with_partition(self, partition: str | None) -> str | None:
        """The pool of the partition, or of the first of several that has one."""
        for name in (partition or "").split(","):
            for pool in self.pools:
                if name and name in (pool.partition, pool.name):
                    return pool.name
        return None

    def pool(self, name: str) -> PoolInfo | None:
        return next((pool for pool in self.pools if pool.name == name), None)


_OF_VARIABLES = {
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_DEBUG": "verbose",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_REQ_SWITCH": "switches",
    "SBATCH_TIMELIMIT": "time",
}


def of_shell(variables: Mapping[str, str]) -> tuple[list[Option], list[str]]:
    """The options that variables such as SBATCH_ACCOUNT give, as sbatch does; and what is to be told of those without effect."""
    options, notes = list[Option](), list[str]()
    for variable, value in sorted(variables.items()):
        name = _OF_VARIABLES.get(variable, variable.removeprefix("SBATCH_").lower().replace("_", "-"))
        rule = known.RULES.get(name)
        if rule is None or rule.use in (Use.REFUSED, Use.TRANSLATED):
            if rule is None or rule.name != "partition":
                why = rule.why if rule else "it is no option that dethpc knows"
                notes.append(f"{variable} of this shell has no effect: {why}")
                continue
        if rule.argument is Argument.NONE:
            if value in ("", "yes") or (value.isdigit() and int(value)):
                options.append(Option(rule.name, None, rule))
        else:
            options.append(Option(rule.name, None if rule.argument is Argument.OPTIONAL and not value else value, rule))
    return options, notes


def fold(
    config_yaml: str, script: UserScript | None, shell: Sequence[Option], cluster: Cluster
) -> tuple[ExperimentConfig, list[str]]:
    """The configuration with what its options ask for under it, and what is to be told about them.

    ``script``: its entrypoint, where that is an sbatch script; ``shell``: options that variables of its shell give, which win over
    the script's, as with sbatch. What the configuration says itself counts. Raises ConfigError.
    """
    config = load(config_yaml, file="config", defaults=cluster.defaults).config
    own = all_options(config.slurm.sbatch_args or [])
    if script is None:
        return _of_arguments(config_yaml, config, shell, own, cluster)
    given = [*script.options, *shell]
    values = {option.name: option.value for option in given}
    partition, title = values.get("partition"), values.get("job-name")
    request = _understood([*given, *own], script.path)
    lower = deepcopy(dict(cluster.defaults))
    pool = cluster.with_partition(partition)
    if pool:
        lower.setdefault("resources", {})["resource_pool"] = pool
    if title:
        lower["name"] = title
    if variables := _variables(values):
        lower["environment"] = {**lower.get("environment", {}), "environment_variables": variables}
    config = load(config_yaml, file="config", defaults=lower).config
    shape = _Shape.of(request, config, cluster, script.path)
    lower.setdefault("resources", {})["slots_per_trial"] = shape.slots
    lower["slurm"] = {"slots_per_node": shape.slots_per_node, "gpu_type": request.gpu_type}
    config = load(config_yaml, file="config", defaults=lower).config
    notes = [*script.notes, *translations(given, script.path), *shape.notes]
    ours = _overruled(request, shape, config)
    sbatch_options, dropped = _split_options(given, config, ours, cluster)
    for option in dropped:
        notes.append(f"{script.path}: {option} is left out: {ours or 'Slurm does not know the GPUs of the pool'}")
    if partition and config.resources.resource_pool != pool:
        why = (
            "is overridden by resources.resource_pool"
            if pool
            else f"has no resource pool; it goes to {config.resources.resource_pool}"
        )
        notes.append(f"{script.path}: --partition={partition} {why}")
    elif partition and "," in partition:
        sbatch_options.append(Option("partition", partition))
    arguments = [directive(option.name, option.value) for option in sbatch_options]
    return config.with_sbatch_args([*arguments, *(config.slurm.sbatch_args or [])]), notes


def _of_arguments(
    config_yaml: str, config: ExperimentConfig, shell: Sequence[Option], own: Sequence[Option], cluster: Cluster
) -> tuple[ExperimentConfig, list[str]]:
    """Of an experiment whose entrypoint is no sbatch script: dethpc chooses nodes, tasks and GPUs, but for what its own options
    say."""
    where = "slurm.sbatch_args"
    shaping = [option for option in shell if option.use is not Use.VERBATIM]
    notes = [
        f"--{option.name}={option.value} of this shell has no effect: dethpc chooses it for a trial"
        for option in shaping
    ]
    notes += [f"{where}: {option} is left out: {option.why}" for option in own if _is_translated(option)]
    request = _understood(own, where)
    if request.all_gpus:
        lower = deepcopy(dict(cluster.defaults))
        lower.setdefault("resources", {})["slots_per_trial"] = request.all_gpus
        config = load(config_yaml, file="config", defaults=lower).config
        if (slots := config.resources.slots_per_trial) != request.all_gpus:
            message = f"asks for {request.all_gpus} GPUs, and resources.slots_per_trial for {slots}; say one number"
            raise ConfigError([Problem(where, message)])
    extra = [directive(option.name, option.value) for option in shell if option.use is Use.VERBATIM]
    return (config.with_sbatch_args([*extra, *(config.slurm.sbatch_args or [])]) if extra else config), notes


def _variables(values: Mapping[str, str | None]) -> list[str]:
    """What options set in the environment: NAME=VALUE of ``--export``, and the job's name, as dethpc names the job itself."""
    exported = [item for item in (values.get("export") or "").split(",") if re.match(r"[A-Za-z_]\w*=", item)]
    title = values.get("job-name")
    return [*exported, *([f"SLURM_JOB_NAME={title}"] if title else [])]


@dataclass(frozen=True)
class _Shape:
    """What the options ask for, in slots of the pool. ``slots_per_node`` is None where Slurm chooses the nodes."""

    slots: int
    slots_per_node: int | None
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, request: Request, config: ExperimentConfig, cluster: Cluster, path: str) -> _Shape:
        """Raises ConfigError: GPUs of a pool that has none."""
        name = config.resources.resource_pool
        pool, per_slot = cluster.pool(name), cluster.cpus_per_slot.get(name, 1)
        slots, notes = request.all_gpus, list[str]()
        if pool is not None and pool.slot_type == "cpu":
            if slots and not cluster.local:
                raise ConfigError([Problem("entrypoint", f"{path} asks for {slots} GPUs, and pool {name} has none")])
            if slots:
                notes.append(
                    f"{path} asks for {slots} GPUs, and this machine has none for trials: it gets as many slots of cores"
                )
            slots = slots or math.ceil(request.cores / per_slot)
        elif not slots and request.whole_nodes and pool is not None and pool.nodes:
            slots = pool.slots // pool.nodes * request.least_nodes
        elif not slots:
            notes.append(
                f"{path} asks for no GPU, so its trials get none; --gres=gpu:N in it or resources.slots_per_trial asks for some"
            )
        fixed = None if request.nodes is None or not slots else math.ceil(slots / request.nodes)
        return cls(slots, fixed, notes)


def _understood(options: Sequence[Option], where: str) -> Request:
    try:
        return requests.of(options)
    except Unreadable as error:
        raise ConfigError(
            [Problem("entrypoint" if where[0] != "s" else where, f"sbatch would not take it: {error}, in {where}")]
        ) from None


def translations(options: Sequence[Option], where: str) -> list[str]:
    """What stands for the options that are not handed to Slurm."""
    return [f"{where}: {option} is left out: {option.why}" for option in options if _is_translated(option)]


def _is_translated(option: Option) -> bool:
    return option.use is Use.TRANSLATED and option.name != "partition"  # of which more is said


def _overruled(request: Request, shape: _Shape, config: ExperimentConfig) -> str:
    """Why the options' nodes and GPUs do not count; "" where they do."""
    slots, slurm = config.resources.slots_per_trial, config.slurm
    if slots != shape.slots:
        return f"resources.slots_per_trial is {slots}, not {shape.slots}"
    if slurm.slots_per_node != shape.slots_per_node:
        return f"slurm.slots_per_node is {slurm.slots_per_node}"
    if slurm.gpu_type != request.gpu_type:
        return f"slurm.gpu_type is {slurm.gpu_type}"
    return ""


def _split_options(
    options: Sequence[Option], config: ExperimentConfig, overruled: str, cluster: Cluster
) -> tuple[list[Option], list[Option]]:
    """The options for sbatch, and those of its shape that the configuration or the pool takes the place of."""
    ours = bool(overruled) or config.resources.resource_pool in cluster.unknown_gpus
    last = {option.name: option for option in options}
    sbatch_options, dropped = list[Option](), list[Option]()
    for option in last.values():
        if option.use is Use.TRANSLATED:
            continue
        if not ours or option.use is Use.VERBATIM:
            sbatch_options.append(option)
        elif option.name == "gres":
            others = [resource for resource in gres.requested(option.value or "") if resource.name != gres.GPU]
            sbatch_options += [replace(option, value=gres.written(others))] if others else []
            dropped.append(option)
        elif option.name in known.GPUS or (
            overruled and option.name in known.NODES | {"ntasks", "ntasks-per-gpu", "tres-per-task"}
        ):
            dropped.append(option)
        else:
            sbatch_options.append(option)
    return sbatch_options, dropped
