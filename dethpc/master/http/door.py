"""Limits on connections: how many there may be in all and of one peer, and how long one without a token may last.

A connection is unauthenticated until a request on it has shown a valid token. An accepted socket waits until it can be read, and
then until there is a place. Few unauthenticated connections are served at a time, which bounds the memory of all of them; sockets
that wait take none. The next place goes to the newest socket of the peer with the fewest unauthenticated connections, so a flood
from one user or address delays only that peer. While sockets wait, unauthenticated connections that are slow to send a request or
to read a response are closed. So neither silent connections nor any number of requests keep the owner out.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Protocol

MOST_STRANGERS = 48
"""Connections inside that have shown no token yet."""

MOST_OF_ONE = 24
"""The same of one peer: a user of this machine, or another machine."""

MOST_WAITING = 512
"""Connections at the door that have said nothing, and those that wait for a place."""

PATIENCE = 10.0
"""Seconds that a stranger may wait at the door, and has inside for a request, header and body, and for taking the answer."""

GRACE = 1.0
"""The same inside while others wait at the door."""

SILENCE = 60.0
"""Seconds that the rest of a body may be silent when its sender has shown a token."""


class Visit:
    """A connection as the door and the requests on it see it."""

    __slots__ = ("known", "peer")

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.known = False  # its last request has shown a good token


class Guest(Protocol):
    """A connection inside."""

    visit: Visit

    def late(self, now: float) -> bool:
        """Whether it has kept the master waiting for too long."""

    def waited_for(self, now: float) -> float:
        """Seconds that it has kept the master waiting for a request, or with an answer; 0: the master owes one."""

    def cut(self) -> None:
        """Close it at once; it does not come back to ``Door.leave``."""


@dataclass(frozen=True, eq=False)
class Arrival:
    """A connection at the door."""

    peer: str
    sock: socket.socket
    at: float = field(default_factory=time.monotonic)


class Waiting:
    """Arrivals, by peer in the order in which they came."""

    def __init__(self) -> None:
        self.peers: dict[str, dict[Arrival, None]] = {}  # none is empty
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, arrival: Arrival) -> None:
        self.peers.setdefault(arrival.peer, {})[arrival] = None
        self._size += 1

    def remove(self, arrival: Arrival) -> None:
        arrivals = self.peers[arrival.peer]
        del arrivals[arrival]
        self._size -= 1
        if not arrivals:
            del self.peers[arrival.peer]

    def newest(self, peer: str) -> Arrival:
        return next(reversed(self.peers[peer]))

    def surplus(self, most: int) -> list[Arrival]:
        """Who has to go when there are more than ``most``: the oldest of whoever has most."""
        if self._size <= most:
            return []
        largest = max(self.peers, key=lambda peer: len(self.peers[peer]))
        return [next(iter(self.peers[largest]))]

    def all(self) -> list[Arrival]:
        return [arrival for arrivals in self.peers.values() for arrival in arrivals]

    def before(self, at: float) -> list[Arrival]:
        """Who came before ``at``."""
        return [arrival for arrivals in self.peers.values() for arrival in takewhile(lambda a: a.at < at, arrivals)]


class Door:
    """The connections that are open. For the thread of the server's event loop.

    ``let_in`` makes a guest of an arrival. ``most``: connections of all kinds.
    """

    def __init__(self, most: int, let_in: Callable[[Arrival], Guest]) -> None:
        self._most, self._let_in = most, let_in
        self._strangers: dict[Guest, None] = {}  # both in the order in which they came
        self._known: dict[Guest, None] = {}
        self._silent, self._ready = Waiting(), Waiting()  # at the door

    def __len__(self) -> int:
        return len(self._strangers) + len(self._known) + len(self._silent) + len(self._ready)

    def arrive(self, arrival: Arrival) -> None:
        """It comes in once it says something and there is a place, or is closed."""
        self._silent.add(arrival)
        asyncio.get_running_loop().add_reader(arrival.sock, self._speaks, arrival)
        self._turn_away(self._silent.surplus(min(MOST_WAITING, self._most)))
        if len(self) > self._most:
            self._turn_out_a_known_one()

    def leave(self, guest: Guest) -> None:
        """It is closed."""
        if guest in self._strangers or guest in self._known:
            self._strangers.pop(guest, None)
            self._known.pop(guest, None)
            self.admit()

    def admit(self) -> None:
        """Let in who waits, as far as there are places."""
        self._sort()
        while self._ready:
            inside = Counter(guest.visit.peer for guest in self._strangers)
            peer = min(self._ready.peers, key=lambda peer: inside[peer])
            if not self._has_place(inside, peer):
                return
            arrival = self._ready.newest(peer)
            self._ready.remove(arrival)
            self._strangers[self._let_in(arrival)] = None

    def sweep(self) -> None:
        """Close what has kept the master waiting for too long, and let others in."""
        now = time.monotonic()
        for guest in [guest for guests in (self._strangers, self._known) for guest in guests if guest.late(now)]:
            self._turn_out(guest)
        self._turn_away(self._silent.before(now - PATIENCE) + self._ready.before(now - PATIENCE))
        for guest in [guest for guest in self._known if not guest.visit.known]:
            del self._known[guest]
            self._strangers[guest] = None
        self.admit()

    def close(self) -> None:
        """Whoever waits is turned away."""
        self._turn_away(self._silent.all() + self._ready.all())

    def _speaks(self, arrival: Arrival) -> None:
        asyncio.get_running_loop().remove_reader(arrival.sock)
        self._silent.remove(arrival)
        self._ready.add(arrival)
        self._turn_away(self._ready.surplus(MOST_WAITING))
        self.admit()

    def _turn_away(self, arrivals: Iterable[Arrival]) -> None:
        for arrival in arrivals:
            silent = arrival in self._silent.peers.get(arrival.peer, ())
            (self._silent if silent else self._ready).remove(arrival)
            asyncio.get_running_loop().remove_reader(arrival.sock)
            arrival.sock.close()

    def _has_place(self, inside: Counter[str], peer: str) -> bool:
        """There is a place for ``peer``, perhaps because somebody had to make room."""
        if inside[peer] < MOST_OF_ONE and len(self._strangers) < MOST_STRANGERS:
            return True
        now = time.monotonic()
        slow = [guest for guest in self._strangers if guest.waited_for(now) > GRACE]
        if inside[peer] >= MOST_OF_ONE:
            slow = [guest for guest in slow if guest.visit.peer == peer]
        if slow:
            self._turn_out(
                max(slow, key=lambda guest: inside[guest.visit.peer])
            )  # of the largest, the one that came first
        return bool(slow)

    def _turn_out(self, guest: Guest) -> None:
        self._strangers.pop(guest, None)
        self._known.pop(guest, None)
        guest.cut()

    def _turn_out_a_known_one(self) -> None:
        """Of the peer that has most; who takes a new connection every time has forgotten the oldest."""
        if self._known:
            largest, _ = Counter(guest.visit.peer for guest in self._known).most_common(1)[0]
            self._turn_out(next(guest for guest in self._known if guest.visit.peer == largest))

    def _sort(self) -> None:
        for guest in [guest for guest in self._strangers if guest.visit.known]:
            del self._strangers[guest]
            self._known[guest] = None
