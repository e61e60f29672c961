"""One round: a search, the monkey, and the verdict. What the test and the benchmark share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.monkey import chain
from tests.monkey.faults import FAULTS, Fault
from tests.monkey.monkey import Monkey
from tests.monkey.verdict import Judge, Verdict
from tests.monkey.world import World

SHAPE = {"nodes": 3, "gpus_per_node": 4, "slurmd_timeout": 15, "message_timeout": 5, "kill_wait": 2}


class Round(NamedTuple):
    verdict: Verdict
    faults: dict[str, int]  # how many of each kind were done


def play(
    world: World,
    seed: str,
    notes: Path,
    *,
    trials: int,
    most: int,
    faults: int | None,
    kinds: Sequence[Fault] = FAULTS,
    patience: float = 600,
) -> Round:
    """A search of so many trials of at most so many steps under so many faults.

    Raises Frozen when it does not end ``patience`` seconds after the last fault.
    """
    world.user.write("context/train.py", chain.TRAIN)
    seeded = {"experiment_seed": sum(map(ord, seed))}
    experiment = world.user.create(**chain.config(trials, most, world.notes), reproducibility=seeded)
    monkey = Monkey(world, seed, notes)
    monkey.torment(experiment, kinds, faults)
    monkey.make_peace(experiment, patience)
    return Round(Judge(world, experiment).judge(), dict(monkey.done))
