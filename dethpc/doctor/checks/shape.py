"""What a pool asks of a node against what its nodes have."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.config.site import PoolConfig
from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding, error, ok
from dethpc.domain.memory import megabytes
from dethpc.domain.resource_request import count
from dethpc.scheduler.slurm.pools import NodeRow


def check(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    for name, pool in facts.pools.items():
        members = facts.members(name)
        if not members:
            continue
        per_node = pool.slots_per_node or 1
        cores, memory = per_node * (pool.cpus_per_slot or 1), per_node * megabytes(pool.mem_per_slot or "0M")
        gpus = 0 if pool.whole_nodes or pool.slot_type == "cpu" else pool.slots_per_node or 0
        needs = [f"{gpus} GPUs"] * bool(gpus) + [f"{cores} core{'s' * (cores != 1)}"] + [f"{memory} MB"] * bool(memory)
        if not any(_fits(row, pool, gpus, cores, memory) for row in members):
            best = max(members, key=lambda row: (sum(row.gpus.values()), row.cpus))
            yield error(
                f"pool {name}: no node has {', '.join(needs)} for {count(per_node, 'slot')}; "
                f"{best.node} has {sum(best.gpus.values())} GPUs, {best.cpus} cores, {best.memory_mb} MB",
                "a trial that takes whole nodes could never start",
                "slots_per_node, cpus_per_slot or mem_per_slot of the pool",
            )
        else:
            yield ok(
                f"pool {name}: {count(per_node, 'slot')} ({', '.join(needs)}) fit{'s' if per_node == 1 else ''} on a node"
            )


def _fits(row: NodeRow, pool: PoolConfig, gpus: int, cores: int, memory: int) -> bool:
    have = row.gpus.get(pool.gpu_type, 0) if pool.gpu_type else sum(row.gpus.values())
    return have >= gpus and row.cpus >= cores and row.memory_mb >= memory
