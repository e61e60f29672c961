"""What goes wrong in a simulated cluster, and how often."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Faults:
    """Mean times are in seconds of virtual time, between two such faults of one node or one running job; None: never.

    The chances are per occasion, between 0 and 1.
    """

    node_failure: float | None = None  # of one node
    repair: float = 600.0  # how long a failed node stays away
    preemption: float | None = None  # of one job: the scheduler takes its slots, with a grace
    loss: float | None = None  # of one job: it is gone and left no evidence
    requeue: float = 1.0  # chance that the scheduler requeues a job that lost its node or was preempted
    crash: float = 0.0  # chance that the master dies at a commit, before or after it
    outage: float = 30.0  # how long the master is away then
    user_error: float = 0.0  # chance that an attempt ends in an error of the training code
    nan: float = 0.0  # chance that a validation gives NaN
    deaf: float = 0.0  # chance that a training does not hear that it should stop
