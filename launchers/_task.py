"""Command line of launchers, and the task that they run in."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from typing import Callable, NamedTuple, NoReturn, Optional, Sequence

from dethpc.core._info import ClusterInfo, get_cluster_info
from dethpc.domain.entrypoint import is_trial_class
from dethpc.rundir.files import create_once
from dethpc.rundir.layout import AttemptDir

HARNESS = "dethpc.exec.harness"


class Refused(Exception):
    """The launcher cannot do what it is asked to, and could not if it was asked again."""


class CommandLine(NamedTuple):
    """A launcher's command line: options for the program that it wraps, its own options, and the workers' command."""

    overrides: list[str]
    own: argparse.Namespace
    script: list[str]


class Parser(argparse.ArgumentParser):
    """Raises ``Refused`` where argparse would end the process."""

    def error(self, message: str) -> NoReturn:
        raise Refused(f"{message} (see {self.prog} -h)")


def parser(name: str, description: str, overrides: str = "", meaning: str = "") -> argparse.ArgumentParser:
    """The command line of launcher ``name``. ``overrides`` names the options that stand before ``--``."""
    before = f"[[{overrides}...] --] " if overrides else ""
    parser = Parser(
        prog=name,
        usage=f"%(prog)s {before}(--trial TRIAL | SCRIPT...)",
        description=description,
        epilog=f"{overrides} are {meaning}; they must end with --." if overrides else None,
    )
    parser.add_argument(
        "--trial",
        metavar="TRIAL",
        help="a Trial class to train, as module:Class or path/to/file.py:Class, instead of SCRIPT",
    )
    parser.add_argument(
        "script", metavar="SCRIPT...", nargs=argparse.REMAINDER, help="the training script, with its arguments"
    )
    return parser


def read(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> CommandLine:
    """What stands before the first ``--`` are overrides. Raises: Refused."""
    rest = list(arguments)
    overrides: list[str] = []
    if "--" in rest:
        split = rest.index("--")
        overrides, rest = rest[:split], rest[split + 1 :]
    own = parser.parse_args(rest)
    script: list[str] = own.script
    if own.trial is not None:
        if script:
            parser.error(f"--trial takes no further arguments: {' '.join(script)}")
        return CommandLine(overrides, own, [sys.executable, "-m", HARNESS, own.trial])
    if not script:
        parser.error("there is no script to run")
    if len(script) == 1 and is_trial_class(script[0]):  # as entrypoints of old name the class
        return CommandLine(overrides, own, [sys.executable, "-m", HARNESS, *script])
    return CommandLine(overrides, own, command(script))


def command(script: Sequence[str]) -> list[str]:
    """A script that ends in .py is run by this Python."""
    return [sys.executable, *script] if script[0].endswith(".py") else list(script)


def info(name: str) -> ClusterInfo:
    """What the cluster says of this task. Raises: Refused outside the cluster."""
    info = get_cluster_info()
    if info is None:
        raise Refused(
            "this is not a task of the cluster. Make the launcher the entrypoint of an experiment, "
            f"or start the script itself without {name}"
        )
    return info


def require(module: str, advice: str) -> None:
    """Raises: Refused when ``module`` is not installed; ``advice`` says how to get it."""
    if importlib.util.find_spec(module) is None:
        raise Refused(f"{module} is not installed for {sys.executable}; {advice}")


def port(info: ClusterInfo) -> int:
    """A port that is free on the chief's node and kept so for this task."""
    return int(os.environ.get("C10D_PORT") or (info._ports.get("torch") or [29400])[0])


def chief_address(info: ClusterInfo) -> str:
    return "127.0.0.1" if len(info.container_addrs) == 1 else info.container_addrs[0]


def environment(info: ClusterInfo, **more: str) -> dict[str, str]:
    """This process's environment with what all launchers add to it."""
    env = {**os.environ, "DET_CHIEF_IP": info.container_addrs[0], **more}
    interface = os.environ.get("DET_INTER_NODE_NETWORK_INTERFACE")
    if interface:
        env.setdefault("GLOO_SOCKET_IFNAME", interface)
        env.setdefault("NCCL_SOCKET_IFNAME", interface)
    return env


class Slot(NamedTuple):
    """One worker's place among all. ``cross_rank`` of ``cross_size`` counts the nodes that have this local rank."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


def slots(info: ClusterInfo) -> list[Slot]:
    """The places of this node's workers: one for each slot, and one on a node without slots."""
    counts = [max(1, count) for count in info.container_slot_counts]
    node, here = info.container_rank, counts[info.container_rank]
    first, size = sum(counts[:node]), sum(counts)
    return [
        Slot(
            first + local,
            size,
            local,
            here,
            sum(count > local for count in counts[:node]),
            sum(count > local for count in counts),
        )
        for local in range(here)
    ]


# --- the first failure, for the end report -------------------------------------------------------------------------


def forget_failure() -> None:
    """Whatever an earlier launcher of this task wrote is about other workers."""
    attempt = _attempt()
    if attempt is not None:
        try:
            attempt[0].failure(attempt[1]).unlink()
        except OSError:
            pass


def note_failure(
    phase: str,
    at: float,
    *,
    rank: Optional[int] = None,
    code: Optional[int] = None,
    message: str = "",
    secondary: bool = False,
) -> None:
    """Leave word of the first failure on this node, at ``at`` in epoch seconds: a worker's (``rank``, exit ``code``) in
    phase ``train``, or why nothing was started, in phase ``launch``. ``secondary``: some other worker's failure seems to
    be the cause. Never raises."""
    attempt = _attempt()
    if attempt is None:
        return
    failure = {"phase": phase, "rank": rank, "exit_code": code, "message": message, "secondary": secondary}
    try:
        create_once(attempt[0].failure(attempt[1]), {**failure, "at": at})
    except OSError as error:
        sys.stderr.write(f"WARNING: the failure could not be noted: {error}\n")


def asked_to_stop() -> bool:
    """Whether the attempt has been asked to checkpoint and end; False outside an attempt."""
    attempt = _attempt()
    try:
        return attempt is not None and attempt[0].stop.exists()
    except OSError:
        return True  # the file system hiccups: nobody can tell


def _attempt() -> Optional[tuple[AttemptDir, int]]:
    try:
        info = get_cluster_info()
    except RuntimeError:
        return None
    if info is None or info._attempt_dir is None:
        return None
    return AttemptDir(info._attempt_dir), info.container_rank


def main(name: str, launch: Callable[[Sequence[str]], int]) -> NoReturn:
    """Run a launcher as a program: its exit code, or 2 and one line when it refuses."""
    from . import _signals

    _signals.protect()
    try:
        code = launch(sys.argv[1:])
    except Refused as refusal:
        message = f"{name}: {refusal}"
        sys.stderr.write(f"ERROR: {message}\n")
        note_failure("launch", time.time(), code=2, message=message)
        code = 2
    sys.exit(code)
