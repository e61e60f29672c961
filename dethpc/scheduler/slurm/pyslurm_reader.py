"""Slurm by its commands, but with the queue read through pyslurm, without starting processes or parsing text.

pyslurm is optional, built from source for the site's Slurm, and lives in a child process with a deadline for every answer. When the
child dies or misses one, the commands do its work from then on, and the log says so once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dethpc.domain.nodes import NodeState
from dethpc.domain.ports import JobRecord
from dethpc.domain.slurm.gres import gpus_of_names, gpus_of_node
from dethpc.errors import SchedulerUnavailable
from dethpc.scheduler.slurm import states
from dethpc.scheduler.slurm.commands import PRINTING, SlurmCommands
from dethpc.scheduler.slurm.hostlist import expand
from dethpc.scheduler.slurm.pools import NodeRow, SlurmPool, node_state
from dethpc.scheduler.slurm.throttle import Throttle

_log = logging.getLogger(__name__)
_CHILD = Path(__file__).with_name("pyslurm_child.py")


class ChildFailed(Exception):
    """The child cannot be used any more."""


class PyslurmChild:
    """One child process. Any thread may ``ask``: one at a time does, for no answer says which question it belongs to.

    ``ask`` raises ChildFailed when the child is dead or misses ``deadline`` seconds; it is killed then.
    """

    def __init__(self, environment: Mapping[str, str], *, python: str = sys.executable, deadline: float = 20) -> None:
        self._deadline = deadline
        self._process = subprocess.Popen(
            [python, str(_CHILD)],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._buffer = b""
        self._lock = threading.Lock()
        first = self._answer()
        if "broken" in first:
            self.close()
            raise ChildFailed(f"pyslurm cannot be imported: {first['broken']}")
        self.version: str = first["version"]

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, question: str) -> dict[str, Any]:
        """Raises SchedulerUnavailable when Slurm does not answer the child."""
        assert self._process.stdin is not None
        with self._lock:
            if self._process.stdin.closed:
                raise ChildFailed("the pyslurm process failed somebody else")
            try:
                self._process.stdin.write(json.dumps(question).encode() + b"\n")
                self._process.stdin.flush()
            except OSError:
                self.close()
                raise ChildFailed("the pyslurm process died") from None
            answer = self._answer()
        if "unavailable" in answer:
            raise SchedulerUnavailable(f"pyslurm: {answer['unavailable']}")
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        end = time.monotonic() + self._deadline
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not ready.select(max(0, end - time.monotonic())):
                    self.close()
                    raise ChildFailed(f"the pyslurm process gave no answer in {self._deadline:g} s")
                chunk = os.read(self._process.stdout.fileno(), 1 << 20)
                if not chunk:
                    self.close()
                    raise ChildFailed("the pyslurm process died")
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer


class SlurmPyslurm(SlurmCommands):
    """``ports.Scheduler``: pyslurm reads jobs, nodes and pools; the commands do the rest, and everything if pyslurm fails.

    ``python``: the interpreter that has pyslurm. ``deadline``: seconds for an answer; Slurm's own MessageTimeout fits in it.
    """

    def __init__(
        self,
        pools: Sequence[SlurmPool] = (),
        *,
        environment: Mapping[str, str] | None = None,
        throttle: Throttle | None = None,
        timeout: float = 60,
        python: str = sys.executable,
        deadline: float = 20,
    ) -> None:
        super().__init__(pools, environment=environment, throttle=throttle, timeout=timeout)
        self.child: PyslurmChild | None = None
        try:
            self.child = PyslurmChild({**self._environment, **PRINTING}, python=python, deadline=deadline)
        except (ChildFailed, OSError) as error:
            self._give_up(error)

    def close(self) -> None:
        if self.child is not None:
            self.child.close()
            self.child = None

    def jobs(self) -> dict[str, JobRecord]:
        answer = self._read("jobs")
        if answer is None:
            return super().jobs()
        records = (_job_record(row) for row in answer["jobs"])
        return {record.job_id: record for record in records}

    def node_rows(self) -> list[NodeRow]:
        answer = self._read("nodes")
        if answer is None or any(_ambiguous(gres) for _, _, _, (gres, _), *_ in answer["nodes"]):
            return super().node_rows()
        return list(_node_rows(answer["partitions"], answer["nodes"]))

    def _read(self, question: str) -> dict[str, Any] | None:
        child = self.child
        if child is None:
            return None
        try:
            return child.ask(question)
        except ChildFailed as error:
            if self.child is child:  # else another thread has said so
                self._give_up(error)
            return None

    def _give_up(self, error: Exception) -> None:
        self.child = None
        _log.warning("%s; reading Slurm by its commands from now on", error)


def _job_record(row: list[Any]) -> JobRecord:
    job_id, word, why, hosts, (code, signal), restarts, (preempted, submitted, start, end), (priority, nice), name = row
    state = states.job_state(word)
    pending = word == "PENDING"
    return JobRecord(
        job_id=str(job_id),
        name=name,
        state=state,
        reason=states.why(word, why or "None"),
        nodes=expand(hosts or ""),
        exit_code=None if state.live or signal else code,
        signal=None if state.live else signal or None,
        restarts=restarts or 0,
        preempted=word == "PREEMPTED" or (preempted is not None and (start is None or preempted >= start)),
        preempted_at=_time(preempted),
        submitted_at=_time(submitted),
        started_at=None if pending else _time(start),
        ended_at=None if state.live else _time(end),
        priority=priority if pending else None,
        nice=(nice or 0) if pending else None,
    )


def _time(value: int | None) -> float | None:
    return float(value) if value else None


def _node_rows(partitions: list[list[Any]], nodes: list[list[Any]]) -> Iterator[NodeRow]:
    of = {name: about for name, *about in partitions}
    for node, word, (cpus, cpus_used), (gres, gres_used), memory, (address, member_of, features), why in nodes:
        state = node_state(word.partition("+")[0])
        if state is NodeState.ALLOCATED and cpus_used < cpus:
            state = NodeState.MIXED  # the library leaves this to sinfo
        for partition in member_of:
            default, limit, size, available = of.get(partition, (False, None, None, "up"))
            yield NodeRow(
                node=node,
                partition=partition,
                default_partition=default,
                state=state,
                gpus=_gpus(gres),
                gpus_used=_gpus(gres_used),
                cpus=cpus,
                cpus_used=cpus_used,
                memory_mb=memory or 0,
                address=address or "",
                max_time=float(limit) * 60 if isinstance(limit, int) else None,
                features=frozenset(features),
                max_nodes=size if isinstance(size, int) else None,
                available=str(available or "up").lower(),
                reason=why or "",
            )


def _ambiguous(gres: dict[str, int] | str) -> bool:
    """pyslurm's dictionary takes a type of digits for a count: ``gpu:3090:4`` and ``gpu:3090`` are both ``{"gpu": 3090}``."""
    return not isinstance(gres, str) and "gpu" in gres


def _gpus(gres: dict[str, int] | str) -> dict[str, int]:
    """By type, of ``{"gpu": 2}``, ``{"gpu:a100": 4}`` or Slurm's own ``gpu:a100:4(IDX:0-3)``."""
    if isinstance(gres, str):
        return gpus_of_node(gres)
    return gpus_of_names(gres)
