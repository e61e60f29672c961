"""Rendezvous of the nodes of an attempt, and the connections between them until its end.

Node 0 listens on the first free of a few ports that every node can work out; the others try these in turn. Nothing
else is needed: no master, no polling of files. The connections are kept. A node that fails tells node 0, node 0 tells
the others; a connection that breaks means that the node is lost.
"""

from __future__ import annotations

import functools
import socket
import time
import zlib
from typing import Any, Callable, NamedTuple, Optional, Union

from dethpc.domain.attempts.stopping import StopReason
from dethpc.errors import RendezvousError
from dethpc.exec import ports
from dethpc.exec.end import NodeResult
from dethpc.exec.link import TIMEOUT, Link
from dethpc.exec.place import Place
from dethpc.exec.resume import Resume
from dethpc.exec.single_node import Meeting, Member, SingleNode
from dethpc.exec.supervision.supervise import Supervisor
from dethpc.rundir.secret import Secret

CANDIDATES = 8
FAREWELL_SECONDS = 15.0
REPORT_SECONDS = 60.0  # for node 0 to write the end report after a failure


def candidate_ports(attempt: str) -> list[int]:
    """Where node 0 of ``attempt`` may listen."""
    hashes = (zlib.crc32(f"{attempt}.{i}".encode()) for i in range(CANDIDATES))
    return [ports.FIRST + value % ports.COUNT for value in hashes]


class Rendezvous(NamedTuple):
    """How the nodes of an ``attempt`` find and recognise each other, and for how many seconds they try."""

    attempt: str
    secret: Secret
    timeout: float


class Chief(SingleNode):
    """Node 0 of several."""

    def __init__(
        self,
        place: Place,
        slots: int,
        resume: Resume,
        supervisor: Supervisor,
        rendezvous: Rendezvous,
    ) -> None:
        super().__init__(place, slots, resume, supervisor)
        self._secret, self._timeout = rendezvous.secret, rendezvous.timeout
        self._server = _listen(candidate_ports(rendezvous.attempt))
        self._links: set[Link] = set()
        self._present: dict[int, Link] = {}
        self._members: dict[int, Member] = {}
        self._outcomes: dict[int, NodeResult] = {}
        self._failure: Optional[NodeResult] = None

    def meet(self, failed: Optional[NodeResult]) -> Union[Meeting, NodeResult]:
        """Wait for all nodes. An NodeResult when one of them (or this one) has failed already, or the run is killed.

        Raises: RendezvousError that names the missing nodes, after the time-out.
        """
        if failed is not None:
            return failed
        self._supervisor.also(self._server.fileno(), self._accept)
        until = time.monotonic() + self._timeout
        expected = set(range(1, len(self._place.names)))
        while expected - set(self._members):
            killed = self._supervisor.watch.verdict()
            if self._failure or killed:
                return self._failure or NodeResult("rendezvous", message=killed)
            if time.monotonic() >= until:
                missing = sorted(expected - set(self._members))
                raise RendezvousError(
                    f"after {self._timeout:g} s these nodes had not joined: "
                    + ", ".join(f"{self._place.names[rank]} (node {rank})" for rank in missing)
                )
            self._supervisor.poll(min(1.0, max(0.0, until - time.monotonic())))
        if self._failure:
            return self._failure
        self._supervisor.no_more(self._server.fileno())
        self._server.close()
        # The address at which the others have in fact reached this node, however many it has.
        me = Member(0, self._place.name, self._present[min(expected)].own_address, self._slots)
        members = [me, *(self._members[rank] for rank in sorted(expected))]
        meeting = Meeting(members, self._free_ports(), self._resume, self._supervisor.watch.stop_asked)
        self._tell_all({"go": meeting.to_json()})
        return meeting

    def end_now(self) -> str:
        """Why this node's processes must end: another node failed."""
        return f"node {self._failure.node} failed: {self._failure.message}" if self._failure else ""

    def settle(self, mine: NodeResult) -> NodeResult:
        """Wait until every node has ended, and say how the attempt did: the first failure, or success."""
        if not mine.good:
            self._fail(mine)
        while self._waiting() and self._failure is None:
            killed = self._supervisor.watch.verdict()
            if killed:
                self._fail(NodeResult("train", 137, 9, killed))
            else:
                self._supervisor.poll(1.0)
        if self._failure is None:
            return mine
        until = time.monotonic() + FAREWELL_SECONDS
        while self._waiting() and time.monotonic() < until:
            self._supervisor.poll(0.1)
        return self._failure

    def close(self) -> None:
        super().close()
        self._server.close()
        for link in self._links:
            link.close()

    def _waiting(self) -> bool:
        return any(rank not in self._outcomes and not link.lost for rank, link in self._present.items())

    def _tell_all(self, message: dict[str, Any]) -> None:
        for link in self._present.values():
            if not link.lost:
                link.send(message)

    def _accept(self) -> None:
        try:
            sock, _ = self._server.accept()
        except OSError:
            return
        link = Link(sock)
        self._links.add(link)
        self._supervisor.also(link.fileno(), functools.partial(self._hear, link))
        link.challenge()

    def _hear(self, link: Link) -> None:
        for message in link.receive():
            if link.rank is None:
                self._admit(link, message)
            elif "hello" in message:
                self._greet(link, link.rank, message["hello"])
            elif "outcome" in message:
                self._note(link.rank, NodeResult.from_json(message["outcome"]))
        if link.lost:
            self._supervisor.no_more(link.fileno())
            self._links.discard(link)
            link.close()
            self._miss(link)

    def _admit(self, link: Link, message: dict[str, Any]) -> None:
        caller = link.caller(self._secret, message)
        if caller is None or not 0 < caller.rank < len(self._place.names) or caller.rank in self._present:
            link.lost = True
            return
        self._present[caller.rank] = link
        link.welcome(self._secret, message)

    def _greet(self, link: Link, rank: int, hello: dict[str, Any]) -> None:
        if hello.get("failed"):
            self._note(rank, NodeResult.from_json(hello["failed"]))
        self._members[rank] = Member(rank, str(hello["name"]), link.peer_address, int(hello["slots"]))

    def _note(self, rank: int, outcome: NodeResult) -> None:
        outcome = self._outcomes[rank] = outcome._replace(node=rank)
        if not outcome.good:
            self._fail(outcome)

    def _miss(self, link: Link) -> None:
        """A node's connection broke. Before the start it may come again; later it is lost unless it had reported."""
        rank = link.rank
        if rank is None or self._present.get(rank) is not link:
            return
        if self._server.fileno() >= 0:
            del self._present[rank]
            self._members.pop(rank, None)
        elif rank not in self._outcomes:
            message = f"node {self._place.names[rank]} (node {rank}) was lost"
            self._fail(NodeResult("train", None, None, message, node=rank, stop_reason=StopReason.NODE_LOST))

    def _fail(self, outcome: NodeResult) -> None:
        """The first failure is the attempt's; the other nodes hear of it at once. A worker that fails for want of another
        node's is often quicker to say so: what failed earlier, or the loss of a node, then takes its place."""
        if outcome.at is None:
            outcome = outcome._replace(at=time.time())
        earlier = self._failure
        if earlier is None or _order(outcome) < _order(earlier):
            self._failure = outcome
        if earlier is None:
            self._tell_all({"end": self.end_now()})


class Peer(SingleNode):
    """A node other than node 0."""

    def __init__(
        self,
        place: Place,
        slots: int,
        resume: Resume,
        supervisor: Supervisor,
        rendezvous: Rendezvous,
        over: Callable[[], bool],
    ) -> None:
        """``over`` says whether node 0 has reported the attempt's end already."""
        super().__init__(place, slots, resume, supervisor)
        self._secret, self._timeout, self._over = rendezvous.secret, rendezvous.timeout, over
        self._candidates = candidate_ports(rendezvous.attempt)
        self._link: Optional[Link] = None
        self._go: Optional[Meeting] = None
        self._end = ""

    def meet(self, failed: Optional[NodeResult]) -> Union[Meeting, NodeResult]:
        """Find node 0, tell it of this node (also that it has failed), and wait for the others.

        Raises: RendezvousError.
        """
        until = time.monotonic() + self._timeout
        link = self._find(until)
        if isinstance(link, NodeResult):
            return failed or link
        self._link = link
        hello = {"name": self._place.name, "slots": self._slots, "failed": failed.to_json() if failed else None}
        link.send({"hello": hello})
        self._supervisor.also(link.fileno(), self._hear)
        if failed is not None:
            self._stay(failed)
            return failed
        while self._go is None:
            if self._end:
                return NodeResult("rendezvous", message=self._end)
            # Node 0 counts the time; the surplus lets its answer arrive.
            if time.monotonic() > until + 2 * FAREWELL_SECONDS:
                raise RendezvousError(f"node 0 ({self._place.names[0]}) has not answered in {self._timeout:g} s")
            self._supervisor.poll(1.0)
        return self._go

    def end_now(self) -> str:
        return self._end

    def settle(self, mine: NodeResult) -> NodeResult:
        if self._link is not None and not self._link.lost:
            self._link.send({"outcome": mine.to_json()})
        self._stay(mine)
        return mine

    def _stay(self, mine: NodeResult) -> None:
        """Wait for node 0 to close the connection, which it does when its report is written: Slurm may kill the whole step
        soon after the first task has ended, and at once when that task failed."""
        assert self._link is not None
        until = time.monotonic() + REPORT_SECONDS
        while not self._link.lost and not self._supervisor.watch.verdict():
            if not mine.good and time.monotonic() >= until:
                return
            self._supervisor.poll(1.0)

    def close(self) -> None:
        super().close()
        if self._link is not None:
            self._link.close()

    def _find(self, until: float) -> Union[Link, NodeResult]:
        while True:
            for port in self._candidates:
                link = self._try(port)
                if link is not None:
                    return link
            ended = self._supervisor.watch.verdict() or ("node 0 has ended" if self._over() else "")
            if ended:
                return NodeResult("rendezvous", message=ended)
            if time.monotonic() >= until:
                raise RendezvousError(
                    f"node 0 ({self._place.names[0]} at {self._place.addresses[0]}) was not reached "
                    f"in {self._timeout:g} s on any of the ports {', '.join(map(str, self._candidates))}"
                )
            self._supervisor.poll(0.2)

    def _try(self, port: int) -> Optional[Link]:
        try:
            link = Link(socket.create_connection((self._place.addresses[0], port), timeout=TIMEOUT))
        except OSError:
            return None
        return link if link.introduce(self._secret, "node", self._place.rank) else None

    def _hear(self) -> None:
        assert self._link is not None
        for message in self._link.receive():
            if "go" in message:
                self._go = Meeting.from_json(message["go"])
            elif "end" in message:
                self._end = str(message["end"])
        if self._link.lost:
            self._supervisor.no_more(self._link.fileno())
            self._end = self._end or f"node {self._place.names[0]} (node 0) was lost"


Team = Union[SingleNode, Chief, Peer]


def _order(outcome: NodeResult) -> tuple[bool, bool, float]:
    return outcome.stop_reason != StopReason.NODE_LOST, outcome.secondary, outcome.at or 0.0


def _listen(candidates: list[int]) -> socket.socket:
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    for port in candidates:
        try:
            return socket.create_server(("", port), family=family, dualstack_ipv6=both, backlog=1024)
        except OSError:
            continue
    raise RendezvousError(f"none of the ports {', '.join(map(str, candidates))} is free on this node")
