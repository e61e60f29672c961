"""``python3 -m determined.launch.torch_distributed [[TORCH_OVERRIDES...] --] (--trial TRIAL | SCRIPT...)``: one worker per
slot, by torchrun.

Runs on every node of the attempt. A script that ends in ``.py`` is run by this Python.
"""

from __future__ import annotations

import sys
from typing import Sequence

from dethpc.core._info import ClusterInfo

from . import _monitor, _task

NAME = "torch_distributed"
INSTALL = "install it where the trial's python3 finds it: pip install torch (or dethpc[torch])"


def main(arguments: Sequence[str]) -> int:
    """Exit code of the first worker that failed, else 0. Raises: Refused."""
    parser = _task.parser(
        NAME,
        "Run a script on all slots of the trial by torchrun.",
        "TORCH_OVERRIDES",
        "options of torchrun, which replace what is chosen here",
    )
    parsed = _task.read(parser, arguments)
    info = _task.info(NAME)
    _task.require("torch", INSTALL)
    env = _task.environment(info, USE_TORCH_DISTRIBUTED="True")
    # torchrun ends its workers at TERM, and with them the checkpoint that TERM asks for.
    return _monitor.run([_monitor.Worker(command(info, parsed.overrides, parsed.script), env, shielded=True)])


def command(info: ClusterInfo, overrides: Sequence[str], script: Sequence[str]) -> list[str]:
    """The torchrun of this node. Every node knows the chief's address and port, so that nothing needs to be looked up."""
    chosen = {
        "nnodes": str(len(info.container_addrs)),
        "nproc_per_node": str(max(1, len(info.slot_ids))),
        "node_rank": str(info.container_rank),
        "master_addr": _task.chief_address(info),
        "master_port": str(_task.port(info)),
        "max_restarts": "0",
    }
    options = [part for name, value in chosen.items() for part in (f"--{name}", value)]
    worker = ["--module", f"{__package__}.wrap_rank", "RANK", "--", *script]
    return [sys.executable, "-m", "torch.distributed.run", *options, *overrides, *worker]


if __name__ == "__main__":
    _task.main(NAME, main)
