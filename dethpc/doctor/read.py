"""Collects all facts of a site."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from dethpc.config.site import SiteConfig
from dethpc.doctor.facts import Answering, Facts, Slurm
from dethpc.doctor.read_login import read_login
from dethpc.doctor.read_nodes import CheckNodes, read_nodes
from dethpc.doctor.read_slurm import read_slurm
from dethpc.errors import NotFound
from dethpc.rundir.home import Home
from dethpc.scheduler.routes import addresses_towards
from dethpc.scheduler.slurm.commands import SlurmCommands, is_configured
from dethpc.storage import CheckpointStore, build


def read(home: Path, site: SiteConfig, nodes: CheckNodes | None) -> Facts:
    """Raises NotFound for a pool that is not there."""
    store = _store(site)
    kind = os.environ.get("DETHPC_SCHEDULER") or site.scheduler
    if kind == "local" or (kind == "auto" and not is_configured()):
        return Facts(site, read_login(home, store, None), answering=read_master(home))
    scheduler = SlurmCommands()
    slurm = read_slurm(scheduler)
    facts = Facts(site, read_login(home, store, _munge_socket(slurm)), slurm, answering=read_master(home))
    if nodes is None or slurm.problem:
        return facts
    if unknown := [name for name in nodes.pools if name not in facts.pools]:
        raise NotFound(f"no pool {unknown[0]!r}; there are {', '.join(facts.pools)}")
    chosen = {name: pool for name, pool in facts.pools.items() if not nodes.pools or name in nodes.pools}
    chosen = {name: pool for name, pool in chosen.items() if pool.partition in slurm.partitions and facts.members(name)}
    with_types = {
        name: (pool, pool.slot_type or ("cuda" if any(row.gpus for row in facts.members(name)) else "cpu"))
        for name, pool in chosen.items()
    }
    with _somebody_listens(home, site, slurm) as master:
        seen = read_nodes(scheduler, with_types, home, store, master, nodes)
    return replace(facts, nodes=seen)


def _store(site: SiteConfig) -> CheckpointStore | None:
    """Where the site's checkpoints are; None for the folder in the home."""
    return None if site.checkpoint_storage is None else build(site.checkpoint_storage)


def _munge_socket(slurm: Slurm) -> str | None:
    if slurm.word("AuthType") != "munge":
        return None
    return dict(word.partition("=")[::2] for word in slurm.config.get("AuthInfo", "").split(",")).get("socket", "")


@contextlib.contextmanager
def _somebody_listens(home: Path, site: SiteConfig, slurm: Slurm) -> Iterator[tuple[str, int]]:
    """The address of the master if it listens; else that of a port which is opened here for as long, as a master would."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        parts = urlsplit(json.loads(Home(home).master_file.read_bytes())["url"])
        address = str(parts.hostname), int(parts.port or 0)
        socket.create_connection(address, timeout=5).close()
        yield address
        return
    host = site.master.host or next(iter(addresses_towards(row.address for row in slurm.nodes)), "0.0.0.0")
    try:
        listener = socket.create_server((host, site.master.port))
    except OSError:  # the port is taken, or the address is another machine's: a node may reach it all the same
        yield _name(host), site.master.port
        return
    with listener:
        yield _name(host), listener.getsockname()[1]


def _name(host: str) -> str:
    """The name under which other machines find this one."""
    if host != "0.0.0.0":
        return host
    name = socket.getfqdn()
    return socket.gethostname() if name.startswith("localhost") else name


PATIENCE = 2.0
"""Seconds for a connection to an address of this machine."""


def read_master(home: Path) -> Answering | None:
    """None where no master of this home runs on this machine."""
    held = Home(home).own_master()
    where = urlsplit(str(held.get("url") or ""))
    if held.get("host") != socket.gethostname() or not where.hostname or not where.port:
        return None
    addresses = own_addresses(_text("/proc/net/fib_trie"), _text("/proc/net/if_inet6"))
    open_ = tuple(address for address in addresses if _answers(address, where.port))
    return Answering(where.hostname, where.port, open_) if open_ else None


def own_addresses(fib_trie: str, if_inet6: str) -> list[str]:
    """The addresses of this machine, without those that need a name of an interface, from what Linux has in two of its files."""
    addresses = dict.fromkeys(re.findall(r"\|-- (\d+\.\d+\.\d+\.\d+)\s+/32 host LOCAL", fib_trie))
    for line in if_inet6.splitlines():
        digits = line.partition(" ")[0]
        with contextlib.suppress(ValueError):
            address = ipaddress.IPv6Address(int(digits, 16)) if len(digits) == 32 else None
            if address is not None and not address.is_link_local:
                addresses[str(address)] = None
    return list(addresses)


def _answers(address: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address, port), PATIENCE):
        return True
    return False


def _text(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text()
    return ""
