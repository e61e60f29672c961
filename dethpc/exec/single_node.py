"""Members of an attempt as its nodes see each other, and the rendezvous of a single node, which loads no code for several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from dethpc.exec import ports
from dethpc.exec.end import NodeResult
from dethpc.exec.place import Place
from dethpc.exec.resume import Resume
from dethpc.exec.supervision.supervise import Supervisor
from dethpc.rundir.layout import RunDir
from dethpc.rundir.spec import Spec

if TYPE_CHECKING:
    import socket

CORE_PORTS = 4


class Member(NamedTuple):
    rank: int
    name: str
    address: str
    slots: int


class Meeting(NamedTuple):
    """What all nodes know after the rendezvous. ``ports`` are free on node 0; ``early``: asked to stop before
    training."""

    members: list[Member]
    ports: dict[str, list[int]]
    resume: Resume
    early: bool

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "members": list(map(list, self.members)), "resume": self.resume.to_json()}

    @classmethod
    def from_json(cls, obj: dict[str, Any]) -> Meeting:
        members = [Member(*fields) for fields in obj["members"]]
        return cls(members, obj["ports"], Resume.from_json(obj["resume"]), obj["early"])


class Start(NamedTuple):
    """What a node's part of an attempt starts from."""

    run_dir: RunDir
    spec: Spec
    place: Place
    resume: Resume


class SingleNode:
    """The rendezvous of a single node."""

    def __init__(self, place: Place, slots: int, resume: Resume, supervisor: Supervisor) -> None:
        self._place, self._slots, self._resume, self._supervisor = place, slots, resume, supervisor
        self._reserved: list[socket.socket] = []

    def meet(self, failed: Optional[NodeResult]) -> Union[Meeting, NodeResult]:
        if failed is not None:
            return failed
        me = Member(0, self._place.name, self._place.addresses[0], self._slots)
        return Meeting([me], self._free_ports(), self._resume, self._supervisor.watch.stop_asked)

    def end_now(self) -> str:
        return ""

    def settle(self, mine: NodeResult) -> NodeResult:
        return mine

    def close(self) -> None:
        for held in self._reserved:
            held.close()

    def _free_ports(self) -> dict[str, list[int]]:
        self._reserved = ports.reserve(1 + CORE_PORTS, 0, len(self._place.names))
        torch, *core = ports.numbers(self._reserved)
        return {"torch": [torch], "core": core}
