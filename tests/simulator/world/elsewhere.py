"""What a master has for its scheduler that starts where that of its runs cannot be asked: none, or another cluster."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dethpc.errors import SchedulerUnavailable, SubmitDeferred
from tests.simulator.world.slurm import Mood, Slurm

if TYPE_CHECKING:
    from tests.simulator.world.story import Story

OTHER = "slurm:other@login2:/other"
"""The identity of the other cluster."""


class Unreachable:
    """Slurm's commands are missing there, or nobody answers them."""

    kind, largest_array, settle = "slurm", 1001, 30.0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name == "identity":
            raise SchedulerUnavailable("no slurmctld answers here")

        def asked(*_: object) -> Any:
            raise (SubmitDeferred if name.startswith("submit") else SchedulerUnavailable)("no slurmctld answers here")

        return asked


def start_elsewhere(story: Story, rng: random.Random) -> bool:
    """The master is killed, and the next one cannot see the jobs of its runs. A while later it ends, and one that can follows."""
    if story.master is None or story.frozen is not None or story.stale is not None or story.sees is not story.slurm:
        return False
    story.sees = rng.choice([Unreachable(), _another_cluster(story)])
    story.lose_master(rng.uniform(0.5, 5.0))
    story.clock.after(rng.uniform(20.0, 600.0), lambda: see_again(story))
    return True


def see_again(story: Story) -> None:
    if story.sees is not story.slurm:
        story.sees = story.slurm
        if story.master is not None:
            story.lose_master(1.0)


def _another_cluster(story: Story) -> Slurm:
    """It lists none of the jobs, in good order, and takes none at present."""
    slurm = story.slurm
    other = Slurm(
        slurm.clock, random.Random(0), slurm.begin, slurm.point, slurm.forbidden, slurm.may_reject, slurm.acted
    )
    other.mood, other.identity = Mood(defers="the partition is closed"), OTHER
    return other
