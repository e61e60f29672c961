"""Bad nodes: which failures are held against a node, when it is left out, and what clears it.

A failure is held against a node when Slurm itself says that the node failed, when the failure names broken hardware, or when
training that has worked on another node never got as far as user code here. Training that works nowhere accuses nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.facts import Attempt, NodeHealth, Run
from dethpc.domain.ports import JobState, NodeInfo
from dethpc.domain.resource_request import ResourceRequest
from dethpc.domain.states import End, RunState
from dethpc.domain.text.measures import plural
from dethpc.engine import events
from dethpc.engine.decision import Decision
from dethpc.engine.ends import Verdict
from dethpc.engine.state import ClusterState
from dethpc.engine.stop import stop_run

TRIALS = 2
"""How many different trials must have failed on a node before it is excluded."""

# Broken hardware, whoever's program meets it.
_HARDWARE = re.compile(
    r"uncorrectable ECC|ECC error|fallen off the bus|GPU is lost|NVRM: Xid|driver/library version mismatch"
    r"|unable to determine the device handle|NVLink.*(error|failure)",
    re.IGNORECASE,
)
# The node's fault only where the same program finds these things elsewhere.
_MISSING = re.compile(
    r"no CUDA-capable device|CUDA-capable device\(s\) is/are busy or unavailable|CUDA driver initialization failed"
    r"|Found no NVIDIA driver|no such device|no HIP GPUs|No CUDA GPUs are available|Read-only file system"
    r"|Stale file handle|Input/output error|Transport endpoint is not connected",
    re.IGNORECASE,
)
_WELL = frozenset({End.COMPLETED, End.STOPPED, End.PREEMPTED, End.TIMEOUT, End.WAITING})


def judged(
    state: ClusterState, run: Run, attempt: Attempt | None, verdict: Verdict, event: events.AttemptEnded
) -> list[NodeHealth]:
    """Rows of nodes that an attempt's end speaks for or against."""
    trial_id = state.tasks[run.task_id].trial_id
    if attempt is None or trial_id is None or not attempt.nodes or not state.bad_nodes.failures:
        return []
    if verdict.end in _WELL and attempt.applied_seq > 0:
        return [cleared for name in attempt.nodes if (cleared := _cleared(state.nodes.get(name))) is not None]
    accusation = _accused(attempt, verdict, event)
    if accusation is None:
        return []
    kind, names, certain = accusation
    good_nodes = state.experiments[state.trials[trial_id].experiment_id].good_nodes
    if not certain:
        names = [name for name in names if good_nodes - {name}]
    if not names:
        return []
    # A failure on several nodes, one of which did it, counts in parts.
    failure = {
        "at": event.at,
        "trial": trial_id,
        "run": run.id,
        "weight": 1 / len(names),
        "kind": kind,
        "message": verdict.reason[:200],
    }
    return [_blamed(state, name, failure) for name in names]


def may_heal_elsewhere(report: EndReport | None) -> bool:
    """Whether what failed speaks of a node's hardware, or of a device or file system that another node may have."""
    message = "" if report is None else _error_text(report)
    return bool(_HARDWARE.search(message) or _MISSING.search(message))


def _error_text(report: EndReport) -> str:
    return "\n".join([report.message, *report.tail])


def _cleared(node: NodeHealth | None) -> NodeHealth | None:
    """Training went well on it: it is innocent, but for what a person said of it."""
    if node is None or (not node.failures and node.excluded_until is None):
        return None
    if node.excluded_since is not None and node.excluded_until is None:
        return replace(node, failures=[])
    return replace(node, failures=[], excluded_since=None, excluded_until=None, reason="")


def _accused(attempt: Attempt, verdict: Verdict, event: events.AttemptEnded) -> tuple[str, Sequence[str], bool] | None:
    """(what kind of failure, on which nodes, whether that is certain). None: no node is to blame."""
    report = event.report or EndReport()
    if event.down:
        return "went down", [name for name in attempt.nodes if name in event.down], True
    if event.record is not None and event.record.state in (JobState.NODE_FAIL, JobState.BOOT_FAIL):
        return "failed", attempt.nodes, True
    where = _where(attempt, report)
    message = _error_text(report)
    if verdict.end is End.USER_ERROR and _HARDWARE.search(message):
        return "broken hardware", where, True
    if verdict.end is End.LAUNCH_FAILED and not verdict.permanent:
        return "could not start", where, False
    if verdict.end is End.USER_ERROR and _MISSING.search(message):
        return "device or file system missing", where, False
    return None


def _where(attempt: Attempt, report: EndReport) -> Sequence[str]:
    """The node that the end report names; every node of the attempt where it names none."""
    if report.node is not None and 0 <= report.node < len(attempt.nodes):
        return [attempt.nodes[report.node]]
    return attempt.nodes


def _blamed(state: ClusterState, name: str, failure: dict[str, Any]) -> NodeHealth:
    """The node with one ``failure`` more (an entry of ``NodeHealth.failures``)."""
    limits, node, at = state.bad_nodes, state.nodes.get(name) or NodeHealth(name), failure["at"]
    failures = [*(f for f in node.failures if at - f["at"] < limits.within), failure]
    node = replace(node, failures=failures)
    trials = {f["trial"] for f in failures}
    enough = sum(f["weight"] for f in failures) >= limits.failures - 1e-9
    if node.excluded(at) or len(trials) < TRIALS or not enough:
        return node
    why = f"{plural(len(failures), 'failure')} of {plural(len(trials), 'trial')}, the last: {failure['kind']}"
    return replace(node, excluded_since=at, excluded_until=at + limits.exclude, reason=why)


def disable(state: ClusterState, event: events.DisableNode) -> Decision:
    node = state.nodes.get(event.name) or NodeHealth(event.name)
    decision = Decision([replace(node, excluded_since=event.at, excluded_until=None, reason=event.reason)])
    if event.drain:
        return decision
    for job in state.jobs.values():
        for member, run in list(job.live.items()):
            if run.state is RunState.RUNNING and event.name in run.nodes:
                stop_run(job, member, f"node {event.name} was disabled: {event.reason}", event.at, decision)
    return decision


def enable(state: ClusterState, event: events.EnableNode) -> Decision:
    """What was held against it is forgotten, too."""
    node = state.nodes.get(event.name)
    if node is None or (node.excluded_since is None and not node.failures):
        return Decision()
    return Decision([NodeHealth(event.name)], [events.Schedule(event.at)])


def left_out(
    off: Iterable[NodeHealth], members: Sequence[NodeInfo], request: ResourceRequest, refused: Sequence[str] = ()
) -> list[str]:
    """Names of a pool's nodes that a job is not to be sent to, never so many that too few are left for it.

    First those that a person disabled, then those that failed latest. ``members``: the pool's nodes as they are now. Those that
    the job's trial has ``refused`` are left out before all others, even where no node is left.
    """
    never = {node.name for node in members if node.name in refused}
    members = [node for node in members if node.name not in never]
    by_name = {node.name: node for node in members}
    spare = sum(node.state.usable and request.fits(node) for node in members) - request.nodes
    names = []
    for node in sorted(off, key=lambda node: (node.excluded_until is not None, -(node.excluded_since or 0), node.name)):
        info = by_name.get(node.name)
        if info is None:
            continue
        if info.state.usable and request.fits(info):
            if spare <= 0:
                continue
            spare -= 1
        names.append(node.name)
    return sorted({*names, *never})


def too_few_left(members: Sequence[NodeInfo], request: ResourceRequest, refused: Sequence[str]) -> bool:
    """Whether a job can run on nodes of the pool as the site has it, but not without those that its trial has ``refused``."""
    names = {node.name for node in members if request.fits(node)}
    return len(names - set(refused)) < request.nodes <= len(names)


def avoided(state: ClusterState, task_id: str, at: float) -> list[NodeHealth]:
    """Nodes to leave out for a task's next run: those that are off, and the one on which its last run did not even start."""
    off = [node for node in list(state.nodes.values()) if node.excluded(at)]
    last = next(reversed(state.attempts.get(task_id, ())), None)
    if last is not None and last.end is End.LAUNCH_FAILED and len(last.nodes) == 1:
        off.append(
            NodeHealth(last.nodes[0], excluded_since=0.0, excluded_until=at, reason="its last run did not start there")
        )
    return list({node.name: node for node in reversed(off)}.values())
