"""How Slurm gives GPUs to jobs, and whether it keeps jobs off each other's."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding, error, note, ok, warning


def check(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    has_gpus = any(row.gpus for row in slurm.nodes)
    whole = [name for name, pool in facts.pools.items() if pool.whole_nodes]
    if has_gpus:
        yield ok("Slurm knows the GPUs (GRES)")
    elif whole:
        yield ok(f"Slurm knows no GPUs; pools that get whole nodes: {', '.join(whole)}")
    else:
        yield note(
            "Slurm knows no GPUs (no GRES)",
            "takes cores for slots",
            "if nodes have GPUs: GresTypes=gpu in slurm.conf, or gres: none with slots_per_node in the site configuration",
        )
    for name in facts.pools:
        if facts.pools[name].slot_type in ("cuda", "rocm") and not facts.pools[name].whole_nodes:
            members = facts.members(name)
            if members and not any(row.gpus for row in members):
                yield error(
                    f"pool {name}: its nodes have no GPUs in GRES",
                    "its jobs would be refused",
                    "gres: none with slots_per_node, where nodes have GPUs that Slurm does not know",
                )
    if slurm.word("SelectType") == "linear":
        yield note(
            "SelectType linear: each job gets whole nodes", "asks as everywhere; small trials waste the rest of a node"
        )
    if has_gpus and slurm.config.get("ConstrainDevices", "").lower() == "no":
        yield note(
            "jobs can open GPUs that are not theirs (ConstrainDevices=no)",
            "hands CUDA_VISIBLE_DEVICES on as Slurm sets it",
            "ConstrainDevices=yes in cgroup.conf",
        )
    for node in facts.nodes or ():
        pool = facts.pools.get(node.pool)
        if node.problem or pool is None or pool.whole_nodes or pool.slot_type == "cpu":
            continue
        if node.devices is None and any(row.gpus for row in facts.members(node.pool)):
            yield warning(
                f"pool {node.pool}: a job on {node.name} that asked for a GPU was not told which (no CUDA_VISIBLE_DEVICES)",
                "counts GPUs from 0: two trials on one node would use the same ones",
                "gres.conf with File= or AutoDetect= for each GPU",
            )
