"""An experiment whose entrypoint is an sbatch script: what the script asks for becomes part of its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from dethpc.config import load
from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.entrypoint import BatchScript
from dethpc.domain.ports import PoolInfo
from dethpc.errors import ConfigError, NotFound, Problem
from dethpc.master.durable import contexts
from dethpc.scheduler.slurm.user_script import UserScript, read


def fold(
    config_yaml: str,
    entrypoint: BatchScript,
    context_targz: bytes,
    defaults: Mapping[str, Any],
    pools: Sequence[PoolInfo],
    cpus_per_slot: Mapping[str, int],
) -> tuple[ExperimentConfig, list[str]]:
    """The configuration with the script's wishes under it, and what is to be told about them.

    What the configuration says itself counts. ``cpus_per_slot`` by pool, of those that have one. Raises ConfigError.
    """
    try:
        text = contexts.content(context_targz, entrypoint.path).decode("utf-8", "replace")
    except NotFound:
        allowed = f"a script in the context directory; there is no {entrypoint.path}"
        raise ConfigError([Problem("entrypoint", repr(entrypoint.path), allowed)]) from None
    script = read(text, entrypoint.path, entrypoint.options)
    pool = next((pool.name for pool in pools if script.partition in (pool.partition, pool.name)), None)
    lower = deepcopy(dict(defaults))
    resources = lower.setdefault("resources", {})
    if script.partition and pool:
        resources["resource_pool"] = pool
    before = load(config_yaml, file="config", defaults=lower).config.resources.resource_pool
    per_slot = cpus_per_slot.get(before, 1)
    resources["slots_per_trial"] = script.slots(per_slot)
    lower["slurm"] = {
        "slots_per_node": script.slots_per_node(per_slot) if script.nodes else None,
        "gpu_type": script.gpu_type,
        "ntasks_per_node": script.ntasks_per_node,
        "cpus_per_task": script.cpus_per_task,
    }
    config = load(config_yaml, file="config", defaults=lower).config
    config = config.with_sbatch_args([*script.kept, *(config.slurm.sbatch_args or [])])
    return config, [*script.notes, *_overruled(script, config, entrypoint.path, pool, per_slot)]


def _overruled(script: UserScript, config: ExperimentConfig, path: str, pool: str | None, per_slot: int) -> list[str]:
    """Where the configuration says something else than the script."""
    resources, notes = config.resources, []
    if script.partition and pool is None:
        notes.append(
            f"{path}: no resource pool has partition {script.partition}; the experiment goes to {resources.resource_pool}"
        )
    elif pool is not None and resources.resource_pool != pool:
        notes.append(f"{path}: --partition={script.partition} is overridden by resources.resource_pool")
    wanted = script.slots(per_slot)
    if wanted is not None and resources.slots_per_trial != wanted:
        notes.append(f"{path} asks for {wanted} slots; resources.slots_per_trial says {resources.slots_per_trial}")
    return notes
