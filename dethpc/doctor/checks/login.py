"""Checks of this machine: munge, packages, and whether a master can run and be reached here."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from dethpc.doctor.facts import Facts
from dethpc.doctor.finding import Finding, error, note, ok, warning

LISTENING_CHANGE = (
    "master.host: the address that compute nodes reach (it is chosen where that is left out), "
    "or a firewall before this port"
)
LEAST_MEMORY = 512 << 20


def munge(facts: Facts) -> Iterator[Finding]:
    """Whether munge, by which Slurm authenticates the user, works here."""
    if facts.login.munge is None:
        return
    if facts.login.munge:
        yield error(f"munge does not work: {facts.login.munge}", "its Slurm commands fail, too", "start munged")
    else:
        yield ok("munge works")


def listening(facts: Facts) -> Iterator[Finding]:
    """The addresses at which the master on this machine answers, and who can connect there."""
    where = facts.answering
    if where is None:
        return
    beyond = [one for one in map(ipaddress.ip_address, where.addresses) if not one.is_loopback]
    world = [str(one) for one in beyond if one.is_global]
    if world:
        yield warning(
            f"the master answers at {', '.join(world)} port {where.port}, which the whole Internet may reach",
            "admits nobody without a token or a password, and speaks TLS unless master.tls is off",
            LISTENING_CHANGE,
        )
    inside = [str(one) for one in beyond if not one.is_global]
    if len(inside) > 1 or (inside and world):
        yield note(
            f"the master answers at {', '.join(inside)} port {where.port}: everybody on these networks can connect",
            "admits nobody without a token or a password",
            LISTENING_CHANGE,
        )
    elif inside:
        yield ok(
            f"the master answers at {inside[0]} port {where.port} and on loopback: everybody on that network can connect"
        )
    elif not world:
        yield ok(f"the master answers on loopback alone, port {where.port}: only users of this machine can connect")


def packages(facts: Facts) -> Iterator[Finding]:
    """Whether another package owns the name ``determined``."""
    packages = facts.login.packages
    if "determined" in packages:
        yield error(
            f"determined {packages['determined']} is installed in this environment, too: both own the name 'determined'",
            "which of the two is imported depends on the order of installation",
            "pip uninstall determined && pip install --force-reinstall --no-deps dethpc; give that client its own",
        )
    else:
        yield ok("nothing else owns the name 'determined'")


def services(facts: Facts) -> Iterator[Finding]:
    """Whether jobs have JupyterLab, TensorBoard and sshd, for notebooks, TensorBoards and shells."""
    login, looked = facts.login, [node for node in facts.nodes or () if not node.problem]
    for name, command in (("JupyterLab", "det notebook start"), ("TensorBoard", "det tensorboard start")):
        if name in login.lacking:
            yield note(
                f"{name} is not installed for {login.job_python}, which jobs of this shell get",
                f"{command} fails, unless it names an image that has it",
                f"{login.job_python} -m pip install {name.lower()}",
            )
        else:
            yield ok(f"{login.job_python} has {name}")
    without = [f"{node.name} (pool {node.pool})" for node in looked if not node.sshd]
    if not looked and "sshd" in login.lacking:
        without = [login.host]
    if without:
        yield note(
            f"no sshd on {', '.join(without)}",
            "det shell open works by srun; editors and the published client, which speak SSH, reach no shell there",
            "OpenSSH's server on the nodes (Debian: openssh-server), which need not run; or an image that has it",
        )
    else:
        yield ok(f"{', '.join(node.name for node in looked) or login.host} has sshd")


def login_node(facts: Facts) -> Iterator[Finding]:
    """Whether this machine ends long-running processes such as a master."""
    login = facts.login
    lives = True
    dethpc = "det starts another when it is needed; nothing is lost meanwhile"
    change = "det master up --slurm runs it as a job"
    if login.kills_at_logout and login.lingers is not True:
        lives = False
        yield warning(
            "processes end when you log out (KillUserProcesses)", dethpc, f"loginctl enable-linger, or {change}"
        )
    if login.cpu_seconds is not None:
        lives = False
        yield warning(f"a process here may use {login.cpu_seconds} s of CPU (ulimit -t)", dethpc, change)
    if login.memory_limit is not None and login.memory_limit < LEAST_MEMORY:
        lives = False
        yield warning(f"a user's processes here may take {login.memory_limit >> 20} MiB together", dethpc, change)
    if lives:
        yield ok(f"nothing on {login.host} is known to end a master", dethpc)
