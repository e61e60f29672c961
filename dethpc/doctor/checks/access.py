"""Each pool's account, QOS and reservation are there, and the user's."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding, error, note, ok


def check(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    refused = False
    for name in facts.pools:
        for problem in _problems(facts, slurm, name):
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


def _problems(facts: Facts, slurm: Slurm, name: str) -> Iterator[str]:
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
