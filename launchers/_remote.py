"""Starts a command on another node of the attempt without ssh.

``python3 -m dethpc.launch._remote NAME... -- NAME COMMAND...`` stands in for ``ssh NAME COMMAND...``. The launcher of every node
but the chief keeps a connection to the chief's (``serve``); the chief's relays the command there (``Relay``).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from types import TracebackType
from typing import Any, Iterator, Mapping, Optional, Sequence

from dethpc.core._info import ClusterInfo
from dethpc.exec.link import TIMEOUT, Link
from dethpc.rundir.secret import Secret

from . import _monitor, _signals, _task

KEEPER, CALLER = "keeper", "caller"
CALL_SECONDS = 120.0  # for a node's launcher to be there once mpirun wants it
# Where mpirun's daemon keeps its session: Open MPI 4's name, and 5's.
SESSION_BASES = ("OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base")


class Relay:
    """Context manager on the chief: passes callers' commands to the nodes' keepers. Leaving it lets idle keepers go."""

    def __init__(self, info: ClusterInfo) -> None:
        self._nodes = len(info.container_addrs)
        self._secret = _secret(info)
        self._server = socket.create_server(("", _task.port(info)), backlog=1024)
        self._keepers: dict[int, Link] = {}
        self._come = threading.Condition()

    def __enter__(self) -> Relay:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._server.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._server.close()
        with self._come:
            for keeper in self._keepers.values():
                keeper.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(Link(sock),), daemon=True).start()

    def _talk(self, link: Link) -> None:
        link.challenge()
        hello = link.next(time.monotonic() + TIMEOUT)
        caller = link.caller(self._secret, hello)
        if caller is None or not 0 < caller.rank < self._nodes:
            link.close()
            return
        role, rank = caller
        link.welcome(self._secret, hello)
        link.sock.settimeout(None)
        if role == KEEPER:
            with self._come:
                self._keepers[rank] = link
                self._come.notify_all()
        elif role == CALLER:
            link.send(self._pass_on(rank, link.next()))
            link.close()

    def _pass_on(self, rank: int, order: dict[str, Any]) -> dict[str, Any]:
        with self._come:
            if not self._come.wait_for(lambda: rank in self._keepers, CALL_SECONDS):
                return {"error": f"the launcher of node {rank} has not come in {CALL_SECONDS:g} s"}
            keeper = self._keepers[rank]
        keeper.send(order)
        return keeper.next() or {"error": f"node {rank} was lost"}


def serve(info: ClusterInfo, env: Mapping[str, str]) -> int:
    """Wait for the chief's command and run it in ``env``; its exit code, or that of the first worker below it that failed.
    0 when the chief has ended without one."""
    while True:
        chief = _connect(info, KEEPER, info.container_rank)
        if chief is not None:
            break
        time.sleep(0.1)  # no time-out: should the chief fail, this node is ended too
    order = chief.next()
    if "run" not in order:
        return 0
    with _session(env) as own:
        code = _monitor.run([_monitor.Worker(["/bin/sh", "-c", str(order["run"])], own, shielded=True)])
    chief.send({"code": code})
    chief.close()
    return code


@contextlib.contextmanager
def _session(env: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """``env`` with a new directory for the session of the daemon that runs in it, removed when it has ended.

    All daemons of one mpirun take the same path below their /tmp, and one of them fails when two nodes have that /tmp in common
    and make the path at the same moment. What a daemon that was killed has left in /tmp is out of their way, too.
    """
    base = tempfile.mkdtemp(prefix="mpi-")
    try:
        yield {**env, **dict.fromkeys(SESSION_BASES, base)}
    finally:
        shutil.rmtree(base, ignore_errors=True)


def call(info: ClusterInfo, rank: int, command: str) -> int:
    """Run ``command`` by a shell on node ``rank``; its exit code, 255 when it did not come to that."""
    if rank == info.container_rank:
        with _session(os.environ) as own, _signals.blocked():
            return subprocess.call(["/bin/sh", "-c", command], env=own)
    chief = _connect(info, CALLER, rank)
    if chief is None:
        sys.stderr.write("ERROR: the chief's launcher does not answer\n")
        return 255
    chief.send({"run": command})
    answer = chief.next()
    if "code" not in answer:
        sys.stderr.write(f"ERROR: {answer.get('error') or 'the launcher has ended'}\n")
        return 255
    return int(answer["code"])


def _connect(info: ClusterInfo, role: str, rank: int) -> Optional[Link]:
    """A proved connection to the chief's relay, or None."""
    secret = _secret(info)
    try:
        link = Link(socket.create_connection((info.container_addrs[0], _task.port(info)), timeout=5))
    except OSError:
        return None
    if not link.introduce(secret, role, rank):
        return None
    link.sock.settimeout(None)
    return link


def _secret(info: ClusterInfo) -> Secret:
    return Secret(info._worker_secret, f"launch {info.allocation_id}")


def main(arguments: Sequence[str]) -> int:
    """What mpirun runs in place of ssh."""
    _signals.protect()
    split = list(arguments).index("--")
    names, name, command = arguments[:split], arguments[split + 1], " ".join(arguments[split + 2 :])
    if name not in names:
        sys.stderr.write(f"ERROR: {name} is no node of this task\n")
        return 255
    return call(_task.info("mpi"), list(names).index(name), command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
