"""``det shell``: shells on nodes of the cluster, of their own or beside what runs there."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

import click

from dethpc.cli import launched, output
from dethpc.cli.connect import connect
from dethpc.cli.group import LazyGroup
from dethpc.cli.launched import Noun

SHELL = Noun("shell", "shells", "shell")
ssh_options = click.argument("ssh_opts", metavar="[SSH_OPTION...]", nargs=-1, type=click.UNPROCESSED)
_OPTIONS_OF_SSH = {"ignore_unknown_options": True, "allow_interspersed_args": False}


class Place(NamedTuple):
    """An attempt that runs: the scheduler's ``job``, its nodes, and its directory, which this machine sees."""

    job: str
    nodes: Sequence[str]
    attempt: Path


@click.group(cls=LazyGroup, aliases={"ls": "list", "show-ssh-command": "show_ssh_command"})
def shell() -> None:
    """Get shells on nodes of the cluster."""


@shell.command()
@launched.launch_options
@output.as_json
def start(detach: bool, as_json: bool, **options: Any) -> None:
    """Hold a node, and open a shell on it. The shell's end leaves the task running: det shell kill ends it."""
    answer = launched.launch(SHELL, options)
    if as_json:
        output.print_json(_without_key(answer))
        return
    task_id = answer["shell"]["id"]
    if detach:
        output.echo(task_id)
        return
    output.say(
        f"Launched shell (id: {task_id}). det shell kill {task_id} ends it; det shell open {task_id} opens another."
    )
    launched.wait(SHELL, task_id, path=None)
    _open(_task_place(task_id), task_id, "", ())


@shell.command("open", context_settings=_OPTIONS_OF_SSH)
@click.option("--trial", "trial_id", type=int, metavar="ID", help="Beside this running trial, in its environment.")
@click.option("--node", default="", metavar="NAME", help="On this node of several [default: the first].")
@click.option("--ssh", "by_ssh", is_flag=True, help="By SSH through the master, even where srun is here.")
@click.option("--show-ssh-command", is_flag=True, help="Print the command for SSH instead, as show_ssh_command does.")
@click.argument("arguments", metavar="[ID] [COMMAND...]", nargs=-1, type=click.UNPROCESSED)
def open_shell(
    trial_id: Optional[int], node: str, by_ssh: bool, show_ssh_command: bool, arguments: Sequence[str]
) -> None:
    """Open a shell in the environment of a shell task, or of a trial (without ID), or run COMMAND there.

    Where DETHPC_HOME is seen, it is a step of the job (srun --overlap), or a process of this machine without Slurm. Elsewhere it is
    SSH through the master.
    """
    if trial_id is not None:
        _open(_trial_place(trial_id), "", node, _command(arguments))
        return
    if not arguments:
        raise click.UsageError("Give the id of a shell, or --trial ID.")
    from dethpc.client.nouns import tasks

    full = tasks.named(connect(), SHELL.plural, arguments[0])
    if show_ssh_command:
        output.echo(shlex.join([*_Ssh(full).argv(), *arguments[1:]]))
        return
    launched.wait(SHELL, full, path=None)
    _open(None if by_ssh else _task_place(full), full, node, _command(arguments[1:]))


def _command(arguments: Sequence[str]) -> Sequence[str]:
    """Without the ``--`` that may stand before it."""
    return arguments[1:] if arguments[:1] == ("--",) else arguments


@shell.command("show_ssh_command", context_settings=_OPTIONS_OF_SSH)
@click.argument("task_id", metavar="ID")
@click.option("--host-block", is_flag=True, help="Print a Host block for ~/.ssh/config, which editors use.")
@ssh_options
def show_ssh_command(task_id: str, host_block: bool, ssh_opts: Sequence[str]) -> None:
    """Print a command that opens the shell by SSH. Its key is written to DETHPC_HOME/tasks/ID."""
    from dethpc.client.nouns import tasks

    full = tasks.named(connect(), SHELL.plural, task_id)
    ssh = _Ssh(full)
    output.echo(ssh.host_block() if host_block else shlex.join([*ssh.argv(), *ssh_opts]))


launched.add_commands(shell, SHELL)


def _without_key(answer: dict[str, Any]) -> dict[str, Any]:
    return {**answer, "shell": {**answer["shell"], "privateKey": None}}


def _task_place(task_id: str) -> Optional[Place]:
    """None where this machine does not see it."""
    from dethpc.client.nouns import tasks

    session = connect()
    row = tasks.get(session, SHELL.plural, task_id)[SHELL.key]
    allocations = tasks.task(session, task_id)["allocations"]
    return _place(row.get("job") or "", row.get("nodes") or [], allocations[0]["allocationId"]) if allocations else None


def _trial_place(trial_id: int) -> Place:
    """Raises Refused where it does not run, or this machine does not see it."""
    from dethpc import errors
    from dethpc.client.nouns import tasks, trials

    session = connect()
    answer = trials.with_runs(session, trial_id)
    running = [run for run in answer.get("runs") or [] if output.state(run.get("state")) == "RUNNING"]
    if not running:
        raise errors.Refused(f"trial {trial_id} does not run at present")
    allocation = tasks.task(session, str(answer["trial"]["taskId"]))["allocations"][0]["allocationId"]
    place = _place(running[-1]["jobId"], running[-1].get("nodes") or [], allocation)
    if place is None:
        raise errors.Refused(f"this machine does not see the run of trial {trial_id}; use the cluster's login node")
    return place


def _place(job: str, nodes: Sequence[str], allocation: str) -> Optional[Place]:
    from dethpc.client import home
    from dethpc.rundir.home import Home

    run, _, attempt = allocation.rpartition(".")
    folder = Home(home().absolute()).run(run).attempt(int(attempt)).path
    return Place(job, nodes, folder) if folder.is_dir() else None


def _open(place: Optional[Place], task_id: str, node: str, command: Sequence[str]) -> None:
    """The shell takes the place of this process; its exit code is det's, 128 + n after signal n."""
    if place is None:
        line = (
            command[0] if len(command) == 1 else shlex.join(command)
        )  # a single word is a line of the shell, as in a job
        argv = [*_Ssh(task_id).argv(), *([line] if command else [])]
    else:
        argv = _attach(place, node, command)
    code = subprocess.run(argv, env=_environment(), check=False).returncode
    raise click.exceptions.Exit(code if code >= 0 else 128 - code)


def _attach(place: Place, node: str, command: Sequence[str]) -> list[str]:
    """Raises UsageError for a node that it has not."""
    attach = [sys.executable, "-m", "dethpc.exec.attach", str(place.attempt), *command]
    if node and node not in place.nodes:
        raise click.UsageError(f"it does not run on {node}, but on {', '.join(place.nodes)}")
    if not shutil.which("srun") or not place.job.partition("_")[0].isdigit() or _is_local():
        return attach
    where = f"--nodelist={node or place.nodes[0]}"
    step = ["srun", f"--jobid={place.job}", "--overlap", "--mem=0", "--mpi=none", "--nodes=1", "--ntasks=1", where]
    return [*step, *(["--pty"] if sys.stdin.isatty() and sys.stdout.isatty() else []), *attach]


def _is_local() -> bool:
    """Whether the user's own master runs jobs on this machine, without Slurm."""
    from dethpc.client import home
    from dethpc.rundir.home import Home

    return (Home(home().absolute()).own_master().get("scheduler") or {}).get("kind") != "slurm"


def _environment() -> dict[str, str]:
    """With this dethpc, wherever it is installed."""
    root = str(Path(__file__).parents[3])
    path = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, path]))}


class _Ssh:
    """How OpenSSH's client reaches a shell through the master. Its key lies in a 0600 file, and no agent sees it."""

    def __init__(self, task_id: str) -> None:
        from dethpc import errors
        from dethpc.client import home
        from dethpc.client.nouns import tasks
        from dethpc.rundir.home import Home

        self._task = tasks.get(connect(), SHELL.plural, task_id)[SHELL.key]
        if output.state(self._task["state"]) == "TERMINATED":
            raise errors.Refused(f"shell {task_id} has ended: {self._task['exitStatus']}")
        self._folder = Home(home().absolute()).task(task_id)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write("key", self._task["privateKey"] or "")
        self._write("known_hosts", f"{task_id} {self._task['hostPublicKey']}\n")

    def _write(self, name: str, text: str) -> None:
        path = self._folder / name
        with open(path, "w", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o600)) as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(text)

    def _options(self) -> dict[str, str]:
        from dethpc.client import home

        # An editor that starts ssh may have another environment than this shell.
        tunnel = ["env", f"DETHPC_HOME={home().absolute()}", sys.executable, "-m", "dethpc.cli"]
        master = os.environ.get("DET_MASTER")
        tunnel += [*(["-m", master] if master else []), "tunnel", self._task["id"]]
        return {
            "HostKeyAlias": self._task["id"],
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "IdentityFile": str(self._folder / "key"),
            "ProxyCommand": shlex.join(tunnel),
            "StrictHostKeyChecking": "yes",
            "User": self._task["agentUserGroup"]["user"],
            "UserKnownHostsFile": str(self._folder / "known_hosts"),
        }

    def argv(self) -> list[str]:
        options = [word for name, value in self._options().items() for word in ("-o", f"{name}={value}")]
        return ["ssh", *options, self._task["id"]]

    def host_block(self) -> str:
        lines = [f"    {name} {value}" for name, value in self._options().items()]
        return "\n".join([f"Host det-{self._task['id'][:8]}", *lines])
