"""The child process that reads Slurm through pyslurm: one JSON question per line in, one JSON answer per line out.

It is a process of its own because pyslurm holds the interpreter during a call, for as long as the controller keeps it waiting, and
because libslurm ends the process over a bad configuration. Only the standard library and pyslurm are imported here: it may run on
another interpreter than the master's. Started by ``pyslurm_reader``; ends when its input does.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Callable


def _jobs() -> dict[str, Any]:
    import pyslurm

    me = os.getuid()
    rows = []
    for job in pyslurm.Jobs.load().values():
        if job.user_id == me:
            status = [job.exit_code, job.exit_code_signal]
            times = [job.preempt_time, job.submit_time, job.start_time, job.end_time]
            name = job.name or ""
            place = [job.priority, job.nice]
            for job_id in _ids(job):
                rows.append(
                    [
                        job_id,
                        job.state,
                        job.state_reason,
                        job.allocated_nodes,
                        status,
                        job.requeue_count,
                        times,
                        place,
                        name,
                    ]
                )
    return {"jobs": rows}


def _ids(job: Any) -> list[Any]:
    """Of an array's elements their places in it, as ``squeue --array`` shows them. Those that wait share a job until they start."""
    array, index = getattr(job, "array_id", None), getattr(job, "array_task_id", None)
    if not array:
        return [job.id]
    waiting = str(job.array_tasks_waiting or "")
    if index is not None or not waiting:  # of the element 0 that has started, PySlurm 22.05 gives no index
        return [f"{array}_{index or 0}"]
    ids = []
    for part in waiting.partition("%")[0].split(","):
        first, _, last = part.partition("-")
        last, _, step = last.partition(":")
        if first.isdigit():
            ids += [f"{array}_{n}" for n in range(int(first), int(last or first) + 1, int(step or 1))]
    return ids


def _nodes() -> dict[str, Any]:
    import pyslurm

    partitions = [[p.name, p.is_default, p.max_time, p.max_nodes, p.state] for p in pyslurm.Partitions.load().values()]
    # pyslurm's dictionaries take a GPU type of digits for a count (gpu:3090:4 is 3090 GPUs), and PySlurm 22.05 does not ask for
    # what is in use. Its older interface does, and answers in Slurm's own notation.
    older = pyslurm.node().get() if pyslurm.__version__.startswith("22.") else {}
    nodes = []
    for node in pyslurm.Nodes.load().values():
        cpus = [node.total_cpus, node.allocated_cpus]
        if (shown := older.get(node.name)) is not None:
            gres = [",".join(shown["gres"] or []), ",".join(shown["gres_used"] or [])]
        else:
            gres = [node.configured_gres, node.allocated_gres]
        place = [node.address, node.partitions, list(node.available_features or [])]
        nodes.append([node.name, node.state, cpus, gres, node.real_memory, place, node.reason])
    return {"partitions": partitions, "nodes": nodes}


_QUESTIONS: dict[str, Callable[[], dict[str, Any]]] = {"jobs": _jobs, "nodes": _nodes}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints is no answer
    try:
        import pyslurm

        first: dict[str, Any] = {"version": pyslurm.__version__}
    except Exception as error:
        first = {"broken": f"{type(error).__name__}: {error}"}
    print(json.dumps(first), file=answers, flush=True)
    for line in sys.stdin:
        try:
            answer = _QUESTIONS[json.loads(line)]()
        except pyslurm.RPCError as error:
            answer = {"unavailable": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    sys.path.pop(0)  # this file's folder, whose modules are not top-level ones
    main()
