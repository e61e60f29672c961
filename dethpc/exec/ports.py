"""Free ports for the launchers and the Core API to listen on."""

from __future__ import annotations

import os
import socket

from dethpc.errors import RendezvousError

# Below what Linux takes for outgoing connections (32768 and up), which would come in between.
FIRST, COUNT = 20000, 12000
_TRIES = 2000


def reserve(count: int, share: int = 0, shares: int = 1) -> list[socket.socket]:
    """Sockets bound to ``count`` free ports. While they stay open no other attempt on this host gets the ports, and yet
    a program that sets SO_REUSEADDR (as every server does) may listen there: Linux lets a socket pass that does not listen
    itself.

    Of several nodes each takes a ``share`` of its own, so that nodes that share one host cannot choose alike.
    Raises: RendezvousError when the host has no ports left.
    """
    chosen: list[socket.socket] = []
    for _ in range(_TRIES):
        if len(chosen) == count:
            return chosen
        any_of_mine = int.from_bytes(os.urandom(4), "big") % (COUNT // shares)
        port = FIRST + any_of_mine * shares + share
        held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            held.bind(("", port))
        except OSError:
            held.close()
            continue
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        chosen.append(held)
    for held in chosen:
        held.close()
    raise RendezvousError(f"no {count} free ports between {FIRST} and {FIRST + COUNT - 1}")


def numbers(sockets: list[socket.socket]) -> list[int]:
    return [int(held.getsockname()[1]) for held in sockets]
