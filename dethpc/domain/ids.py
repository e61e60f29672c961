"""Identifiers. Experiments and trials are integers; the task of a trial is ``<experiment>.<trial>``, of which a run is
``<task>.<n>``; an attempt is ``<run>.<k>``. Nothing is decided by the form of an id."""

from __future__ import annotations

from typing import NamedTuple

RunId = str


class AttemptId(NamedTuple):
    """One start of a run. ``str()`` of it is Determined's allocation id."""

    run: RunId
    number: int

    def __str__(self) -> str:
        return f"{self.run}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> AttemptId:
        """Raises ValueError when ``text`` is not an attempt id."""
        run, dot, number = text.rpartition(".")
        if not dot or not run or not number.isdigit():
            raise ValueError(f"not an attempt id: {text!r}")
        return cls(run, int(number))


def run_id(task: str, number: int) -> RunId:
    """``number`` counts the runs of the task from 1."""
    return f"{task}.{number}"


def task_id(experiment: int, trial: int) -> str:
    """Determined's task id of a trial: what its runs have in common."""
    return f"{experiment}.{trial}"


def scratch_name(cluster: str, attempt: AttemptId, node: int) -> str:
    """How the name begins of what an attempt keeps on the disk of its node of that rank."""
    return f"{cluster[:8]}-{attempt}-{node}"


def job_name(cluster: str, run: RunId) -> str:
    """The scheduler's job name of a run; the cluster id keeps two installations of one user apart."""
    return f"det-{cluster[:8]}-{run}"
