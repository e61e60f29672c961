"""Which node of which attempt this process is."""

from __future__ import annotations

import os
from typing import Mapping, NamedTuple

from dethpc.errors import RunDirError
from dethpc.rundir.spec import Spec


class Place(NamedTuple):
    """``names`` and ``addresses`` are those of all nodes, by rank."""

    k: int
    rank: int
    job_id: str
    names: list[str]
    addresses: list[str]

    @property
    def name(self) -> str:
        return self.names[self.rank]

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], num_nodes: int) -> Place:
        """Raises: RunDirError when the environment names another number of nodes than the run has."""
        k = _number(environ, "DETHPC_ATTEMPT", "SLURM_RESTART_COUNT", "DETHPC_RESTART_COUNT")
        rank = _number(environ, "DETHPC_NODE_RANK", "SLURM_NODEID")
        names = _listed(environ, "DETHPC_NODES")
        addresses = _listed(environ, "DETHPC_ADDRESSES")
        if not names and num_nodes == 1:
            names = [environ.get("SLURMD_NODENAME") or os.uname().nodename]
        if not addresses:
            addresses = names if num_nodes > 1 else ["127.0.0.1"]
        if len(names) != num_nodes or len(addresses) != num_nodes or not 0 <= rank < num_nodes:
            raise RunDirError(
                f"the run has {num_nodes} nodes, but DETHPC_NODES names {len(names)}, "
                f"DETHPC_ADDRESSES {len(addresses)}, and this is node {rank}"
            )
        job_id = environ.get("DETHPC_JOB_ID") or environ.get("SLURM_JOB_ID") or ""
        return cls(k, rank, job_id, names, addresses)


def with_nodes(spec: Spec, environ: Mapping[str, str]) -> Spec:
    """The run as Slurm has started it, where the script left the number of nodes to Slurm."""
    if spec.num_nodes:
        return spec
    count = max(1, len(_listed(environ, "DETHPC_NODES")))
    gpus = environ.get("SLURM_GPUS_ON_NODE", "")
    per_node = int(gpus) if gpus.isdigit() and spec.slot_type != "cpu" else -(-spec.slots // count)
    return spec._replace(num_nodes=count, slots_per_node=per_node)


def _number(environ: Mapping[str, str], *names: str) -> int:
    for name in names:
        if environ.get(name):
            try:
                return int(environ[name])
            except ValueError:
                raise RunDirError(f"{name}={environ[name]!r} is not a number") from None
    return 0


def _listed(environ: Mapping[str, str], name: str) -> list[str]:
    return [item.strip() for item in environ.get(name, "").split(",") if item.strip()]


def scratch_bases(environ: Mapping[str, str]) -> list[str]:
    """Where a working directory may go on this node, best first."""
    return [
        base
        for base in (environ.get("DETHPC_WORKDIR_BASE"), environ.get("TMPDIR"), "/tmp")
        if base and os.path.isabs(base)
    ]
