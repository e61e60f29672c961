"""Warnings for the owner about settings that cannot work or have no effect, as far as the login node can determine."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dethpc import storage
from dethpc.config.experiment import ExperimentConfig
from dethpc.config.sections.environment import Environment
from dethpc.domain.environment import Environment as ShellEnvironment
from dethpc.domain.facts import Trial
from dethpc.domain.states import TaskKind
from dethpc.errors import DethpcError

_READS = re.compile(r"^\s*(?:source|\.)\s+(~?/[\w./+@%-]+)(?=\s|;|&|$)", re.MULTILINE)
_ELSEWHERE = "is not on this machine; where compute nodes have none either, no trial can start"


def notes(environment: Environment) -> Iterator[str]:
    """Compute nodes may have what is missing here, so none of them refuses the experiment."""
    if environment.python and not os.access(os.path.expanduser(environment.python), os.X_OK):
        yield f"environment.python: {environment.python} {_ELSEWHERE}"
    for path in _READS.findall(environment.setup or ""):
        if not os.path.exists(os.path.expanduser(path)):
            yield f"environment.setup: {path}, which it reads, {_ELSEWHERE}"
    if environment.setup and (error := mistake(environment.setup)):
        yield f"environment.setup: {error}: no trial can start"


SERVERS = {TaskKind.NOTEBOOK: ("JupyterLab", "jupyterlab"), TaskKind.TENSORBOARD: ("TensorBoard", "tensorboard")}
"""What starts such a task: its name, and the package that has it."""


def of_server(kind: TaskKind, shell: ShellEnvironment, environment: Environment) -> Iterator[str]:
    """That the shell which launches the task, whose interpreter will run it, lacks what it starts. A job may wait for hours before
    it fails by that. It runs without a container."""
    server, package = SERVERS.get(kind, ("", ""))
    chosen = environment.python or environment.setup
    if package and shell.python and not chosen and package not in shell.packages:
        yield (
            f"{server} is not installed for {shell.python}, as far as its folders tell, so the task will fail when it starts: "
            f"pip install {package} there, or name an environment or image that has it"
        )


def of_continued(config: ExperimentConfig, trials: Iterable[Trial]) -> Iterator[str]:
    """``trials`` go on, as they are now. How long one has trained is known in batches alone."""
    length = config.searcher.full_length()
    if length is None or config.searcher.time_name() != "batches":
        return
    for trial in trials:
        if trial.steps_completed >= length and trial.latest_checkpoint is not None:
            yield (
                f"trial {trial.id} has trained {trial.steps_completed} batches already, and searcher.max_length says {length}: it "
                "ends at once. Kill it, and continue with a greater length"
            )


LITTLE = 0.05
"""The part of a file system below which what is left of it is said."""


def storage_space(section: Mapping[str, Any]) -> Iterator[str]:
    """That the checkpoint storage is about to be full, where the file system says so: its own limit, or a project's quota. A user's
    quota is seen by no means that every file system has."""
    try:
        place = str(storage.build(section))
        there = next(path for path in (Path(place), *Path(place).parents) if path.exists())
        space = os.statvfs(there)
    except (DethpcError, OSError):
        return
    free, whole = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
    if section.get("type") == "shared_fs" and free < LITTLE * whole:
        yield (
            f"checkpoint_storage: {place} has {free / 2**30:.1f} GiB left of {whole / 2**30:.1f}; "
            "det checkpoint prune --dry-run shows what may go"
        )


def mistake(lines: str) -> str:
    """What bash cannot read in them. It runs none."""
    bash = ["/bin/bash", "--noprofile", "--norc", "-n"]
    try:
        read = subprocess.run(bash, input=lines.encode(), capture_output=True, timeout=10, env={})
    except (OSError, subprocess.TimeoutExpired):
        return ""
    errors = read.stderr.decode(errors="replace").splitlines() if read.returncode else []
    return errors[0].removeprefix("/bin/").strip() if errors else ""
