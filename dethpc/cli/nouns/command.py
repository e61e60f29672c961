"""``det command``: run a program on nodes of the cluster."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import sys
import termios
from collections.abc import Sequence
from typing import Any

import click

from dethpc.cli import launched, output
from dethpc.cli.group import LazyGroup
from dethpc.cli.launched import Noun

COMMAND = Noun("command", "commands", "command")


@click.group(cls=LazyGroup, aliases={"ls": "list"})
def command() -> None:
    """Run programs on nodes of the cluster, as jobs in the queue."""


@command.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("entrypoint", metavar="[ENTRYPOINT...]", nargs=-1, type=click.UNPROCESSED)
@launched.launch_options
def run(entrypoint: Sequence[str], detach: bool, **options: Any) -> None:
    """Run a program, print what it prints, and exit with its exit code.

    A single word, as in 'make test && ./report', is a line of the shell; several words are a program and its arguments. Options of
    det come before it.
    """
    if (
        not entrypoint
        and options["config_file"] is None
        and options["template"] is None
        and not any(o.startswith("entrypoint=") for o in options["overrides"])
    ):
        raise click.UsageError("What shall run? Such as: det command run nvidia-smi")
    if _has_input():
        output.say(
            "det: note: the command cannot read standard input; send a file with -c, or name one that its node sees"
        )
    answer = launched.launch(COMMAND, options, entrypoint=list(entrypoint))
    task_id = answer["command"]["id"]
    if detach:
        output.echo(task_id)
        return
    output.say(f"Launched command (id: {task_id})")
    row = launched.follow(COMMAND, task_id)
    if row["exitStatus"] != "success":
        output.say(f"command {task_id} has ended: {row['exitStatus']}")
        raise click.exceptions.Exit(row.get("exitCode") or 1)


def _has_input() -> bool:
    """Whether somebody has redirected a file, or written into a pipe, for the program to read."""
    with contextlib.suppress(OSError, ValueError):
        mode = os.fstat(sys.stdin.fileno()).st_mode
        if stat.S_ISREG(mode):
            return os.fstat(sys.stdin.fileno()).st_size > 0
        if stat.S_ISFIFO(mode):
            waiting = fcntl.ioctl(sys.stdin.fileno(), termios.FIONREAD, bytes(4))
            return int.from_bytes(waiting, sys.byteorder) > 0
    return False


launched.add_commands(command, COMMAND)
