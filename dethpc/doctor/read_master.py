"""Reads at which of this machine's addresses the user's master answers."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from pathlib import Path
from urllib.parse import urlsplit

from dethpc.doctor.facts import Answering
from dethpc.rundir.home import Home

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
