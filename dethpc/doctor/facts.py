"""The facts of a site, which the readers collect once and the checks judge without any I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dethpc.config.site import PoolConfig, SiteConfig
from dethpc.domain.slurm import walltime
from dethpc.scheduler.slurm.pools import NodeRow, SlurmPool


@dataclass(frozen=True)
class Association:
    """An account that the user may use, and the QOS in it."""

    account: str
    qos: tuple[str, ...]
    partition: str = ""


@dataclass(frozen=True)
class Slurm:
    """``config`` is ``scontrol show config``; ``partitions`` by name what ``scontrol show partition`` says of each.

    ``associations`` and ``qos`` (by name what ``sacctmgr`` says of each) are None where nobody keeps accounts.
    ``problem``: why Slurm could not be asked; nothing else is known then.
    """

    config: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    nodes: Sequence[NodeRow] = ()
    reservations: tuple[str, ...] = ()
    associations: tuple[Association, ...] | None = None
    qos: Mapping[str, Mapping[str, str]] | None = None
    has_sacct: bool = True
    least_priorities: Mapping[str, int] = field(default_factory=dict)  # partition -> of waiting jobs without nice
    banners: Mapping[str, str] = field(
        default_factory=dict
    )  # command -> the first line that it prints and Slurm does not
    problem: str = ""

    @property
    def weights(self) -> dict[str, int]:
        """By the factor's name; of PriorityWeightTRES, ``CPU=1000,GRES/gpu=2000``, the sum."""
        names = [name for name in self.config if name.startswith("PriorityWeight")]
        return {
            name.removeprefix("PriorityWeight"): sum(map(int, re.findall(r"(?:^|=)(\d+)", self.config[name])))
            for name in names
        }

    def number(self, name: str) -> int | None:
        """The number that a value such as ``30 sec`` begins with."""
        match = re.match(r"\d+", self.config.get(name, ""))
        return int(match[0]) if match else None

    def word(self, name: str) -> str:
        """A value in lower case, without the plugin's kind: ``cgroup`` of ``proctrack/cgroup``. Empty when it is not set."""
        value = self.config.get(name, "").rpartition("/")[2].lower()
        return "" if value == "(null)" else value

    @property
    def keeps_accounts(self) -> bool:
        return self.word("AccountingStorageType") == "slurmdbd"

    def limit(self, partition: str, name: str) -> float | None:
        """Seconds of a partition's MaxTime or DefaultTime; None: no limit."""
        return walltime.seconds(self.partitions.get(partition, {}).get(name, ""))


@dataclass(frozen=True)
class Login:
    """The machine where ``det`` runs. Sizes in bytes; ``cpu_seconds`` and ``memory_limit`` are those of one process or user."""

    host: str
    home: str
    filesystem: str  # of DETHPC_HOME, as the kernel names it: ext4, nfs4, lustre
    python: tuple[int, int]
    packages: Mapping[str, str] = field(default_factory=dict)  # version by name, of those that matter
    home_mode: int | None = None
    token_mode: int | None = None
    locks: str = ""  # what is wrong with file locks in the home
    storage: str = ""  # where checkpoints go, if that is a folder outside the home
    storage_problem: str = ""  # why nothing can be written there
    free_bytes: int | None = None
    free_files: int | None = None  # None: the file system has no such limit
    quota: str = ""  # what is over or nearly over, in words
    umask: int = 0o077
    kills_at_logout: bool | None = None  # None: nobody can tell
    lingers: bool | None = None
    cpu_seconds: int | None = None
    memory_limit: int | None = None
    munge: str | None = None  # what munge complains of; None: not looked at
    job_python: str = "python3"  # the path of the one that jobs of this shell get
    lacking: Sequence[str] = ()  # programs that it, or this machine, has not: JupyterLab, TensorBoard, sshd


@dataclass(frozen=True)
class Node:
    """What a small job saw on a compute node of ``pool``. ``problem``: why it saw nothing; the rest is unknown then."""

    pool: str
    name: str = ""
    problem: str = ""
    exit_code: int | None = None
    refused: bool = False  # by sbatch
    late: bool = False  # it had not ended when nobody wanted to wait any longer
    prologue: str = ""  # the first command of the pool's prologue that failed, and how
    python: str = ""  # what the pool's python says of its version; an error when it does not run
    home: str = ""  # what is wrong with DETHPC_HOME
    storage: str = ""  # what is wrong with the folder for checkpoints
    lock: str = "held"  # of a file that the login node has locked: held, free, or an error
    clock: float = 0.0  # the node's, between these two of the login node
    asked_at: float = 0.0
    seen_at: float = 0.0
    master: str = ""  # why the master's port is not reached
    address: str = ""  # the one that was tried
    devices: str | None = None  # CUDA_VISIBLE_DEVICES or its like; None: none of them is set
    free_bytes: int | None = None  # below the folder for contexts
    sshd: bool = True  # whether there is one
    containers: Mapping[str, str] = field(
        default_factory=dict
    )  # runtime -> why the smallest one does not start, "": it does


@dataclass(frozen=True)
class Answering:
    """Where the master answers on this machine: ``host`` is what it gives to jobs, ``addresses`` are those of this machine at which
    its port is open."""

    host: str
    port: int
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    site: SiteConfig
    login: Login
    slurm: Slurm | None = None  # None: jobs run on this machine
    nodes: Sequence[Node] | None = None  # None: not looked at
    answering: Answering | None = None  # None: no master of this user runs on this machine

    @property
    def pools(self) -> dict[str, PoolConfig]:
        """The site's pools; without any, Slurm's partitions. Each has a partition."""
        if self.slurm is None:
            return {}
        named = self.site.pools or {name: PoolConfig() for name in self.slurm.partitions}
        return {name: pool.model_copy(update={"partition": pool.partition or name}) for name, pool in named.items()}

    def members(self, name: str) -> list[NodeRow]:
        """The nodes of a pool, down ones too."""
        assert self.slurm is not None
        pool = self.pools[name]
        slurm_pool = SlurmPool(name, pool.partition or name, constraint=pool.constraint, gpu_type=pool.gpu_type)
        return [row for row in self.slurm.nodes if slurm_pool.has(row)]
