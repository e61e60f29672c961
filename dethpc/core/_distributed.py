"""Coordination between the workers of a task, on sockets of its own."""

from __future__ import annotations

import json
import os
from typing import Any, Callable, List, Optional, Protocol, Tuple, TypeVar

from dethpc.core._info import get_cluster_info

T = TypeVar("T")

_PORT_1 = int(os.environ.get("INTER_TRAIN_PROCESS_COMM_PORT_1", "12360"))
_PORT_2 = int(os.environ.get("INTER_TRAIN_PROCESS_COMM_PORT_2", str(_PORT_1 + 16)))


class DistributedContext:
    """Who the workers of this task are, and small messages between them.

    ``rank`` of ``size`` counts all workers; ``local_rank`` of ``local_size`` those of this machine; ``cross_rank`` of
    ``cross_size`` the machines. ``chief_ip`` is the address of rank 0's machine and is required with several machines.

    Every worker must make the same calls in the same order. A worker that leaves makes the others raise ConnectionError; one
    that calls something else makes them raise RuntimeError. Payloads are pickled; they are meant for file names and decisions,
    not for tensors.

    On one machine the workers meet at a UNIX socket that only their user can reach, unless ``force_tcp``. Over TCP they use
    the chief's free port that the cluster found for this attempt, or ``pub_port + port_offset``. (``pull_port`` is accepted
    for Determined's sake: one port does here.) They authenticate each other with the run's token; outside the cluster with
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
        self._chief_ip, self._force_tcp = chief_ip, force_tcp
        self._all: Group = SoloGroup()
        self._local: Group = SoloGroup()
        if self.size > 1:
            from dethpc.core._rendezvous import meet

            ports = (info._ports.get("core") if (info := get_cluster_info()) else None) or [pub_port]
            port = (int(ports[0]) if pub_port == _PORT_1 else pub_port) + port_offset
            self._all, self._local = meet(self, chief_ip, port, force_tcp)

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
        import socket

        from mpi4py import MPI

        comm = MPI.COMM_WORLD if comm is None else comm
        info = get_cluster_info()  # nodes of a test cluster may share one host
        hosts: List[str] = comm.allgather(info.agent_id if info else socket.gethostname())
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

    def _another_group(self) -> Group:
        """All workers once more, on connections of their own, for calls in another thread. All must make it in step."""
        if self.size == 1:
            return SoloGroup()
        from dethpc.core._rendezvous import meet_again

        return meet_again(self, self._chief_ip, self._force_tcp)

    def close(self) -> None:
        """Leave. Closing twice is harmless."""
        if not self._closed:
            self._closed = True
            self._local.close()
            self._all.close()


class Group(Protocol):
    """The calls that a set of workers makes together."""

    def gather(self, stuff: Any) -> Optional[List[Any]]: ...

    def allgather(self, stuff: Any) -> List[Any]: ...

    def broadcast(self, stuff: Any) -> Any: ...

    def close(self) -> None: ...


class SoloGroup:
    """A worker without others."""

    def gather(self, stuff: Any) -> Optional[List[Any]]:
        return [stuff]

    def allgather(self, stuff: Any) -> List[Any]:
        return [stuff]

    def broadcast(self, stuff: Any) -> Any:
        return stuff

    def close(self) -> None:
        pass


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
