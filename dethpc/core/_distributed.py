"""Coordination between the workers of a task, on sockets of its own."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import tempfile
from pathlib import Path
from typing import Any, Callable, List, Optional, Tuple, TypeVar

from dethpc.core import _wire
from dethpc.core._info import get_cluster_info

T = TypeVar("T")

_PORT_1 = int(os.environ.get("INTER_TRAIN_PROCESS_COMM_PORT_1", "12360"))
_PORT_2 = int(os.environ.get("INTER_TRAIN_PROCESS_COMM_PORT_2", str(_PORT_1 + 16)))
_TIMEOUT = float(os.environ.get("DETHPC_RENDEZVOUS_TIMEOUT", "600"))


class DistributedContext:
    """Who the workers of this task are, and small messages between them.

    ``rank`` of ``size`` counts all workers; ``local_rank`` of ``local_size`` those of this machine; ``cross_rank`` of
    ``cross_size`` the machines. ``chief_ip`` is the address of rank 0's machine and is required with several machines.

    Every worker must make the same calls in the same order. A worker that leaves makes the others raise ConnectionError; one
    that calls something else makes them raise RuntimeError. Payloads are pickled; they are meant for file names and decisions,
    not for tensors.

    On one machine the workers meet at a UNIX socket that only their user can reach, unless ``force_tcp``. Over TCP they use
    the chief's free port that the cluster found for this attempt, or ``pub_port + port_offset``. (``pull_port`` is accepted
    for Determined's sake: one port does here.) They authenticate each other with the run's token; off the cluster with
    ``DETHPC_DISTRIBUTED_TOKEN``, or else a secret that is kept in ``$DETHPC_HOME`` and that all machines must see.
    """

    def __init__(
        self,
        *,
        rank: int,
        size: int,
        local_rank: int,
        local_size: int,
        cross_rank: int,
        cross_size: int,
        chief_ip: Optional[str] = None,
        pub_port: int = _PORT_1,
        pull_port: int = _PORT_2,
        port_offset: int = 0,
        force_tcp: bool = False,
    ) -> None:
        given = (rank, size, local_rank, local_size, cross_rank, cross_size)
        if any(x is None for x in given) and any(x is not None for x in given):
            raise ValueError("give all of rank, size, local_rank, local_size, cross_rank, cross_size, or none of them")
        self.rank = rank or 0
        self.size = 1 if size is None else size
        self.local_rank = local_rank or 0
        self.local_size = 1 if local_size is None else local_size
        self.cross_rank = cross_rank or 0
        self.cross_size = 1 if cross_size is None else cross_size
        if not (0 <= self.rank < self.size and 0 <= self.local_rank < self.local_size <= self.size):
            raise ValueError(f"rank {rank} of {size}, local rank {local_rank} of {local_size} is not possible")
        if self.local_size != self.size and chief_ip is None:
            raise AssertionError("chief_ip is required when the workers are on several machines")
        self._closed = False
        self._all = _Group(self.rank)
        self._local = _Group(self.local_rank)
        if self.size > 1:
            address = _address(self.local_size == self.size and not force_tcp, chief_ip, pub_port, port_offset, self)
            self._meet(address, force_tcp)

    # --- from what a launcher says -----------------------------------------------------------------------------------

    @classmethod
    def from_torch_distributed(cls, chief_ip: Optional[str] = None) -> DistributedContext:
        """From the environment that torchrun makes. ``chief_ip``: else ``DET_CHIEF_IP``; needed with several machines."""
        return cls._from_env("LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", chief_ip)

    @classmethod
    def from_deepspeed(cls, chief_ip: Optional[str] = None) -> DistributedContext:
        """From the environment that the deepspeed launcher makes. ``chief_ip``: else ``DET_CHIEF_IP``."""
        return cls._from_env("LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", chief_ip)

    @classmethod
    def from_horovod(cls, hvd: Any, chief_ip: Optional[str] = None) -> DistributedContext:
        """From the ranks of an initialised ``horovod.torch`` or ``horovod.tensorflow``. ``chief_ip``: else ``DET_CHIEF_IP``."""
        return cls(
            rank=hvd.rank(),
            size=hvd.size(),
            local_rank=hvd.local_rank(),
            local_size=hvd.local_size(),
            cross_rank=hvd.cross_rank(),
            cross_size=hvd.cross_size(),
            chief_ip=chief_ip or os.environ.get("DET_CHIEF_IP"),
        )

    @classmethod
    def from_mpi(cls, comm: Any = None, chief_ip: Optional[str] = None) -> DistributedContext:
        """From an mpi4py communicator (default: COMM_WORLD). A collective call. ``chief_ip``: else ``DET_CHIEF_IP``."""
        from mpi4py import MPI

        comm = MPI.COMM_WORLD if comm is None else comm
        hosts: List[str] = comm.allgather(socket.gethostname())
        machines = list(dict.fromkeys(hosts))
        host = hosts[comm.Get_rank()]
        return cls(
            rank=comm.Get_rank(),
            size=comm.Get_size(),
            local_rank=hosts[: comm.Get_rank()].count(host),
            local_size=hosts.count(host),
            cross_rank=machines.index(host),
            cross_size=len(machines),
            chief_ip=chief_ip or os.environ.get("DET_CHIEF_IP") or machines[0],
        )

    @classmethod
    def from_tf_config(cls) -> Tuple[DistributedContext, Any]:
        """From TensorFlow's ``TF_CONFIG``: the context, and the ``tf.distribute.Strategy`` that fits it."""
        import tensorflow as tf  # type: ignore[import-not-found,import-untyped,unused-ignore]

        config = json.loads(os.environ.get("TF_CONFIG", "{}"))
        workers = config.get("cluster", {}).get("worker", [])
        if len(workers) > 1:
            task = config["task"]
            if task["type"] != "worker":
                raise RuntimeError(f"TF_CONFIG names a task of type {task['type']!r}; only workers are supported")
            return (
                cls(
                    rank=task["index"],
                    size=len(workers),
                    local_rank=0,
                    local_size=1,
                    cross_rank=task["index"],
                    cross_size=len(workers),
                    chief_ip=workers[0].rsplit(":", 1)[0],
                ),
                tf.distribute.MultiWorkerMirroredStrategy(),
            )
        several = len(tf.config.list_physical_devices("GPU")) > 1
        strategy = tf.distribute.MirroredStrategy() if several else tf.distribute.get_strategy()
        return cls(rank=0, size=1, local_rank=0, local_size=1, cross_rank=0, cross_size=1), strategy

    @classmethod
    def _from_env(
        cls, local_size: str, cross_rank: str, cross_size: str, chief_ip: Optional[str]
    ) -> DistributedContext:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", local_size, cross_rank, cross_size)
        missing = [name for name in names if name not in os.environ]
        if missing:
            raise KeyError(f"{', '.join(missing)} not in the environment: was this started by the launcher?")
        rank, size, local, of_local, cross, of_cross = (int(os.environ[name]) for name in names)
        return cls(
            rank=rank,
            size=size,
            local_rank=local,
            local_size=of_local,
            cross_rank=cross,
            cross_size=of_cross,
            chief_ip=chief_ip or os.environ.get("DET_CHIEF_IP"),
        )

    # --- who --------------------------------------------------------------------------------------------------------

    def get_rank(self) -> int:
        """This worker among all: 0 is the chief."""
        return self.rank

    def get_local_rank(self) -> int:
        """This worker among those of its machine."""
        return self.local_rank

    def get_size(self) -> int:
        """How many workers the task has."""
        return self.size

    def get_num_agents(self) -> int:
        """How many machines the task has."""
        return self.cross_size

    # --- messages ---------------------------------------------------------------------------------------------------

    def gather(self, stuff: Any) -> Optional[List[Any]]:
        """The chief gets every worker's ``stuff``, by rank; the others get None."""
        return self._all.gather(stuff)

    def gather_local(self, stuff: Any) -> Optional[List[Any]]:
        """As ``gather``, among the workers of this machine, by local rank."""
        return self._local.gather(stuff)

    def allgather(self, stuff: Any) -> List[Any]:
        """Everybody gets every worker's ``stuff``, by rank."""
        return self._all.allgather(stuff)

    def allgather_local(self, stuff: Any) -> List[Any]:
        """As ``allgather``, among the workers of this machine, by local rank."""
        return self._local.allgather(stuff)

    def broadcast(self, stuff: Any) -> Any:
        """Everybody gets the chief's ``stuff``; what the others pass is ignored."""
        return self._all.broadcast(stuff)

    def broadcast_local(self, stuff: Any = None) -> Any:
        """As ``broadcast``, among the workers of this machine, from local rank 0."""
        return self._local.broadcast(stuff)

    def close(self) -> None:
        """Leave. Closing twice is harmless."""
        if not self._closed:
            self._closed = True
            self._local.close()
            self._all.close()

    # --- meeting ----------------------------------------------------------------------------------------------------

    def _meet(self, address: _wire.Address, force_tcp: bool) -> None:
        """All workers meet at ``address``; there the chiefs of the machines say where their own workers find them."""
        key = _key()
        names = [f"rank {rank}" for rank in range(self.size)]
        if self.rank == 0:
            self._all.chief = _wire.accept(_wire.listen(address), key, names, _TIMEOUT)
        else:
            self._all.worker = _wire.connect(address, key, self.rank, self.size, names[0], _TIMEOUT)
        inner = self._listen_inside(force_tcp) if self.local_size > 1 and self.local_rank == 0 else None
        told = self.allgather((self.cross_rank, self.local_rank, inner.getsockname() if inner else None))
        mine = sorted((local, rank) for rank, (cross, local, _) in enumerate(told) if cross == self.cross_rank)
        if [local for local, _ in mine] != list(range(self.local_size)):
            ranks = [local for local, _ in mine]
            raise ValueError(
                f"machine {self.cross_rank} has workers of local ranks {ranks}, not all of {self.local_size}"
            )
        names = [f"rank {rank}" for _, rank in mine]
        if inner is not None:
            self._local.chief = _wire.accept(inner, key, names, _TIMEOUT)
        elif self.local_size > 1:
            place = told[mine[0][1]][2]
            where: _wire.Address = Path(place) if isinstance(place, str) else (place[0], place[1])
            self._local.worker = _wire.connect(where, key, self.local_rank, self.local_size, names[0], _TIMEOUT)

    def _listen_inside(self, force_tcp: bool) -> socket.socket:
        return _wire.listen(("127.0.0.1", 0) if force_tcp else _socket_dir() / f"{os.urandom(12).hex()}.sock")


class _Group:
    """The collective calls of one star. With neither ``chief`` nor ``worker`` set the group is one worker alone."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.chief: Optional[_wire.Chief] = None
        self.worker: Optional[_wire.Channel] = None

    def gather(self, stuff: Any) -> Optional[List[Any]]:
        if self.worker:
            self.worker.send(_wire.GATHER, stuff)
            self.worker.receive(_wire.GATHER)  # the chief has everybody's: nobody runs ahead into the next call
            return None
        others = self.chief.gather(_wire.GATHER) if self.chief else []
        if self.chief:
            self.chief.send(_wire.GATHER, None)
        return [stuff, *others]

    def allgather(self, stuff: Any) -> List[Any]:
        if self.worker:
            self.worker.send(_wire.ALLGATHER, stuff)
            found: List[Any] = self.worker.receive(_wire.ALLGATHER)
            return found
        everything = [stuff, *(self.chief.gather(_wire.ALLGATHER) if self.chief else [])]
        if self.chief:
            self.chief.send(_wire.ALLGATHER, everything)
        return everything

    def broadcast(self, stuff: Any) -> Any:
        if self.worker:
            return self.worker.receive(_wire.BROADCAST)
        if self.chief:
            self.chief.send(_wire.BROADCAST, stuff)
        return stuff

    def close(self) -> None:
        for end in (self.chief, self.worker):
            if end is not None:
                end.close()


class DummyDistributedContext(DistributedContext):
    """The context of a task with one worker."""

    def __init__(self) -> None:
        super().__init__(rank=0, size=1, local_rank=0, local_size=1, cross_rank=0, cross_size=1)


def _run_on_rank_0_and_broadcast(func: Callable[[], T], distributed: Optional[DistributedContext] = None) -> T:
    result = func() if distributed is None or distributed.rank == 0 else None
    if distributed is not None:
        result = distributed.broadcast(result)
    assert result is not None
    return result


def _address(
    one_machine: bool, chief_ip: Optional[str], port: int, offset: int, who: DistributedContext
) -> _wire.Address:
    """Where rank 0 listens. All workers must come to the same answer on their own."""
    info = get_cluster_info()
    if one_machine:
        # What all workers of this group, and no other group of this user on this machine, have in common.
        names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
        common = [info.allocation_id] if info else [os.environ.get(name, "") for name in names]
        group = "\0".join([*common, str(port + offset), str(who.size)])
        return _socket_dir() / f"{hashlib.sha256(group.encode()).hexdigest()[:24]}.sock"
    if info is not None and info._ports.get("core") and port == _PORT_1:
        port = int(info._ports["core"][0])
    if who.local_size == who.size:
        return ("127.0.0.1", port + offset)
    if who.rank == 0:
        return ("::" if ":" in str(chief_ip) else "0.0.0.0", port + offset)
    return (str(chief_ip), port + offset)


def _key() -> bytes:
    info = get_cluster_info()
    secret = (info.session_token if info else "") or os.environ.get("DETHPC_DISTRIBUTED_TOKEN") or _own_secret()
    return hashlib.sha256(b"dethpc distributed\0" + secret.encode()).digest()


def _own_secret() -> str:
    """A secret of this user, made when first needed; several machines see the same one in a shared home."""
    from dethpc.client.address import home
    from dethpc.rundir.files import create_once, read_json

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
    """A directory on this machine that only this user can enter. Short, because a socket's path may have 107 bytes."""
    temporary = tempfile.gettempdir()
    path = Path(temporary if len(temporary) < 50 else "/tmp") / f"dethpc-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or path.is_symlink():
        raise RuntimeError(f"{path} is not a directory of this user alone; remove it or set TMPDIR")
    return path
