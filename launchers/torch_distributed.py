"""``python3 -m determined.launch.torch_distributed [[TORCH_OVERRIDES...] --] (--trial TRIAL | SCRIPT...)``: one worker per slot, by
torchrun.

Runs on every node of the attempt. A script that ends in ``.py`` is run by this Python.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from typing import Optional, Sequence

from dethpc.core._info import ClusterInfo, get_cluster_info

from . import _monitor

USAGE = "%(prog)s [[TORCH_OVERRIDES...] --] (--trial TRIAL | SCRIPT...)"


def main(arguments: Sequence[str]) -> int:
    """Exit code of the first worker that failed, else 0."""
    overrides, script = parse(arguments)
    info = get_cluster_info()
    if info is None:
        sys.stderr.write(
            "torch_distributed: this is not a task of the cluster. Make it the entrypoint of an experiment, "
            "or start the script itself with torchrun.\n"
        )
        return 1
    if importlib.util.find_spec("torch") is None:
        sys.stderr.write(f"torch_distributed: PyTorch is not installed for {sys.executable}\n")
        return 1
    return _monitor.run([command(info, overrides, script)], environment(info))


def parse(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Overrides for torchrun, and the script with its arguments."""
    arguments = list(arguments)
    overrides: list[str] = []
    if "--" in arguments:
        split = arguments.index("--")
        overrides, arguments = arguments[:split], arguments[split + 1 :]
    parser = argparse.ArgumentParser(
        prog="torch_distributed",
        usage=USAGE,
        description="Run a script on all slots of the trial by torchrun.",
        epilog="TORCH_OVERRIDES are options of torchrun; they replace what is chosen here and end with --.",
    )
    parser.add_argument(
        "--trial", metavar="TRIAL", help="module:Class, a trial class to train by the configuration alone"
    )
    parser.add_argument(
        "script", metavar="SCRIPT...", nargs=argparse.REMAINDER, help="the training script, with its arguments"
    )
    parsed = parser.parse_args(arguments)
    if parsed.trial is not None:
        if parsed.script:
            parser.error(f"--trial takes no further arguments: {' '.join(parsed.script)}")
        return overrides, trial_command(parsed.trial)
    if not parsed.script:
        parser.error("there is no script to run")
    script: list[str] = parsed.script
    return overrides, [sys.executable, *script] if script[0].endswith(".py") else script


def trial_command(trial: str) -> list[str]:
    """What a worker runs for ``--trial``."""
    return [sys.executable, "-m", "dethpc.exec.harness", trial]


def command(info: ClusterInfo, overrides: Sequence[str], script: Sequence[str]) -> list[str]:
    """The torchrun of this node. Every node knows the chief's address and port, so that nothing needs to be looked up."""
    nodes = len(info.container_addrs)
    port = os.environ.get("C10D_PORT") or str((info._ports.get("torch") or [29400])[0])
    chosen = {
        "nnodes": str(nodes),
        "nproc_per_node": str(max(1, len(info.slot_ids))),
        "node_rank": str(info.container_rank),
        "master_addr": "127.0.0.1" if nodes == 1 else info.container_addrs[0],
        "master_port": port,
        "max_restarts": "0",
    }
    options = [part for name, value in chosen.items() for part in (f"--{name}", value)]
    if _knows("--signals-to-handle"):
        # torchrun dies of TERM by default, and with it the checkpoint that TERM asks for.
        options += ["--signals-to-handle", "SIGQUIT"]
    worker = ["--module", f"{__package__}.wrap_rank", "RANK", "--", *script]
    return [sys.executable, "-m", "torch.distributed.run", *options, *overrides, *worker]


def environment(info: ClusterInfo) -> dict[str, str]:
    env = {**os.environ, "USE_TORCH_DISTRIBUTED": "True", "DET_CHIEF_IP": info.container_addrs[0]}
    interface: Optional[str] = os.environ.get("DET_INTER_NODE_NETWORK_INTERFACE")
    if interface:
        env.setdefault("GLOO_SOCKET_IFNAME", interface)
        env.setdefault("NCCL_SOCKET_IFNAME", interface)
    return env


def _knows(option: str) -> bool:
    """Whether the installed torchrun has ``option``; read, since importing torch takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    try:
        with open(os.path.join(os.path.dirname(spec.origin), "distributed", "run.py"), encoding="utf-8") as file:
            return option in file.read()
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
