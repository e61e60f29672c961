"""At which addresses of this machine your master answers, if it runs here, and who can connect there."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from dethpc.doctor.facts import Facts
from dethpc.doctor.finding import Finding, note, ok, warning

_CHANGE = "master.host: the address that compute nodes reach (it is chosen where that is left out), or a firewall before this port"


def check(facts: Facts) -> Iterator[Finding]:
    where = facts.answering
    if where is None:
        return
    beyond = [one for one in map(ipaddress.ip_address, where.addresses) if not one.is_loopback]
    world = [str(one) for one in beyond if one.is_global]
    if world:
        yield warning(
            f"the master answers at {', '.join(world)} port {where.port}, which the whole Internet may reach",
            "admits nobody without a token or a password, and speaks TLS unless master.tls is off",
            _CHANGE,
        )
    inside = [str(one) for one in beyond if not one.is_global]
    if len(inside) > 1 or (inside and world):
        yield note(
            f"the master answers at {', '.join(inside)} port {where.port}: everybody on these networks can connect",
            "admits nobody without a token or a password",
            _CHANGE,
        )
    elif inside:
        yield ok(
            f"the master answers at {inside[0]} port {where.port} and on loopback: everybody on that network can connect"
        )
    elif not world:
        yield ok(f"the master answers on loopback alone, port {where.port}: only users of this machine can connect")
