"""Identifiers. Experiments and trials are integers; the task of a trial is ``<experiment>.<trial>``, of which a run is
``<task>.<n>``; an attempt is ``<run>.<k>``. Nothing is decided by the form of an id."""

from __future__ import annotations

import re
from typing import NamedTuple

RunId = str

OWNER_ID = 1
"""Of the user who made the installation: the first that there is, and whose everything is that names nobody."""


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


def job_name(cluster: str, run: RunId, title: str = "") -> str:
    """The scheduler's job name of a run, such as ``16.31.1_digits-asha_06a91921``: what a person looks for comes first, as squeue
    shows eight characters. ``title``: the experiment's name, of which characters remain that no program takes for its own. The
    cluster id keeps two installations of one user apart."""
    return "_".join(part for part in (run, plain_title(title), cluster[:8]) if part)


def earlier_job_name(cluster: str, run: RunId) -> str:
    """What earlier releases called the run's job; such a job can still wait or run."""
    return f"det-{cluster[:8]}-{run}"


def run_of_job(cluster: str, name: str) -> RunId:
    """The run that a job of this name was submitted for; empty when it is no job of this cluster's."""
    earlier = earlier_job_name(cluster, "")
    if name.startswith(earlier):
        return name[len(earlier) :]
    run, _, rest = name.partition("_")
    return run if rest.rpartition("_")[2] == cluster[:8] else ""


def element_id(array: str, index: int) -> str:
    """Slurm's id of one element of a job array, from its submission on: ``57_3``. It has another number of its own only once it is
    about to start, and no two elements ever share this one."""
    return f"{array}_{index}"


def element_of(job_id: str) -> int | None:
    """Which element of its job array the job is; None: it is of none."""
    array, _, index = job_id.partition("_")
    return int(index) if array.isdecimal() and index.isdecimal() else None


def job_number(job_id: str) -> int:
    """Jobs of one scheduler by the order in which they came, elements of an array by their index; 0 for what is no job id."""
    array, _, index = job_id.partition("_")
    if not array.isdecimal():
        return 0
    return (int(array) << _INDEX_BITS) + (int(index) if index.isdecimal() else 0)


_INDEX_BITS = 22  # of the largest MaxArraySize that Slurm takes

_LONGEST_TITLE = 32


def plain_title(text: str) -> str:
    """``text`` in ASCII letters, digits, ``.`` and ``-``, cut where it is long; empty when nothing of it remains."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text)[:_LONGEST_TITLE].strip("-.")
