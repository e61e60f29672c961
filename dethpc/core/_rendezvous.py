"""Rendezvous of the workers of a task, and the collective calls that they make afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, List, Optional, Tuple, Union

from dethpc.core import _channel
from dethpc.core._info import get_cluster_info
from dethpc.rundir.scratch import is_own
from dethpc.rundir.secret import Secret

if TYPE_CHECKING:
    from dethpc.core._distributed import DistributedContext, Group

_TIMEOUT = float(os.environ.get("DETHPC_RENDEZVOUS_TIMEOUT", "600"))


def meet(who: DistributedContext, chief_ip: Optional[str], port: int, force_tcp: bool) -> Tuple[Group, Group]:
    """The group of all workers and that of this machine's.

    All workers meet at one address; there the chiefs of the machines say where their own workers find them. Raises
    RendezvousError.
    """
    address = _address(who, chief_ip, port, force_tcp)
    everybody = _join(address, _secret("all"), who.rank, [f"rank {rank}" for rank in range(who.size)])
    inner = _listen_inside(force_tcp) if who.local_size > 1 and who.local_rank == 0 else None
    place_here = json.dumps(inner.getsockname()) if inner else None
    workers = everybody.allgather([who.cross_rank, who.local_rank, place_here])
    mine = sorted((local, rank) for rank, (cross, local, _) in enumerate(workers) if cross == who.cross_rank)
    if [local for local, _ in mine] != list(range(who.local_size)):
        ranks = [local for local, _ in mine]
        raise ValueError(f"machine {who.cross_rank} has workers of local ranks {ranks}, not all of {who.local_size}")
    if who.local_size == 1:
        from dethpc.core._distributed import SoloGroup

        return everybody, SoloGroup()
    place = json.loads(workers[mine[0][1]][2])
    where: _channel.Address = Path(place) if isinstance(place, str) else (place[0], place[1])
    secret = _secret(f"machine {who.cross_rank}")
    return everybody, _join(inner or where, secret, who.local_rank, [f"rank {rank}" for _, rank in mine])


def meet_again(who: DistributedContext, chief_ip: Optional[str], force_tcp: bool) -> Group:
    """Another group of all workers, who have met already. Raises RendezvousError."""
    listener, place = None, None
    if who.rank == 0:
        if who.local_size == who.size:
            listener = _listen_inside(force_tcp)
        else:
            listener = _channel.listen(("::" if ":" in str(chief_ip) else "0.0.0.0", 0))
        place = listener.getsockname()
    place = json.loads(who.broadcast(json.dumps(place)))
    where: _channel.Address
    if isinstance(place, str):
        where = Path(place)
    else:
        where = ("127.0.0.1" if who.local_size == who.size else str(chief_ip), place[1])
    return _join(listener or where, _secret("again"), who.rank, [f"rank {rank}" for rank in range(who.size)])


def _join(at: Union[_channel.Address, socket.socket], secret: Secret, rank: int, names: List[str]) -> Union[Hub, Spoke]:
    if rank == 0:
        listener = at if isinstance(at, socket.socket) else _channel.listen(at)
        return Hub(_channel.accept(listener, secret, names, _TIMEOUT))
    assert not isinstance(at, socket.socket)
    return Spoke(_channel.connect(at, secret, rank, len(names), names[0], _TIMEOUT))


class Hub:
    """A group's calls, as its chief makes them."""

    def __init__(self, chief: _channel.Chief) -> None:
        self._chief = chief

    def gather(self, stuff: Any) -> Optional[List[Any]]:
        values = [stuff, *self._chief.gather(_channel.GATHER)]
        self._chief.send(_channel.GATHER, None)  # so that nobody runs ahead into the next call
        return values

    def allgather(self, stuff: Any) -> List[Any]:
        values = [stuff, *self._chief.gather(_channel.ALLGATHER)]
        self._chief.send(_channel.ALLGATHER, values)
        return values

    def broadcast(self, stuff: Any) -> Any:
        self._chief.send(_channel.BROADCAST, stuff)
        return stuff

    def close(self) -> None:
        self._chief.close()


class Spoke:
    """A group's calls, as the other workers make them."""

    def __init__(self, channel: _channel.Channel) -> None:
        self._channel = channel

    def gather(self, stuff: Any) -> Optional[List[Any]]:
        self._channel.send(_channel.GATHER, stuff)
        self._channel.receive(_channel.GATHER)
        return None

    def allgather(self, stuff: Any) -> List[Any]:
        self._channel.send(_channel.ALLGATHER, stuff)
        values: List[Any] = self._channel.receive(_channel.ALLGATHER)
        return values

    def broadcast(self, stuff: Any) -> Any:
        return self._channel.receive(_channel.BROADCAST)

    def close(self) -> None:
        self._channel.close()


def _address(who: DistributedContext, chief_ip: Optional[str], port: int, force_tcp: bool) -> _channel.Address:
    """Where rank 0 listens. All workers must come to the same answer on their own."""
    info = get_cluster_info()
    if who.local_size == who.size:
        if force_tcp:
            return ("127.0.0.1", port)
        # What all workers of this group, and no other group of this user on this machine, have in common.
        names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
        # Allocation ids alone are those of other masters of the user, too: a run's token is its own.
        common = [info.session_token, info.allocation_id] if info else [os.environ.get(name, "") for name in names]
        group = "\0".join([*common, str(port), str(who.size)])
        return _socket_dir() / f"{hashlib.sha256(group.encode()).hexdigest()[:24]}.sock"
    if who.rank == 0:
        return ("::" if ":" in str(chief_ip) else "0.0.0.0", port)
    return (str(chief_ip), port)


def _listen_inside(force_tcp: bool) -> socket.socket:
    return _channel.listen(("127.0.0.1", 0) if force_tcp else _socket_dir() / f"{os.urandom(12).hex()}.sock")


def _secret(group: str) -> Secret:
    info = get_cluster_info()
    secret = (info._worker_secret if info else "") or os.environ.get("DETHPC_DISTRIBUTED_TOKEN") or _own_secret()
    return Secret(secret, f"workers {info.allocation_id if info else ''} {group}")


def _own_secret() -> str:
    """A secret of this user, made when first needed; several machines see the same one in a shared home."""
    from dethpc.rundir.files import create_once, read_json
    from dethpc.rundir.home import home

    path = home() / "distributed.json"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            create_once(path, {"secret": os.urandom(32).hex()})
        return str((read_json(path) or {})["secret"])
    except (OSError, KeyError) as error:
        raise RuntimeError(
            f"the workers need a common secret, and {path} cannot be used ({error}): set DETHPC_DISTRIBUTED_TOKEN"
        ) from None


def _socket_dir() -> Path:
    """A directory on this machine that only this user can enter: the attempt's, else one by whose name the workers find it. Short,
    because a socket's path may have 107 bytes."""
    info = get_cluster_info()
    own = info._folder("sockets") if info else None
    if own is not None:
        return own
    temporary = tempfile.gettempdir()
    path = Path(temporary if len(temporary) < 50 else "/tmp") / f"dethpc-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if not is_own(str(path)):
        raise RuntimeError(f"{path} is not a directory of this user alone; remove it or set TMPDIR")
    return path
