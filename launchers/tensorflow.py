"""``python3 -m determined.launch.tensorflow [--port PORT] [--] SCRIPT...``: one worker per node, with TF_CONFIG on several.

TensorFlow drives all devices of a node from one process: MirroredStrategy on one node, MultiWorkerMirroredStrategy on several.
"""

from __future__ import annotations

import json
from typing import Optional, Sequence

from dethpc.core._info import ClusterInfo

from . import _monitor, _task

NAME = "tensorflow"


def main(arguments: Sequence[str]) -> int:
    """Exit code of this node's worker. Raises: Refused."""
    parser = _task.parser(NAME, "Run a script on every node of the trial, with TF_CONFIG where there are several.")
    parser.usage = "%(prog)s [--port PORT] [--] (--trial TRIAL | SCRIPT...)"
    parser.add_argument("--port", type=int, help="where the workers listen for each other (default: a free one)")
    arguments = list(arguments)
    if "--" in arguments:  # it only separates: the options before it are this launcher's own
        arguments.remove("--")
    command = _task.read(parser, arguments)
    info = _task.info(NAME)
    env = _task.environment(info)
    if len(info.container_addrs) == 1:
        return _monitor.run([_monitor.Worker(command.script, env)])
    env["TF_CONFIG"] = json.dumps(config(info, command.own.port))
    return _monitor.run([_monitor.ranked(info.container_rank, command.script, env)])


def config(info: ClusterInfo, port: Optional[int] = None) -> dict[str, object]:
    """TF_CONFIG of this node. Nodes that share one address (of a test cluster, say) get ports side by side."""
    first, addresses = port or _task.port(info), info.container_addrs
    workers = [f"{address}:{first + addresses[:rank].count(address)}" for rank, address in enumerate(addresses)]
    return {"cluster": {"worker": workers}, "task": {"type": "worker", "index": info.container_rank}}


if __name__ == "__main__":
    _task.main(NAME, main)
