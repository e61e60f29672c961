"""What a simulation is given: how large the cluster is, and how fast trials train on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Site:
    """The cluster. ``load`` is the share of its slots, 0 to below 1, that jobs of other users hold on average."""

    nodes: int = 4
    slots_per_node: int = 8
    load: float = 0.0
    load_duration: float = 3600.0  # mean seconds of such a job
    weights: bool = True  # False: all jobs have the least priority, whatever their nice


@dataclass(frozen=True)
class Pace:
    """How fast a trial trains. A step is one unit of the searcher's length (batch, epoch, ...)."""

    startup: float = 30.0  # seconds from getting slots to the first step
    step: float = 1.0  # seconds
    stop: float = 0.0  # seconds to write a checkpoint and leave when asked to
    spread: float = 0.0  # standard deviation of the logarithm of a trial's speed: some are slower than others
    length: int | None = None  # steps of a whole trial; None: what the searcher says, else 100
    validation_period: int | None = (
        None  # steps; None: a tenth of the length, and where the searcher wants to compare trials
    )
    checkpoint_each: int = 0  # validations between two checkpoints; 0: only at the end
