"""``python3 -m determined.launch.horovod [[HVD_OVERRIDES...] --] SCRIPT...``: one worker per slot, for Horovod.

Runs on every node of the attempt, which starts its own workers with the variables that horovodrun would set; the chief also
serves Horovod's rendezvous. So there is no ssh. With ``--mpi`` among the overrides, mpirun starts the workers instead.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import importlib.util
import io
import os
import pathlib
import socket
import struct
import sys
import threading
import time
from typing import Any, Iterator, Mapping, Optional, Sequence

from dethpc.core._info import ClusterInfo

from . import _monitor, _task, mpi, torch_distributed

NAME = "horovod"
INSTALL = (
    "build it where the trial's python3 finds it, beside torch: HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITH_PYTORCH=1 "
    "pip install --no-build-isolation horovod (for a torch of today with a CXX that says -std=c++20: docs/launchers.md); "
    "or train by determined.launch.torch_distributed"
)
# Workers whose nodes load their software at different speeds must not give each other up after Horovod's 30 s.
GLOO_TIMEOUT_SECONDS = "600"
_ELASTIC = ("min_num_proc", "max_num_proc", "host_discovery_script")
_IDLE = ("hosts", "hostfile", "ssh_port", "ssh_identity_file", "output_filename", "mpi_args", "binding_args")
_SIOCGIFADDR = 0x8915


def main(arguments: Sequence[str], name: str = NAME) -> int:
    """Exit code of the first worker that failed, else 0. Raises: Refused."""
    parser = _task.parser(
        name,
        "Run a script on all slots of the trial with Horovod.",
        "HVD_OVERRIDES",
        "options of horovodrun, which replace what the experiment's optimizations section says; --mpi lets mpirun start "
        "the workers",
    )
    parser.add_argument("--autohorovod", action="store_true", help=argparse.SUPPRESS)
    command = _task.read(parser, arguments)
    info = _task.info(name)
    if (command.own.autohorovod or name == "autohorovod") and sum(info.container_slot_counts) <= 1:
        return _monitor.run([_monitor.Worker(command.script, _task.environment(info))])
    if name == "autohorovod" and command.own.trial and not _serves_torch():  # a trial class trains either way
        sys.stderr.write(
            f"WARNING: {name}: Horovod is not installed for PyTorch, so torchrun starts the workers, which train the same\n"
        )
        return torch_distributed.main(["--trial", command.own.trial])
    _task.require("horovod", INSTALL)
    places = _task.slots(info)
    options = read_options(command.overrides, places[0].size)
    if options.num_proc != places[0].size:
        raise _task.Refused(f"-np {options.num_proc}: the trial has {places[0].size} slots; change slots_per_trial")
    env = {**_tuning(info), **_task.environment(info, USE_HOROVOD="1"), **_from_options(options)}
    if options.use_mpi:
        return mpi.run(info, [], command.script, env)
    env.setdefault("HOROVOD_GLOO_TIMEOUT_SECONDS", GLOO_TIMEOUT_SECONDS)
    env.update(
        HOROVOD_CONTROLLER="gloo",
        HOROVOD_CPU_OPERATIONS="gloo",
        HOROVOD_GLOO_RENDEZVOUS_ADDR=_task.chief_address(info),
        HOROVOD_GLOO_RENDEZVOUS_PORT=str(_task.port(info)),
        HOROVOD_HOSTNAME=_node_name(info.container_rank),
    )
    interface = ",".join(options.nics or ()) or env.get("GLOO_SOCKET_IFNAME") or find_interface(info)
    if interface:
        env.setdefault("HOROVOD_GLOO_IFACE", interface.split(",")[0])
    with _rendezvous(info):
        return _monitor.run([_monitor.ranked(place.rank, command.script, {**env, **_place(place)}) for place in places])


def read_options(overrides: Sequence[str], size: int) -> argparse.Namespace:
    """What horovodrun itself reads from ``overrides``, for ``size`` workers. Raises: Refused."""
    from horovod.runner import launch  # type: ignore[import-not-found,import-untyped,unused-ignore]

    stderr = io.StringIO()
    before, sys.argv = sys.argv, ["horovodrun", "-np", str(size), *overrides]
    try:
        with contextlib.redirect_stderr(stderr):
            options: argparse.Namespace = launch.parse_args()
    except SystemExit as ended:
        if not ended.code:
            raise  # --version and the like
        raise _task.Refused(stderr.getvalue().strip().rpartition("\n")[2]) from None
    except (OSError, ValueError) as error:
        raise _task.Refused(f"horovodrun: {error}") from None
    finally:
        sys.argv = before
    if options.command:
        raise _task.Refused(f"horovodrun does not know {options.command[0]!r}; its options must end with --")
    if any(getattr(options, name, None) is not None for name in _ELASTIC):
        raise _task.Refused("elastic Horovod is not supported: a trial keeps the slots that it has")
    if getattr(options, "use_jsrun", False):
        raise _task.Refused("--jsrun is not supported; the workers are started without it")
    for name in _IDLE:
        if getattr(options, name, None):
            sys.stderr.write(
                f"WARNING: {NAME}: --{name.replace('_', '-')} has no effect: the nodes and slots are the scheduler's\n"
            )
    return options


def _serves_torch() -> bool:
    """Whether there is a Horovod that was built with PyTorch. To import it would take seconds."""
    spec = importlib.util.find_spec("horovod")
    folders = (spec and spec.submodule_search_locations) or ()
    return any(any(pathlib.Path(folder, "torch").glob("mpi_lib*.so")) for folder in folders)


def _from_options(options: argparse.Namespace) -> dict[str, str]:
    from horovod.runner.common.util import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
        config_parser,
    )

    variables: dict[str, str] = config_parser.set_env_from_args({}, options)
    unasked = config_parser.set_env_from_args({}, read_options([], options.num_proc))
    return {name: value for name, value in variables.items() if unasked.get(name) != value}


def _tuning(info: ClusterInfo) -> dict[str, str]:
    """The experiment's ``optimizations`` in Horovod's variables; threshold in MB there, in bytes here."""
    optimizations: Mapping[str, Any] = info.trial._config.get("optimizations") or {}
    env = {
        "HOROVOD_CACHE_CAPACITY": "1024",
        "HOROVOD_HIERARCHICAL_ALLREDUCE": "0",
        "HOROVOD_HIERARCHICAL_ALLGATHER": "0",
    }
    if optimizations.get("auto_tune_tensor_fusion"):
        return {**env, "HOROVOD_AUTOTUNE": "1"}
    if optimizations.get("tensor_fusion_threshold") is not None:
        env["HOROVOD_FUSION_THRESHOLD"] = str(int(optimizations["tensor_fusion_threshold"]) << 20)
    if optimizations.get("tensor_fusion_cycle_time") is not None:
        env["HOROVOD_CYCLE_TIME"] = str(optimizations["tensor_fusion_cycle_time"])
    return env


def _place(place: _task.Slot) -> dict[str, str]:
    return {f"HOROVOD_{name.upper()}": str(value) for name, value in place._asdict().items()}


def _node_name(rank: int) -> str:
    return f"node-{rank}"  # several nodes of a test cluster may share a host's name


@contextlib.contextmanager
def _rendezvous(info: ClusterInfo) -> Iterator[None]:
    """Horovod's key-value server, on the chief; elsewhere wait until it is there, since workers try it for a second only."""
    if info.container_rank:
        _wait_for(info.container_addrs[0], _task.port(info))
        yield
        return
    from horovod.runner.common.util.hosts import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
        HostInfo,
        get_host_assignments,
    )
    from horovod.runner.http.http_server import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
        RendezvousHandler,
        RendezvousHTTPServer,
    )

    counts = [max(1, count) for count in info.container_slot_counts]
    plan = get_host_assignments([HostInfo(_node_name(i), count) for i, count in enumerate(counts)], sum(counts))
    at = "127.0.0.1" if len(counts) == 1 else ""
    with RendezvousHTTPServer((at, _task.port(info)), RendezvousHandler, False) as server:
        server.init(plan)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()


def _wait_for(address: str, port: int) -> None:
    """Return when somebody listens there. There is no time-out: should the chief fail, this node is ended too."""
    while True:
        try:
            socket.create_connection((address, port), timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)


def find_interface(info: ClusterInfo) -> Optional[str]:
    """The network interface at which the nodes reach each other; None when it cannot be told."""
    chief = info.container_addrs[0]
    try:
        address = "127.0.0.1" if len(info.container_addrs) == 1 else _own_address(chief, info.container_rank == 0)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            for _, name in socket.if_nameindex():
                if _address_of(probe, name) == address:
                    return name
    except OSError:
        pass
    return None


def _own_address(chief: str, chiefs: bool) -> str:
    if chiefs:
        return socket.gethostbyname(chief)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        route.connect((chief, 9))  # sends nothing
        return str(route.getsockname()[0])


def _address_of(probe: socket.socket, interface: str) -> str:
    request = struct.pack("256s", os.fsencode(interface)[:15])
    try:
        return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)[20:24])
    except OSError:
        return ""


if __name__ == "__main__":
    _task.main(NAME, main)
