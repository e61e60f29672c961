"""Checks of compute nodes, from what a small job on each pool reported."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts, Slurm
from dethpc.doctor.finding import Finding, error, note, ok, warning

CLOCK_DRIFT = 5.0
CLOCK_DRIFT_ERROR = 60.0
OLDEST_PYTHON = (3, 9)


def shared_fs(facts: Facts, slurm: Slurm) -> Iterator[Finding]:
    """Whether compute nodes see DETHPC_HOME and can write there."""
    if facts.nodes is None:
        yield note(
            f"not looked at from a compute node: {facts.login.home}, Python, locks, clocks, the way to the master",
            change="det doctor --check-nodes sends a small job to each pool",
        )
        return
    for node in facts.nodes:
        if node.late:
            yield warning(
                f"pool {node.pool}: {node.problem}",
                "trials wait in the same way",
                "later, --timeout SECONDS, or other pools (--pool)",
            )
        elif node.refused:
            yield error(f"pool {node.pool}: {node.problem}", "trials would be refused, too", "the site configuration")
        elif node.problem:
            yield error(
                f"pool {node.pool}: {node.problem}",
                "trials in this pool would fail in the same way, or wait",
                "put DETHPC_HOME and the Python environment where compute nodes see them",
            )
        elif node.home:
            yield error(
                f"pool {node.pool}: {node.name} cannot write to {facts.login.home}: {node.home}",
                "no trial can report or checkpoint there",
                "set DETHPC_HOME to a folder that compute nodes can write to",
            )
        else:
            yield ok(f"pool {node.pool}: {node.name} sees and writes {facts.login.home}")


def clock(facts: Facts) -> Iterator[Finding]:
    """Whether the clocks of login and compute nodes agree."""
    for node in facts.nodes or ():
        if node.problem:
            continue
        # The probe read its clock between these two moments of this machine's.
        off = max(0.0, node.asked_at - node.clock, node.clock - node.seen_at)
        way = "behind" if node.clock < node.asked_at else "ahead"
        gap = f"pool {node.pool}: the clock of {node.name} is {off:.0f} s or more {way}"
        if off > CLOCK_DRIFT_ERROR:
            yield error(
                gap,
                "times of metrics and logs are wrong, and a master that moves may take its lease too early",
                "NTP on the nodes",
            )
        elif off > CLOCK_DRIFT:
            yield warning(
                gap,
                "shows times as each node has them; asks for checkpoints 60 s before a limit",
                "NTP on the nodes",
            )
        else:
            yield ok(f"pool {node.pool}: the clock of {node.name} agrees")


def reach(facts: Facts) -> Iterator[Finding]:
    """Whether compute nodes reach the master by TCP."""
    for node in facts.nodes or ():
        if node.problem or not node.address:
            continue
        if node.master:
            yield warning(
                f"pool {node.pool}: {node.name} does not reach {node.address}: {node.master}",
                "learns everything from the files, a little later; searches that wait for an answer wait longer",
                "name an interface that compute nodes reach in master.host, open the port (master.port) in the firewall, "
                "or det master up --slurm",
            )
        else:
            yield ok(f"pool {node.pool}: {node.name} reaches {node.address}")


def prologue(facts: Facts) -> Iterator[Finding]:
    """Whether the shell lines that a pool's jobs begin with succeed."""
    for node in facts.nodes or ():
        pool = facts.pools.get(node.pool)
        if node.problem or pool is None:
            continue
        if not pool.prologue:
            yield ok(f"pool {node.pool} has no prologue")
        elif node.prologue:
            yield error(
                f"pool {node.pool}: its prologue fails on {node.name}: {node.prologue}",
                "trials start without what it was to set up",
                "pools.prologue in the site file; what it prints is in each trial's log as source slurm",
            )
        else:
            yield ok(f"pool {node.pool}: its prologue of {len(pool.prologue)} lines runs on {node.name}")


def python(facts: Facts) -> Iterator[Finding]:
    """The Python versions of login and compute nodes."""
    yield ok(f"Python {facts.login.python[0]}.{facts.login.python[1]} here")
    for node in facts.nodes or ():
        pool = facts.pools.get(node.pool)
        if node.problem or pool is None:
            continue
        numbers = node.python.split(".")
        change = "pools.python, or a pools.prologue that loads a module"
        if not all(part.isdigit() for part in numbers[:2]) or len(numbers) < 2:
            yield error(
                f"pool {node.pool}: {pool.python} does not run on {node.name}: {node.python}",
                "no run starts there",
                change,
            )
        elif (int(numbers[0]), int(numbers[1])) < OLDEST_PYTHON:
            yield error(
                f"pool {node.pool}: {pool.python} on {node.name} is {node.python}; runs need 3.9 or newer",
                "no run starts there",
                change,
            )
        else:
            yield ok(f"pool {node.pool}: {pool.python} on {node.name} is {node.python}")


def containers(facts: Facts) -> Iterator[Finding]:
    """Whether the containers that a pool offers start on its nodes."""
    for node in facts.nodes or ():
        if node.problem or node.pool not in facts.pools:
            continue
        if not node.containers:
            yield ok(f"pool {node.pool} starts its runs without a container")
        for runtime, problem in node.containers.items():
            if not problem:
                yield ok(f"pool {node.pool}: {runtime} starts a container on {node.name}")
                continue
            yield error(
                f"pool {node.pool}: {runtime} starts no container on {node.name}: {problem}",
                "no run that has an image starts there",
                f"what is missing on the nodes, or pools.container (docs/containers.md says what {runtime} needs)",
            )
