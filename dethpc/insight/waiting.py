"""Why is it waiting? The scheduler's reason, or our own queue's, in words, and what would start it sooner.

Pure: from what a run asks for and how the pool looks now. What Slurm's own reasons mean is in ``insight.reasons``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dethpc.domain.ports import NodeInfo, PoolInfo, QueuedJob
from dethpc.domain.resource_request import ResourceRequest, noun
from dethpc.domain.text.measures import plural
from dethpc.engine.queueing.dispatch_order import ahead_of, stands_aside
from dethpc.engine.queueing.jobs import ExperimentState
from dethpc.engine.queueing.live_runs import deferred
from dethpc.engine.queueing.queue import held, window
from dethpc.engine.state import ClusterState


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool as it looks now. ``queue`` is None while nobody has asked for it."""

    pool: PoolInfo | None = None
    nodes: Sequence[NodeInfo] = ()
    queue: Sequence[QueuedJob] | None = None


@dataclass(frozen=True, slots=True)
class WaitReason:
    """``cause``: one word, Slurm's or ours. ``why`` and ``remedy``: a sentence each; ``remedy`` is empty when nothing helps.

    ``start``: when the scheduler expects to start it, if it says so. ``word``: the scheduler's own, by which its documentation and
    its administrators know the reason.
    """

    cause: str
    why: str
    remedy: str = ""
    start: float | None = None
    word: str = ""

    def __str__(self) -> str:
        named = f"{self.why} ({self.word})" if self.word and self.word not in self.why else self.why
        return ". ".join(filter(None, [sentence(named), sentence(self.remedy)]))


@dataclass(frozen=True, slots=True)
class Infeasible:
    """It can never start. ``field``: of the experiment's config, the one to change."""

    field: str
    why: str
    remedy: str


def sentence(text: str) -> str:
    """A command stays as one types it."""
    return text if text.startswith("det ") else text[:1].upper() + text[1:]


# --- what can never start


def infeasible(request: ResourceRequest, view: PoolView) -> Infeasible | None:
    """Why the job can never start however long it waits; None when it can. Nodes that are down now count: they come back."""
    pool, nodes = view.pool, view.nodes
    if pool is None or not nodes:
        return None
    slots, name = "resources.slots_per_trial", pool.name
    largest = max(node.slots for node in nodes)
    if not largest:
        return None  # what its nodes have is not known
    if request.slots_per_node > largest:
        size = plural(request.slots_per_node, noun(request.slot_type))
        total = request.slots_per_node * request.nodes
        remedy = f"set slurm.slots_per_node: {largest}"
        if total % largest:
            remedy = f"ask for a multiple of {largest} slots with slurm.slots_per_node: {largest}"
        return Infeasible(slots, f"{size} on one node, but the largest node of pool {name} has {largest}", remedy)
    fitting = [node for node in nodes if request.fits(node)]
    if not fitting:
        return _too_much(request, [node for node in nodes if node.slots >= request.slots_per_node], name)
    per_node = max(1, request.slots_per_node)
    if len(fitting) < request.nodes:
        most = len(fitting) * per_node
        why = f"{request}, but pool {name} has {plural(len(fitting), 'node')} of that size"
        return Infeasible(slots, why, f"ask for at most {plural(most, 'slot')}")
    if pool.max_nodes is not None and request.nodes > pool.max_nodes:
        why = f"{request.nodes} nodes, but partition {pool.partition} allows {pool.max_nodes} per job"
        return Infeasible(
            slots, why, f"ask for at most {plural(pool.max_nodes * per_node, 'slot')}, or choose another pool"
        )
    if pool.max_time is not None and request.time_limit is not None and request.time_limit > pool.max_time:
        why = f"a time limit of {span(request.time_limit)}, but partition {pool.partition} allows {span(pool.max_time)}"
        return Infeasible(
            "slurm.sbatch_args", why, f"ask for at most {span(pool.max_time)}: trials continue over several jobs"
        )
    return None


def _too_much(request: ResourceRequest, nodes: Sequence[NodeInfo], pool: str) -> Infeasible:
    """Enough slots, but not the cores or the memory that the site gives to each."""
    field, cpus = "resources.slots_per_trial", max(node.cpus for node in nodes)
    if cpus < request.cpus_per_node:
        why = f"{request.cpus_per_node} cores on one node, but the largest node of pool {pool} has {cpus}"
        return Infeasible(field, why, "ask for fewer slots per node, or have the site lower the pool's cpus_per_slot")
    memory = max(node.memory_mb for node in nodes)
    why = f"{request.memory_per_node_mb} MB on one node, but the largest node of pool {pool} has {memory}"
    return Infeasible(field, why, "ask for fewer slots per node, or have the site lower the pool's mem_per_slot")


def span(seconds: float) -> str:
    """``1-02:00:00``, as Slurm writes it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hours:02d}:{minutes:02d}:{rest:02d}"


# --- in our own queue


WAITS_FOR_IMAGE = "waits for image "
"""How the words begin when a run is not submitted before its image is there."""


def refused(message: str) -> WaitReason:
    """``message``: the scheduler's, the file system's, or of whoever prepares what the run needs."""
    if message.startswith(WAITS_FOR_IMAGE):
        return WaitReason("image", f"it {message}")
    why = f"its job cannot be submitted at present: {message}"
    return WaitReason("refused", why, "nothing is lost: it is submitted again until it is taken")


def suspended(job_id: str) -> WaitReason:
    """Of a job that runs, and does not get on."""
    why = (
        f"the scheduler has suspended its job {job_id}, which keeps its nodes and its memory there and computes nothing"
    )
    remedy = (
        "it goes on by itself when the scheduler resumes it: after the job that took its turn, or when an administrator says so "
        "(scontrol resume); nothing is lost"
    )
    return WaitReason("Suspended", why, remedy)


def for_first_trial(experiment: ExperimentState) -> WaitReason | None:
    """Why the other trials of the experiment wait for its first one; None when they do not."""
    if not experiment.held:
        return None
    first = experiment.trials[0]
    why = f"trial {first.id} failed before it reported anything ({first.reason}); the others wait until it has reported"
    return WaitReason("first_trial", why, f"to start them anyway: det experiment activate {experiment.row.id}")


def in_queue(state: ClusterState, experiment: ExperimentState, at: float) -> WaitReason:
    """Why the experiment's next trial has no run yet."""
    row = experiment.row
    slots = max(1, row.slots_per_trial)
    if row.max_slots is not None and row.max_slots < slots:
        why = f"it can never start: a trial needs {plural(slots, 'slot')}, max_slots is {row.max_slots}"
        return WaitReason("max_slots", why, f"det experiment set max-slots {row.id} {slots}")
    if row.max_slots is not None and experiment.live_slots + slots > row.max_slots:
        why = (
            f"the experiment's max_slots of {row.max_slots} is used up by its trials that run or wait in the scheduler"
        )
        return WaitReason("max_slots", why, f"raise it: det experiment set max-slots {row.id} N")
    of_pool = state.live.pending.get(row.pool, {}).values()
    if experiment.id in state.live.deferred.get(row.pool, ()):
        return refused(next((run.reason for run in experiment.live.values() if deferred(run)), ""))
    pending = sum(not held(run) and not stands_aside(state, run) for run in of_pool)
    if pending < window(state, row.pool):
        return WaitReason("next", "it is next to be submitted")
    ahead = ahead_of(state, experiment, at)
    why = f"{plural(pending, 'run')} of this master {'waits' if pending == 1 else 'wait'} in the scheduler's queue"
    why += f" for pool {row.pool}, which is the pool's window"
    if not ahead:
        return WaitReason("window", f"{why}; it is next")
    why += f", and {plural(ahead, 'trial')} of other experiments come first"
    return WaitReason("window", why, "raise its priority: det experiment set priority, or det job update")
