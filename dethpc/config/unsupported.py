"""Fields that are read and checked but have no effect yet. Setting one is refused rather than silently ignored."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import normpath
from typing import Any, NamedTuple

from dethpc.config.dialects import steps
from dethpc.config.source import Source
from dethpc.config.wording import show
from dethpc.domain.entrypoint import trains_a_trial_class
from dethpc.domain.trial_config import WORKDIR
from dethpc.errors import Path, Problem


class Unsupported(NamedTuple):
    """``field`` may only be absent, null or one of ``fine``."""

    field: str
    reason: str
    fine: tuple[Any, ...] = ()

    @property
    def path(self) -> Path:
        return tuple(self.field.split("."))


_CONTAINERS = "no effect in a pool without containers: runs start with the python3 and the packages of the node"
_NO_MOUNT = "has no effect without a container: datasets are cached at the path of the host"
_LOGIN = "has no effect: the port is reached with a login of the master, as every other"
_PROFILED = "has no effect (also in Determined): system metrics are sampled from the beginning to the end"
_OWN_LOOP = "is for trial classes: code that uses the Core API decides it itself (also in Determined)"

UNSUPPORTED = (
    Unsupported("checkpoint_storage.checkpoint_path", "use storage_path, its newer name"),
    Unsupported("optimizations.mixed_precision", "apex is not supported; O1 is PyTorch's own", ("O0", "O1")),
    Unsupported("resources.native_parallel", "it belongs to an older way of launching workers", (False,)),
    Unsupported("resources.slots", "it is for commands and other tasks; for trials, use slots_per_trial"),
    Unsupported("integrations.pachyderm", "Pachyderm is not supported"),
)

FIELDS = tuple(row.field for row in UNSUPPORTED)

IGNORED = {
    "environment.image": _CONTAINERS,
    "environment.force_pull_image": _CONTAINERS,
    "environment.registry_auth": _CONTAINERS,
    "environment.ports": _CONTAINERS,
    "environment.add_capabilities": _CONTAINERS,
    "environment.drop_capabilities": _CONTAINERS,
    "resources.shm_size": _CONTAINERS,
    "resources.devices": _CONTAINERS,
    "checkpoint_storage.propagation": _CONTAINERS,
    "environment.pod_spec": "has no effect: Slurm has no pods; use slurm.sbatch_args or a template",
    "bind_mounts": "cannot be made without a container",
    "profiling.begin_on_batch": _PROFILED,
    "profiling.end_after_batch": _PROFILED,
    "profiling.sync_timings": _PROFILED,
    "optimizations.grad_updates_size_file": "has no effect: no such file is written",
    "checkpoint_storage.tensorboard_path": "has no effect: TensorBoard files are next to the checkpoints",
    "data_layer.container_storage_path": _NO_MOUNT,
    "data_layer.local_cache_container_path": _NO_MOUNT,
    "pbs.slots_per_node": "has no effect (also in Determined on Slurm): this cluster runs Slurm; use slurm.slots_per_node",
    "pbs.pbsbatch_args": "has no effect (also in Determined on Slurm): this cluster runs Slurm; use slurm.sbatch_args",
    "debug": "has no effect yet: there is one level of the master's own log",
    "min_validation_period": _OWN_LOOP,
    "min_checkpoint_period": _OWN_LOOP,
    "checkpoint_policy": _OWN_LOOP,
    "scheduling_unit": _OWN_LOOP,
    "perform_initial_validation": _OWN_LOOP,
    "optimizations": "is for trial classes, and for code that calls determined.pytorch.init()",
    "resources.agent_label": "is ignored (also by Determined); use resources.resource_pool",
    "security": "is ignored (also by Determined)",
    "tensorboard_storage": "is ignored (also by Determined): TensorBoard files go to checkpoint_storage",
    "checkpoint_storage.container_path": "is ignored for type shared_fs (also by Determined)",
}
"""Fields that are accepted without effect, each with its warning."""

TRIAL_CLASS = frozenset(
    {
        "min_validation_period",
        "min_checkpoint_period",
        "checkpoint_policy",
        "scheduling_unit",
        "perform_initial_validation",
        "optimizations",
    }
)
"""Those of them that have their effect where the entrypoint names a trial class."""

_NO_LENGTH = ({"batches": 0}, {"records": 0}, {"epochs": 0})

_NOT_WORTH_A_WARNING: dict[str, tuple[Any, ...]] = {
    "environment.image": ({}, {"cpu": None, "cuda": None, "rocm": None}),
    "environment.force_pull_image": (False,),
    "environment.registry_auth": ({},),
    "environment.ports": ({},),
    "environment.add_capabilities": ([],),
    "environment.drop_capabilities": ([],),
    "resources.devices": ([],),
    "checkpoint_storage.propagation": ("rprivate",),
    "profiling.begin_on_batch": (0,),
    "profiling.end_after_batch": (None,),
    "profiling.sync_timings": (True,),
    "debug": (False,),
    "min_validation_period": _NO_LENGTH,
    "min_checkpoint_period": _NO_LENGTH,
    "checkpoint_policy": ("best",),
    "scheduling_unit": (100,),
    "perform_initial_validation": (False,),
    "optimizations": ({},),
}

_OLD = "a field of older configurations, for searcher "
OLDER = {
    "batches_per_step": "it belongs at the top level",
    **{old: _OLD + ", ".join(methods) for old, (_, methods) in steps.FIELDS.items()},
}
"""Hints for fields of older generations in places where they are not translated."""


def refused(source: Source) -> Iterator[Problem]:
    """One mistake for each field of ``UNSUPPORTED`` that is set."""
    for row in UNSUPPORTED:
        value = source.get(row.path)
        if value is None or any(
            value == fine and isinstance(value, bool) == isinstance(fine, bool) for fine in row.fine
        ):
            continue
        yield Problem(row.path, f"{show(value, row.path)} is not supported yet: {row.reason}")


def ignored(source: Source) -> Iterator[str]:
    """The warnings for fields that are accepted without effect, but for those that a container gives theirs."""
    shared_fs = source.get(("checkpoint_storage", "type")) == "shared_fs"
    without = TRIAL_CLASS if trains_a_trial_class(source.get(("entrypoint",))) else frozenset()
    for field, notice in IGNORED.items():
        if field in without or notice is _CONTAINERS or field == "bind_mounts" or not _is_set(source, field):
            continue
        if field == "checkpoint_storage.container_path" and not shared_fs:
            continue
        yield _at(source, tuple(field.split(".")), f"{field} {notice}")
    for i, port in enumerate(source.get(("environment", "proxy_ports")) or ()):
        if isinstance(port, dict) and port.get("unauthenticated"):
            field = f"environment.proxy_ports.{i}.unauthenticated"
            yield _at(source, tuple(field.split(".")[:2]) + (i, "unauthenticated"), f"{field} {_LOGIN}")


def without_container(source: Source) -> Iterator[str]:
    """The warnings for a trial that starts without a container: one for all that it would give, one for each path. They name no
    file: the master knows whether there is a container, and not from which file the configuration came."""
    fields = [field for field, notice in IGNORED.items() if notice is _CONTAINERS and _is_set(source, field)]
    if fields:
        verb = "has" if len(fields) == 1 else "have"
        yield f"{', '.join(fields)} {verb} {_CONTAINERS}"
    yield from _missing_mounts(source.get(("bind_mounts",)))


def _is_set(source: Source, field: str) -> bool:
    value = source.get(tuple(field.split(".")))
    return value is not None and value not in _NOT_WORTH_A_WARNING.get(field, ())


def _missing_mounts(mounts: Any) -> Iterator[str]:
    """One warning for each path that training code may look for in vain."""
    for i, mount in enumerate(mounts if isinstance(mounts, list) else ()):
        host, inside = (
            (mount.get(name) for name in ("host_path", "container_path")) if isinstance(mount, dict) else ("", "")
        )
        if isinstance(mount, dict) and mount.get("read_only"):
            detail = f"without a container, anyone who can write to {host} can do so here, too"
            yield f"bind_mounts.{i}.read_only has no effect: {detail}"
        if not isinstance(inside, str) or not inside.startswith("/") or inside.startswith(f"{WORKDIR}/"):
            continue
        if normpath(inside) != normpath(str(host)):
            detail = f"{IGNORED['bind_mounts']}: {inside} is what the node has there, not {host}; name {host} itself"
            yield f"bind_mounts.{i} {detail}"


def _at(source: Source, path: Path, message: str) -> str:
    file, line = source.place(path)
    return f"{file}:{line}: {message}" if line else f"{file}: {message}"
