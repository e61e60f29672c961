"""Slurm's reasons for a job that waits, in words. A word of a later Slurm that is not known here is passed on as it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dethpc.domain.facts import Run
from dethpc.domain.ids import job_number
from dethpc.domain.ports import SUSPENDED, QueuedJob
from dethpc.domain.resource_request import ResourceRequest, noun
from dethpc.domain.states import Intent, RunState
from dethpc.domain.text.measures import plural
from dethpc.insight.waiting import PoolView, WaitReason, infeasible, refused, span, suspended


def in_scheduler(reason: str, request: ResourceRequest, view: PoolView, job_id: str = "") -> WaitReason:
    """Why a job that the scheduler lists as pending does not start. ``reason``: its word, "" while it has said none."""
    if " " in reason:  # no word of the scheduler's: why the last start ended, until it has said something new
        return WaitReason("Requeued", f"it was queued again: {reason}")
    word, _, detail = reason.partition(",")
    detail = detail.replace("_", " ").strip()
    if (permanent := infeasible(request, view)) is not None:
        return WaitReason(
            word or "Resources", f"it can never start: {permanent.why}", permanent.remedy, word=_shown(word)
        )
    plain = re.sub(r"[^a-z0-9]", "", word.lower())
    own = next((job for job in view.queue or () if job.job_id == job_id), None)
    start = own.start if own is not None and not own.running and not _a_guess(own.start, view.queue or ()) else None
    for pattern, say in _REASONS:
        if re.fullmatch(pattern, plain):
            why, remedy = say(Case(request, view, job_id or "JOBID", detail, own))
            break
    else:
        why, remedy = _limit(word) or (f"Slurm says: {reason.replace('_', ' ')}", "")
        return WaitReason(word, why, remedy, start)
    return WaitReason(word or "Submitted", why, remedy, start, _shown(word))


def _shown(word: str) -> str:
    """``None`` is what Slurm has instead of a reason."""
    return "" if word.lower() == "none" else word


def of_run(run: Run) -> str:
    """Why a run has not started, or does not get on, in sentences; for one that has ended or gets on, its reason as it is.

    From its row alone: neither what its pool looks like nor what else waits there is asked for.
    """
    if run.state is RunState.RUNNING and run.reason == SUSPENDED:
        return str(suspended(run.scheduler_job_id or ""))
    if not run.reason or run.intent is not Intent.GO:
        return run.reason
    if run.state is RunState.SUBMITTING:
        return str(refused(run.reason))
    if run.state is not RunState.PENDING:
        return run.reason
    request = ResourceRequest(run.pool, 1, run.slots, slot_type="cpu")
    return str(in_scheduler(run.reason, request, PoolView(), run.scheduler_job_id or ""))


def _a_guess(start: float | None, queue: Sequence[QueuedJob]) -> bool:
    """Slurm reckons a year for a job without a time limit; who waits for the end of one is expected then."""
    began = [job.start for job in queue if job.running and job.start is not None]
    return start is not None and bool(began) and start - min(began) >= 365 * 86400


@dataclass(frozen=True, slots=True)
class Case:
    """All that a reason's sentence may speak of."""

    request: ResourceRequest
    view: PoolView
    job_id: str
    detail: str  # what stood behind the word
    own: QueuedJob | None

    @property
    def partition(self) -> str:
        return self.view.pool.partition if self.view.pool else self.request.pool


Sentences = tuple[str, str]


def _resources(case: Case) -> Sentences:
    request, pool = case.request, case.view.pool
    nodes = [node for node in case.view.nodes if node.state.usable]
    if case.view.nodes and len([node for node in nodes if request.fits(node)]) < request.nodes:
        return _down(case)
    why = f"it waits for {request} to be free"
    if pool is None or case.view.queue is None:
        return why, ""  # figures of the moment are for those who ask now
    why += f": {pool.slots_used} of {pool.slots} slots of pool {pool.name} are in use"
    why += _by([job for job in case.view.queue if job.running], "by")
    free = max((node.slots - node.slots_used for node in nodes), default=0)
    if 0 < free < request.slots_per_node * request.nodes:
        return (
            why,
            f"a trial of {plural(free, noun(request.slot_type))} would find room now (resources.slots_per_trial)",
        )
    return why, ""


def _by(jobs: Sequence[QueuedJob], how: str) -> str:
    """Whoever reads it: jobs of all users of a master run as its owner."""
    mine = sum(job.mine for job in jobs)
    whose = [f"{plural(mine, 'job')} of this master's owner"] if mine else []
    whose += [f"{plural(len(jobs) - mine, 'job')} of other users"] if len(jobs) > mine else []
    return f" {how} {' and '.join(whose)}" if whose else ""


def _priority(case: Case) -> Sentences:
    why = f"other jobs are ahead of it in partition {case.partition}"
    remedy = "a shorter time limit lets Slurm fit it into a gap"
    if case.view.queue is None or case.own is None:
        return why, remedy
    mine = case.own
    ahead = [job for job in case.view.queue if not job.running and job.job_id != mine.job_id and _before(job, mine)]
    if not ahead:
        return f"Slurm has not considered it yet; no job is ahead of it in partition {case.partition}", ""
    why = f"{plural(len(ahead), 'job')} {'is' if len(ahead) == 1 else 'are'} ahead of it in partition {case.partition}"
    why += f" ({_by(ahead, '').strip()})"
    if all(job.mine for job in ahead):
        remedy = "move this one ahead of those of this master with det job update"
    return why, remedy


def _before(job: QueuedJob, other: QueuedJob) -> bool:
    if job.priority != other.priority:
        return job.priority > other.priority
    return 0 < job_number(job.job_id) < job_number(other.job_id)


def _down(case: Case) -> Sentences:
    gone = [node for node in case.view.nodes if not node.state.usable]
    if not gone:
        nodes = case.detail.partition("UnavailableNodes:")[2]
        why = f"the nodes that it needs ({case.request}) are not available now"
        return why + (f"; Slurm names {nodes}" if nodes else ""), ""
    names = ", ".join(node.name for node in gone[:4]) + (f" and {len(gone) - 4} more" if len(gone) > 4 else "")
    causes = "; ".join(dict.fromkeys(node.reason for node in gone if node.reason))
    why = f"it needs {case.request}, and {names} {'is' if len(gone) == 1 else 'are'} {gone[0].state}"
    if causes:
        why += f" ({causes})"
    return why, "an administrator has to bring the nodes back; fewer slots, or another pool, may start now"


def _not_available(case: Case) -> Sentences:
    if "maintenance" in case.detail.lower():
        return _maintenance(case)
    if "reserved" in case.detail.lower() and all(node.state.usable for node in case.view.nodes):
        return f"the nodes that it needs ({case.request}) may be reserved for another job", ""
    return _down(case)


def _down_or_reserved(case: Case) -> Sentences:
    """One word of Slurm's with a comma in it, for three cases that only the nodes tell apart."""
    if all(node.state.usable for node in case.view.nodes):
        causes = "down, drained, or reserved for jobs of partitions with a higher priority"
        why = f"the nodes that it needs ({case.request}) are {causes}"
        return why, "another pool may start it now"
    return _down(case)


def _maintenance(case: Case) -> Sentences:
    why = "its nodes are reserved for maintenance, which would begin before the job's time limit is over"
    return why, "a shorter time limit may let it end in time; otherwise it starts after the maintenance"


def _partition_time(case: Case) -> Sentences:
    pool = case.view.pool
    most = f", {span(pool.max_time)}" if pool is not None and pool.max_time is not None else ""
    why = f"its time limit exceeds the limit of partition {case.partition}{most}"
    return why, "ask for less with --time in slurm.sbatch_args: trials continue over several jobs"


def _partition_nodes(case: Case) -> Sentences:
    pool = case.view.pool
    most = f" ({pool.max_nodes} per job)" if pool is not None and pool.max_nodes is not None else ""
    why = f"{plural(case.request.nodes, 'node')} is more than partition {case.partition} allows{most}"
    return why, "change resources.slots_per_trial, or choose another pool"


def _held(case: Case) -> Sentences:
    return "it was held by hand, with scontrol hold", f"release it: scontrol release {case.job_id}"


def _says(why: str, remedy: str = "") -> Callable[[Case], Sentences]:
    def sentences(case: Case) -> Sentences:
        names = {"partition": case.partition, "pool": case.request.pool, "job": case.job_id}
        return why.format(**names), remedy.format(**names)

    return sentences


_ADMIN = "only an administrator can change that"
_REASONS: Sequence[tuple[str, Callable[[Case], Sentences]]] = (
    ("|none", _says("the scheduler has not considered it yet")),
    ("resources", _resources),
    ("priority", _priority),
    ("scheddefer", _says("Slurm is busy and starts jobs a little later")),
    ("partitiontimelimit", _partition_time),
    ("partitionnodelimit", _partition_nodes),
    ("partitionconfig", _says("partition {partition} does not allow what it asks for", "choose another pool")),
    (
        "partitiondown|partitioninactive",
        _says("partition {partition} starts no jobs now", "choose another pool; " + _ADMIN),
    ),
    (".*reservedformaintenance.*", _maintenance),
    ("nodesrequiredforjobaredown.*", _down_or_reserved),
    ("reqnodenotavail.*", _not_available),
    ("nodedown|frontenddown|powernotavail|powerreserved", _down),
    ("begintime", _says("it was queued again after its last start, and Slurm waits a while (two minutes by default)")),
    (
        "dependencyneversatisfied",
        _says("it depends on a job that failed, so it can never start", "kill the trial"),
    ),
    (
        "dependency|singleton",
        _says("it depends on another job that has not ended", "see slurm.sbatch_args: --dependency"),
    ),
    ("jobhelduser", _held),
    ("jobheldadmin", _says("it was held by an administrator", "ask why: only they can release it")),
    (
        ".*launchfailed.*requeuedheld|launchfailed.*|joblaunchfailure|prolog.*fail.*",
        _says(
            "Slurm could not start it on a node and holds it", "release it: scontrol release {job}, or kill the trial"
        ),
    ),
    (
        ".*requeuedinheldstate|jobrequeuedheld|maxrequeue",
        _says("it was requeued and held", "release it: scontrol release {job}"),
    ),
    (
        "badconstraints",
        _says("no node of pool {pool} has what it asks for", "change slurm.sbatch_args or the pool's constraint"),
    ),
    (
        "invalidqos|qosnotallowed",
        _says("its QOS may not be used here", "name another with --qos in slurm.sbatch_args or the pool"),
    ),
    ("invalidaccount|accountnotallowed", _says("its account may not be used here", "name another with --account")),
    ("licenses", _says("it waits for a licence that other jobs hold")),
    ("reservation", _says("it waits for its reservation to begin", "remove --reservation to use other nodes")),
    ("reservationdeleted|resvdelhold", _says("its reservation is gone", "kill the trial and remove --reservation")),
    ("cleaning|epilog", _says("its last start is being cleaned up")),
    ("prolog", _says("its nodes are being prepared")),
    ("burstbuffer.*", _says("it waits for the burst buffer")),
    ("jobarraytasklimit", _says("its array runs as many tasks as it may")),
    ("deadline", _says("it can no longer end before its deadline", "remove --deadline")),
    (
        "qosusagethreshold",
        _says("its QOS has used too much recently", "wait until usage decays, or use another QOS"),
    ),
    ("systemfailure|outofmemory|blockmaxerror", _says("Slurm itself failed to start it", _ADMIN)),
    ("fedjoblock|revoked", _says("it runs on another cluster of the federation")),
    # The local scheduler's own.
    ("cancelled", _says("it was cancelled")),
)

_LIMIT = re.compile(
    r"(QOS|Association|Assoc)?(Grp|Max|Min)?(.+?)(?:Per(User|Account|Job|Node|Acct))?(?:Limit)?(?:NotSatisfied)?"
)
_QUANTITY = (
    (".*minutes", "CPU or GPU minutes"),
    ("cpu", "CPUs"),
    ("gres|gpu", "GPUs"),
    ("mem", "memory"),
    ("node", "nodes"),
    ("submit", "submitted jobs"),
    ("job", "running jobs"),
    ("wall|time", "running time"),
    ("bb|burstbuffer", "burst buffer"),
    ("license", "licences"),
    ("billing", "billing units"),
    ("energy", "energy"),
    ("resource", "resources"),
)


def _limit(word: str) -> Sentences | None:
    """Slurm has some eighty reasons for limits, all made alike: (QOS|Assoc)(Grp|Max|Min)<quantity>(Per<whom>)(Limit)."""
    match = _LIMIT.fullmatch(word)
    if match is None or not (match[1] or match[2]):
        return None
    of, kind, what, per = match.groups()
    quantity = next((name for pattern, name in _QUANTITY if re.match(pattern, what.lower())), what)
    place = "its QOS" if of == "QOS" else "its account" if of else "the site"
    if kind == "Min":
        return (
            f"each job has to ask for more {quantity} than this one ({word})",
            "ask for more slots, or use another QOS",
        )
    if per in ("Job", "Node"):
        whole = "one job" if per == "Job" else "one node"
        why = f"it asks for more {quantity} than {place} allows to {whole} ({word})"
        return why, "ask for less, or use another QOS"
    if kind == "Grp":
        whose = f"all jobs of {place} together"
    else:
        whose = "all jobs of the account" if per in ("Account", "Acct") else "your jobs"
    why = f"{whose} have reached the limit that {place} sets to {quantity} ({word})"
    return why, "it starts when some of them end; another QOS or account may have room"
