"""Checks of the site's pools against Slurm's partitions: nodes, accounts, GPUs, sizes and time limits."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.config.site import PoolConfig
from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding, error, note, ok, warning
from dethpc.domain.slurm.memory import megabytes
from dethpc.domain.text.measures import plural
from dethpc.scheduler.slurm.pools import NodeRow

SHORT_TIME_LIMIT = 600


def pools(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    """Whether each pool's partition exists, is up, and has nodes of the requested kind."""
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
                f"pool {name}: {_lacking_nodes(facts, slurm, name)}",
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


def _lacking_nodes(facts: Facts, slurm: Slurm, name: str) -> str:
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


def access(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    """Whether each pool's account, QOS and reservation exist and are the user's."""
    refused = False
    for name in facts.pools:
        for problem in _access_problems(facts, slurm, name):
            refused = True
            yield error(
                f"pool {name}: {problem}",
                "its jobs would be refused, and that is said",
                "the site configuration, or sacctmgr",
            )
    if not refused:
        unknown = any(pool.qos or pool.account for pool in facts.pools.values()) and slurm.associations is None
        if unknown:
            yield note("accounts and QOS cannot be looked up: Slurm keeps no accounts", "passes them on as they are")
        else:
            yield ok("accounts, QOS and reservations are there")


def _access_problems(facts: Facts, slurm: Slurm, name: str) -> Iterator[str]:
    pool = facts.pools[name]
    partition = slurm.partitions.get(pool.partition or name, {})
    links = slurm.associations
    if pool.reservation and pool.reservation not in slurm.reservations:
        yield f"no reservation {pool.reservation!r} now"
    for field, value in (("Qos", pool.qos), ("Accounts", pool.account)):
        if value and not _listed(value, partition.get(f"Allow{field}", "ALL")):
            yield f"partition {pool.partition} allows {field.lower()} {partition[f'Allow{field}']}, not {value}"
        if value and _listed(value, partition.get(f"Deny{field}", ""), everybody=False):
            yield f"partition {pool.partition} denies {field.lower()} {value}"
    if pool.qos and slurm.qos is not None and pool.qos not in slurm.qos:
        yield f"no QOS {pool.qos!r}; there are {', '.join(slurm.qos)}"
        return
    if links is None or "associations" not in slurm.config.get("AccountingStorageEnforce", ""):
        return
    mine = [link for link in links if not link.partition or link.partition == pool.partition]
    if pool.account and pool.account not in {link.account for link in mine}:
        names = ", ".join(dict.fromkeys(link.account for link in mine)) or "none"
        yield f"account {pool.account!r} is not yours; you have {names}"
    elif pool.qos and mine and not any(pool.qos in link.qos for link in mine if pool.account in (None, link.account)):
        yield f"QOS {pool.qos!r} is not yours{f' in account {pool.account}' if pool.account else ''}"


def _listed(value: str, names: str, *, everybody: bool = True) -> bool:
    return (everybody and names in ("ALL", "", "(null)")) or value in names.split(",")


def shape(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    """Whether some node is large enough for the slots, cores and memory that a pool requests of a node."""
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
                f"pool {name}: no node has {', '.join(needs)} for {plural(per_node, 'slot')}; "
                f"{best.node} has {sum(best.gpus.values())} GPUs, {best.cpus} cores, {best.memory_mb} MB",
                "a trial that takes whole nodes could never start",
                "slots_per_node, cpus_per_slot or mem_per_slot of the pool",
            )
        else:
            yield ok(
                f"pool {name}: {plural(per_node, 'slot')} ({', '.join(needs)}) fit{'s' if per_node == 1 else ''} on a node"
            )


def _fits(row: NodeRow, pool: PoolConfig, gpus: int, cores: int, memory: int) -> bool:
    have = row.gpus.get(pool.gpu_type, 0) if pool.gpu_type else sum(row.gpus.values())
    return have >= gpus and row.cpus >= cores and row.memory_mb >= memory


def gres(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    """Whether Slurm allocates GPUs to jobs, and whether it keeps jobs off each other's."""
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


def time_limits(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    """The pools' time limits against the partitions'."""
    for name, pool in facts.pools.items():
        partition = pool.partition or name
        if partition not in slurm.partitions:
            continue
        longest, usual = slurm.limit(partition, "MaxTime"), slurm.limit(partition, "DefaultTime")
        requested = pool.time_limit_seconds
        limit = requested or usual or longest
        chained = "a trial that needs longer checkpoints before the limit and goes on in another job"
        if requested is not None and longest is not None and requested > longest:
            yield error(
                f"pool {name}: time_limit is {_slurm_time(requested)}, partition {partition} has MaxTime {_slurm_time(longest)}",
                "its jobs would wait for ever (PartitionTimeLimit), or be refused",
                f'time_limit: "{int(longest // 60)}" or less',
            )
        elif limit is None:
            yield ok(f"pool {name}: no time limit")
        elif limit < SHORT_TIME_LIMIT:
            yield warning(
                f"pool {name}: jobs end after {_slurm_time(limit)}",
                chained + "; much of the time goes into starting",
                "a longer time_limit for the pool",
            )
        elif requested is None and longest is not None and limit < longest:
            yield note(
                f"pool {name}: jobs get the partition's DefaultTime of {_slurm_time(limit)}; {_slurm_time(longest)} is allowed",
                chained,
                "time_limit in the site configuration",
            )
        else:
            yield ok(f"pool {name}: {_slurm_time(limit)}", chained)


def _slurm_time(seconds: float) -> str:
    days, rest = divmod(int(seconds), 86400)
    return (
        f"{days}-{rest // 3600:02}:{rest % 3600 // 60:02}:00"
        if days
        else f"{rest // 3600:02}:{rest % 3600 // 60:02}:00"
    )
