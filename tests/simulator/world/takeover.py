"""Two masters: one is stopped between two of its operations, another takes over meanwhile, and then the first goes on."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from dethpc.errors import LeaseHeld

if TYPE_CHECKING:
    from tests.simulator.world.story import Story


def freeze(story: Story, rng: random.Random) -> None:
    """Called where the first master stops. What happens until it returns, happens while that one is frozen."""
    first = story.master
    if first is None or story.frozen is not None or story.calm or story.ringing:
        return
    if story.host.pid != first.pid:
        return  # the one that stops was thawed before, and is not the master any more
    story.say(f"master {first.pid} is frozen in {story.where()}")
    story.frozen_in_write = any(place in story.where() for place in ("row_file.append:", "row_file._replace:"))
    kept = story.database
    story.master, story.frozen = None, first
    try:
        with story.disk.acting(""):
            story.pass_time(75.0)
            story.open_database()
            story.start_master("login2" if first.host == "login1" else "login1")
            if story.master is not None:
                story.pass_time(rng.uniform(0.0, 60.0))
    finally:
        story.frozen = None
        story.host.pid, story.host.name = first.pid, first.host
        story.host.alive.add(first.pid)
    if story.master is None:
        story.say(f"nobody took over from master {first.pid}")
        story.master, story.database = first, kept
        return
    story.counts["another master took over from a frozen one"] += 1
    story.stale, story.stale_effects = first, 0
    story.say(f"master {first.pid} goes on, and {story.master.pid} has taken over")


def must_stop(story: Story) -> None:
    """The first master finds out within its next cycles."""
    first, story.stale = story.stale, None
    assert first is not None
    story.disk.failing.clear()
    for _ in range(3):
        story.clock.sleep(1.5)
        try:
            first.cycle()
        except LeaseHeld:
            break
    else:
        story.judge.fail(f"master {first.pid} goes on although {story.master and story.master.pid} has taken over")
    story.host.alive.discard(first.pid)
