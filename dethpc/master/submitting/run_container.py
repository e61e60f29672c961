"""From what a pool offers and an experiment asks to the container that its runs start in."""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.sections.container import Container
from dethpc.config.site import PoolConfig
from dethpc.containers import (
    OPTIONAL,
    RUNTIMES,
    Bind,
    Device,
    Env,
    Extras,
    Runtime,
    Wrapped,
    images,
    names,
    that_honour,
)
from dethpc.containers.base import PASSED, PATH
from dethpc.containers.inside import command
from dethpc.domain.entrypoint import batch_script
from dethpc.domain.trial_config import WORKDIR
from dethpc.errors import ConfigError, Problem
from dethpc.master.submitting.trial_shape import Shape
from dethpc.rundir.files import open_regular

MOUNTS = "/run/determined/mounts"
"""Where bind mounts are that the working directory has links to: it is made anew for each attempt, and only then known."""


@dataclass(frozen=True)
class Seen:
    """What a run sees of dethpc: ``home`` and ``harness`` to read, ``written`` to write."""

    run_dir: Path
    home: Path
    harness: Path
    written: Sequence[Path]


@dataclass(frozen=True)
class Inside:
    """``path``: the image on shared_fs."""

    site: Container
    runtime: Runtime
    path: str
    remote: names.Image | None = None  # it is of a registry; then ``path`` is "" until it was pulled

    def check(self, config: ExperimentConfig, home: Path) -> None:
        """Raises ConfigError for everything that this runtime cannot do, with those that can. ``home``: what runs live in."""
        problems = [*self._image(config), *_outside(config), *self._refused(config), *_hides(config, home)]
        if problems:
            raise ConfigError(problems)

    def notes(self, config: ExperimentConfig) -> Iterator[str]:
        """What the owner of the experiment should know."""
        if config.resources.shm_size is not None and self.runtime.name != "podman":
            yield f"resources.shm_size: {self.runtime.name} shows the node's own /dev/shm, whose size is the node's"
        with contextlib.suppress(OSError):
            if self.runtime.name == "podman" and self.path and os.stat(self.path).st_uid != os.geteuid():
                yield f"environment.image: podman may refuse {self.path}, another user's; a copy of your own starts"

    def wrap(self, config: ExperimentConfig, shape: Shape, seen: Seen) -> Wrapped:
        """What each task of the run starts. Raises ConfigError for a path that the runtime cannot be told."""
        resources, environment = config.resources, config.environment
        extras = Extras(
            workdir=str(seen.run_dir),
            binary=self.site.binary or "",
            options=self.site.options,
            devices=[Device(d.host_path, d.container_path, d.mode) for d in resources.devices],
            shm_size="" if resources.shm_size is None else str(resources.shm_size),
            add_capabilities=environment.add_capabilities,
            drop_capabilities=environment.drop_capabilities,
        )
        env = Env({}, (*PASSED, *self.site.variables))
        gpus: Any = shape.slot_type if shape.slots_per_node and shape.slot_type != "cpu" else ""
        start = command(str(seen.harness), str(seen.run_dir))
        try:
            return self.runtime.wrap(self.path, start, list(self._binds(config, seen)), env, gpus, extras)
        except ValueError as error:
            raise ConfigError([Problem("bind_mounts", str(error))]) from None

    def spec_section(self, config: ExperimentConfig) -> dict[str, Any]:
        """What the specification says of it."""
        links = [[f"{MOUNTS}/{i}", path] for i, path in _in_workdir(config)]
        return {"runtime": self.runtime.name, "image": self.path, "links": links}

    def _binds(self, config: ExperimentConfig, seen: Seen) -> Iterator[Bind]:
        """Later ones are above earlier ones."""
        if self.site.home and (own := os.path.expanduser("~")) not in ("~", "/"):
            yield Bind(own, own)
        yield from self.site.own_binds()
        for path, read_only in _readable(seen):
            yield Bind(path, path, read_only)
        if storage := _storage(config):
            with contextlib.suppress(OSError):
                os.makedirs(storage, exist_ok=True)
            yield Bind(storage, storage)
            for folder in filter(os.path.isdir, config.storage_section.get("read_from") or []):
                yield Bind(folder, folder, True)
        links = dict(_in_workdir(config))
        for i, mount in enumerate(config.bind_mounts):
            target = f"{MOUNTS}/{i}" if i in links else posixpath.normpath(mount.container_path)
            yield Bind(mount.host_path, target, mount.read_only, mount.propagation)

    def _image(self, config: ExperimentConfig) -> Iterator[Problem]:
        if self.remote is not None:
            if self.remote.kind == names.ORAS and names.FORMATS.get(self.runtime.name) != names.SIF:
                message = (
                    f"{self.remote.name!r} is a .sif of a registry, which starts with apptainer or singularity only"
                )
                yield Problem("environment.image", message)
            return
        kind = images.kind(self.path)
        if kind not in self.runtime.images:
            can = [name for name, runtime in RUNTIMES.items() if kind in runtime.images]
            kinds = " or ".join(sorted(_KINDS[form] for form in self.runtime.images))
            hint = f"{_KINDS[kind]} starts with {', '.join(can)}"
            yield Problem.of_value("environment.image", repr(self.path), f"{kinds} for {self.runtime.name}", hint)
        elif not os.path.exists(self.path):
            yield Problem("environment.image", f"{self.path} is not on this machine; put it on a shared filesystem")
        elif kind == "folder" and not has_python(self.path):
            yield Problem("environment.image", f"{self.path} has no python3; it needs Python 3.9 or newer")

    def _refused(self, config: ExperimentConfig) -> Iterator[Problem]:
        for what, value in _runtime_features(config):
            if what not in self.runtime.honours:
                can = ", ".join(that_honour(what))
                yield Problem(OPTIONAL[what], f"{self.runtime.name} cannot do this ({value}); {can} can")


_MOST_VARIABLES = 1 << 20
_KINDS = {"folder": "an unpacked folder", "sif": "a .sif file", "sqsh": "a .sqsh file"}


def of(pool: PoolConfig, config: ExperimentConfig, slot_type: str, pulled: Path | None = None) -> Inside | None:
    """The container that runs of the experiment start in; None: they start without one. ``pulled``: where its image is, if that is
    of a registry. Raises ConfigError."""
    site, experiment_image = _chosen(pool, config), config.environment.image_for(slot_type)
    if site is None:
        return None
    image = experiment_image or site.image_for(slot_type)
    if not image:
        return None
    try:
        parsed = names.parse(image)
        if parsed.remote:
            return Inside(site, RUNTIMES[site.runtime], str(pulled or ""), parsed)
        return Inside(site, RUNTIMES[site.runtime], posixpath.normpath(os.path.expanduser(parsed.path)))
    except ValueError as error:
        raise ConfigError([Problem("environment.image", str(error))]) from None


def _chosen(pool: PoolConfig, config: ExperimentConfig) -> Container | None:
    runtime_name = config.environment.container_runtime
    offered = {container.runtime: container for container in pool.container}
    if runtime_name == "none":
        return None
    if runtime_name is not None and runtime_name not in offered:
        runtimes = f"one of {', '.join([*offered, 'none'])}, which pool {config.resources.resource_pool} has"
        raise ConfigError([Problem.of_value("environment.container_runtime", repr(runtime_name), runtimes)])
    first = next(iter(offered.values()), None)
    chosen = first if runtime_name is None else offered[runtime_name]
    return None if chosen is None or chosen.runtime == "none" else chosen


def has_python(folder: str) -> bool:
    """Whether a PATH of the image finds ``python3`` in this unpacked folder."""
    paths = [PATH, "/opt/conda/bin"]
    for file in ("ch/environment", ".singularity.d/env/10-docker2singularity.sh"):
        with contextlib.suppress(OSError), open_regular(Path(folder, file)) as held:
            lines = held.read(_MOST_VARIABLES).decode(errors="replace").splitlines()
            named = [line.strip().removeprefix("export ").partition("=") for line in lines]
            paths += [value.strip("\"'") for name, _, value in named if name == "PATH"]
    return any(
        os.path.lexists(os.path.join(folder, part.lstrip("/"), "python3"))
        for path in paths
        for part in path.split(":")
        if part.startswith("/")
    )


def _hides(config: ExperimentConfig, home: Path) -> Iterator[Problem]:
    """Mounts above the folder that runs live in."""
    for mount in config.bind_mounts:
        target = posixpath.normpath(posixpath.join(WORKDIR, mount.container_path))
        above = target.rstrip("/") + "/"
        if f"{home}/".startswith(above) and target != posixpath.normpath(mount.host_path):
            message = f"{mount.container_path!r} would hide {home}, where the run itself lives"
            yield Problem("bind_mounts.container_path", message)


def _readable(seen: Seen) -> Iterator[tuple[str, bool]]:
    yield str(seen.home), True
    if seen.home not in seen.harness.parents:
        yield str(seen.harness), True
    for path in seen.written:
        yield str(path), False


def _storage(config: ExperimentConfig) -> str:
    """The folder that checkpoints are written to, "" where they go elsewhere."""
    section = config.storage_section
    path = {"shared_fs": section.get("host_path"), "directory": section.get("container_path")}.get(
        section.get("type", "")
    )
    return str(path or "")


def _in_workdir(config: ExperimentConfig) -> Iterator[tuple[int, str]]:
    """Mounts below the working directory, by their number."""
    for i, mount in enumerate(config.bind_mounts):
        path = posixpath.normpath(posixpath.join(WORKDIR, mount.container_path))
        if path.startswith(f"{WORKDIR}/"):
            yield i, path


def _runtime_features(config: ExperimentConfig) -> Iterator[tuple[str, str]]:
    """What not every runtime can do, of what the experiment asks for."""
    environment, resources = config.environment, config.resources
    for what in ("add_capabilities", "drop_capabilities"):
        if value := getattr(environment, what):
            yield what, ", ".join(value)
    if resources.shm_size is not None:
        yield "shm_size", str(resources.shm_size)
    for mount in config.bind_mounts:
        if mount.propagation != "rprivate":
            yield "propagation", mount.propagation
    for device in resources.devices:
        if set(device.mode) != set("mrw"):
            yield "device_mode", device.mode


def _outside(config: ExperimentConfig) -> Iterator[Problem]:
    """What works on the node alone."""
    environment = config.environment
    for field in ("setup", "python"):
        if getattr(environment, field):
            message = "has no place in a container, whose environment the image brings; use startup-hook.sh"
            yield Problem(f"environment.{field}", message)
    if batch_script(config.entrypoint) is not None:
        message = (
            "an sbatch script does not run in a container: set environment.container_runtime: none, or write a command"
        )
        yield Problem("entrypoint", message)
    path = _storage(config) if config.storage_section.get("type") == "directory" else ""
    for mount in config.bind_mounts if path else ():
        target = posixpath.normpath(mount.container_path)
        if f"{path}/".startswith(f"{target}/") and target != posixpath.normpath(mount.host_path):
            message = (
                f"{path} is {mount.host_path} outside the container, where checkpoints are deleted: use shared_fs with "
                f"host_path {mount.host_path}"
            )
            yield Problem("checkpoint_storage.container_path", message)
