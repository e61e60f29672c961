"""The contract of a container runtime: a pure wrap around the command that a job starts on every node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

Gpus = Literal["", "cuda", "rocm"]
"""What kind of devices the job has. Which of them are its own say Slurm's cgroup and ``CUDA_VISIBLE_DEVICES``, which goes along:
the runtimes show all that the job may open, and number none anew."""

PASSED = (
    "DET_*", "DETHPC_*", "SLURM*", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK", "http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy",
    "HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY", "HOME", "USER", "LOGNAME", "TERM", "TZ",
)  # fmt: skip
"""Variables of the job that mean something inside: shell patterns. The rest describes the node: PATH, modules, libraries."""

TMP = "/tmp"
"""The node's, which working directories are in; some runtimes bind it by themselves."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Inside, where the image says nothing else."""


@dataclass(frozen=True)
class Bind:
    """``source`` of the node is seen as ``target`` inside; both are absolute."""

    source: str
    target: str
    read_only: bool = False
    propagation: str = "rprivate"


@dataclass(frozen=True)
class Device:
    """A device of the node. ``mode``: some of r, w and m (make)."""

    source: str
    target: str
    mode: str = "mrw"


@dataclass(frozen=True)
class Env:
    """``set``: variables with their values, which count above all others. ``passed``: patterns of those that go along."""

    set: Mapping[str, str] = field(default_factory=dict)
    passed: Sequence[str] = PASSED


@dataclass(frozen=True)
class Extras:
    """What an experiment asks of its container besides. ``shm_size``: as written, bytes or a size such as 4GiB; "" for the usual.

    ``binary``: the program, a name or an absolute path, "" for the usual; ``options``: words of the site's own for it.
    """

    workdir: str = "/"
    binary: str = ""
    options: Sequence[str] = ()
    devices: Sequence[Device] = ()
    shm_size: str = ""
    add_capabilities: Sequence[str] = ()
    drop_capabilities: Sequence[str] = ()


@dataclass(frozen=True)
class Wrapped:
    """``command`` is what each task starts; ``srun_options`` go to the srun that starts it. ``scrub``: patterns of the
    variables that alone are left of the job's before that; None: all stay. ``env`` is exported."""

    srun_options: tuple[str, ...]
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    scrub: tuple[str, ...] | None = None


class Runtime(Protocol):
    """One of the ways to start a container. Stateless; every method is pure.

    Attributes:
        name: as the site configuration names it.
        binary: the program that is looked for on PATH.
        images: the kinds of images that it starts: of "folder", "sif", "sqsh".
        honours: of ``OPTIONAL`` what it can do. The rest is refused where an experiment is created.
    """

    name: str
    binary: str
    images: frozenset[str]
    honours: frozenset[str]

    def wrap(
        self, image: str, command: Sequence[str], binds: Sequence[Bind], env: Env, gpus: Gpus, extras: Extras = ...
    ) -> Wrapped:
        """``command`` in a container of ``image``, the absolute path of one that is on shared_fs.

        The network, process ids, the user's id and /dev/shm are the node's. ``command`` is started as a child of the task or in its
        place, so that TERM and USR1 reach it and it does not outlive the task. Any text may occur in every argument.
        """
        ...


OPTIONAL: Mapping[str, str] = {
    "add_capabilities": "environment.add_capabilities",
    "drop_capabilities": "environment.drop_capabilities",
    "propagation": "bind_mounts.propagation",
    "shm_size": "resources.shm_size",
    "device_mode": "resources.devices.mode",
}
"""What not every runtime can do, and the field that asks for it."""
