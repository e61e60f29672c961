"""``python3 -m determined.launch.deepspeed [[DEEPSPEED_ARGS...] --] SCRIPT...``: one worker per slot, for DeepSpeed.

Runs on every node of the attempt, which starts its own workers with the variables that DeepSpeed's launcher would set: no ssh,
no host file, no pdsh.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import Sequence

from dethpc.core._info import ClusterInfo

from . import _monitor, _task

NAME = "deepspeed"
INSTALL = "install it where the trial's python3 finds it: pip install deepspeed (or dethpc[deepspeed])"
# What DeepSpeed's own launcher needs to reach other nodes and to choose among them. The scheduler has done both.
_IDLE = ("no_python", "no_local_rank", "no_ssh", "no_ssh_check", "force_multi", "save_pid", "quiet")
_IDLE_WITH_VALUE = ("hostfile", "launcher", "launcher_args", "ssh_port", "venv_script", "log_level", "node_rank")


def main(arguments: Sequence[str]) -> int:
    """Exit code of the first worker that failed, else 0. Raises: Refused."""
    parser = _task.parser(
        NAME,
        "Run a script on all slots of the trial, with the variables of the deepspeed launcher.",
        "DEEPSPEED_ARGS",
        "options of the deepspeed command: --master_addr, --master_port, --num_gpus, --bind_cores_to_rank and --module "
        "have their effect, those about hosts and ssh have none",
    )
    command = _task.read(parser, arguments)
    options = read_options(command.overrides)
    info = _task.info(NAME)
    _task.require("deepspeed", INSTALL)
    return _monitor.run(workers(info, options, command.script))


def read_options(overrides: Sequence[str]) -> argparse.Namespace:
    """Options of the ``deepspeed`` command. Raises: Refused."""
    parser = _task.Parser(prog="deepspeed", add_help=False, allow_abbrev=False)
    parser.add_argument("--master_addr")
    parser.add_argument("--master_port", type=int)
    parser.add_argument("--num_gpus", "--num_accelerators", type=int, default=-1)
    parser.add_argument("--num_nodes", type=int, default=-1)
    parser.add_argument("--module", action="store_true")
    parser.add_argument("--bind_cores_to_rank", action="store_true")
    for name in _IDLE:
        parser.add_argument(f"--{name}", action="store_true")
    for name in _IDLE_WITH_VALUE:
        parser.add_argument(f"--{name}", *(["-H"] if name == "hostfile" else []))
    options = parser.parse_args(list(overrides))
    for name in (*_IDLE, *_IDLE_WITH_VALUE):
        if getattr(options, name) and name not in ("no_python", "no_local_rank", "no_ssh", "no_ssh_check", "quiet"):
            sys.stderr.write(f"WARNING: {NAME}: --{name} has no effect: the nodes and slots are the scheduler's\n")
    return options


def workers(info: ClusterInfo, options: argparse.Namespace, script: Sequence[str]) -> list[_monitor.Worker]:
    """This node's workers."""
    nodes = len(info.container_addrs)
    if options.num_nodes not in (-1, nodes):
        raise _task.Refused(f"--num_nodes {options.num_nodes}: the trial has {nodes}; change resources.slots_per_trial")
    places = _task.slots(info)
    if options.num_gpus not in (-1, places[0].local_size):
        raise _task.Refused(
            f"--num_gpus {options.num_gpus}: there are {places[0].local_size} slots on this node; "
            "change resources.slots_per_trial"
        )
    if options.module:
        script = [sys.executable, "-m", *(script[1:] if script[0] == sys.executable else script)]
    env = _task.environment(
        info,
        USE_DEEPSPEED="1",
        MASTER_ADDR=options.master_addr or _task.chief_address(info),
        MASTER_PORT=str(options.master_port or _task.port(info)),
        WORLD_SIZE=str(places[0].size),
        LOCAL_SIZE=str(places[0].local_size),
        LOCAL_WORLD_SIZE=str(places[0].local_size),
        CROSS_RANK=str(info.container_rank),
        CROSS_SIZE=str(nodes),
    )
    cores = _cores(len(places)) if options.bind_cores_to_rank else {}
    return [
        _monitor.ranked(
            place.rank,
            [*_bound(cores, place.local_rank), *script],
            {**env, "RANK": str(place.rank), "LOCAL_RANK": str(place.local_rank), **_threads(cores)},
        )
        for place in places
    ]


def _cores(workers: int) -> dict[int, list[int]]:
    """This node's cores, shared out among the workers."""
    mine = sorted(os.sched_getaffinity(0))
    share = max(1, len(mine) // workers)
    return {worker: mine[worker * share : (worker + 1) * share] or mine for worker in range(workers)}


def _bound(cores: dict[int, list[int]], local_rank: int) -> list[str]:
    if not cores:
        return []
    if shutil.which("taskset") is None:
        raise _task.Refused("--bind_cores_to_rank needs the program taskset (of util-linux), which is not on PATH")
    return ["taskset", "--cpu-list", ",".join(map(str, cores[local_rank]))]


def _threads(cores: dict[int, list[int]]) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(len(cores[0]))} if cores else {}


if __name__ == "__main__":
    _task.main(NAME, main)
