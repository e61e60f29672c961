"""Each pool's partition is there, is up, and has nodes of the kind asked for."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding, error, note, ok, warning


def check(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    for name, pool in facts.pools.items():
        partition = pool.partition or name
        if partition not in slurm.partitions:
            yield error(
                f"pool {name}: no partition {partition!r}; there are {', '.join(slurm.partitions) or 'none'}",
                "experiments in this pool are refused",
                "the pool's partition in the site configuration",
            )
            continue
        state = slurm.partitions[partition].get("State", "UP")
        if state != "UP":
            yield warning(
                f"pool {name}: partition {partition} is {state}", "its jobs wait", "scontrol update partition"
            )
        members = facts.members(name)
        if not members:
            yield error(
                f"pool {name}: {_lacking(facts, slurm, name)}",
                "experiments in this pool are refused",
                "the site configuration",
            )
            continue
        down = [row for row in members if row.state.gone]
        if len(down) == len(members):
            yield warning(
                f"pool {name}: all {len(down)} nodes are down or drained", "its jobs wait", "scontrol show node"
            )
        else:
            yield ok(
                f"pool {name}: partition {partition}, {len(members)} nodes{f', {len(down)} of them down' if down else ''}"
            )
    if not facts.site.pools:
        yield note(
            "no pools are configured", "treats each partition as a pool", "a site configuration: see site-configs/"
        )


def _lacking(facts: Facts, slurm: Slurm, name: str) -> str:
    pool = facts.pools[name]
    rows = [row for row in slurm.nodes if row.partition == (pool.partition or name)]
    kinds = sorted({kind for row in rows for kind in row.gpus if kind})
    features = sorted({feature for row in rows for feature in row.features})
    requirements = [f"gpu_type {pool.gpu_type}"] if pool.gpu_type else []
    requirements += [f"constraint {pool.constraint}"] if pool.constraint else []
    if not rows or not requirements:
        return f"partition {pool.partition} has no nodes"
    return (
        f"no node of partition {pool.partition} has {' and '.join(requirements)}; "
        f"GPU types there: {', '.join(kinds) or 'none'}; features: {', '.join(features) or 'none'}"
    )
