"""What befalls the world, by kind, and what its users want."""

from __future__ import annotations

import errno
import random
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from dethpc.domain.ports import JobState
from dethpc.domain.states import State
from dethpc.engine import events
from tests.simulator.world.damage import Damage
from tests.simulator.world.elsewhere import see_again, start_elsewhere
from tests.simulator.world.slurm import KILL_WAIT, Mood
from tests.simulator.world.takeover import freeze

if TYPE_CHECKING:
    from tests.simulator.world.story import Story

CLOSED = "Required partition not available (inactive or drain)"

EXPLAINED = {
    "runs in a row ended without training": (),
    "no progress, run after run": (),
    "restarts)": (),
    "failed twice in the same way": (),
    "the run directory cannot be written": ("disk", "damage"),
}
"""Why a trial may be given up in the end, and the kinds of faults without which it may not."""


class Trouble:
    def __init__(self, story: Story) -> None:
        self._story, self._rng = story, random.Random(f"trouble:{story.seed}")
        self._returning = random.Random(f"continue:{story.seed}")
        self.damage = Damage(story, self._rng)
        self._kinds: dict[str, tuple[float, Callable[[], bool | None]]] = {
            "node lost": (2, self._node_lost),
            "preempted": (2, self._preempted),
            "queued again": (1, self._queued_again),
            "cancelled outside": (0.5, self._cancelled),
            "time limit": (1, self._time_limit),
            "job killed": (1, self._job_killed),
            "node's process killed": (1.5, self._node_process_killed),
            "slurmctld silent": (1, lambda: self._mood(5, 120, silent=True)),
            "sbatch answers lost": (1, lambda: self._mood(10, 120, loses_answers=0.7)),
            "squeue partial": (1, lambda: self._mood(10, 90, listing="partial")),
            "squeue empty": (1, lambda: self._mood(10, 60, listing="empty")),
            "slurmctld forgets": (0.5, lambda: self._story.slurm.forget(ids_again=False)),
            "slurmctld gives ids again": (0.5, lambda: self._story.slurm.forget(ids_again=True)),
            "partition drained": (1, lambda: self._mood(20, 300, defers=CLOSED)),
            "submissions refused": (1, lambda: self._mood(20, 300, rejects="Invalid account")),
            "arrays refused": (1, lambda: self._mood(20, 300, no_arrays="Invalid job array specification")),
            "partition down": (0.5, lambda: self._mood(20, 300, down=True)),
            "node drained": (1, self._drained),
            "clock jump": (0.5, self._clock_jump),
            "master to be killed": (4, self._master_killed),
            "master frozen, another takes over": (0.5, self._frozen),
            "master frozen in its renewal": (0.2, self._frozen_in_renewal),
            "master cannot see the scheduler": (0.5, lambda: start_elsewhere(self._story, self._rng)),
            "disk full": (1, lambda: self._disk(errno.ENOSPC)),
            "disk fails": (1, lambda: self._disk(errno.EIO)),
            "database full": (0.7, self._database_full),
            "database unreadable": (0.5, self._database_unreadable),
            "file damaged": (1.5, self.damage.some_file),
            "journal damaged": (0.5, self.damage.some_journal),
            "checkpoint damaged": (1, self.damage.some_checkpoint),
            "garbage in a change log": (0.5, self.damage.garbage),
            "unsynced tail lost": (1, self.damage.tail_lost),
            "database restored": (0.4, self.damage.restore),
            "database deleted": (0.2, self.damage.delete_database),
        }

    def strike(self) -> None:
        story = self._story
        if self._rng.random() < 0.2:
            self.damage.back_up()
        names = list(story.faults.kinds or self._kinds)
        (kind,) = self._rng.choices(names, [self._kinds[name][0] for name in names])
        if self._kinds[kind][1]() is not False:
            story.count(kind)

    def heal(self) -> None:
        story = self._story
        see_again(story)
        story.slurm.mood = Mood()
        story.disk.failing.clear()
        story.disk.spare()
        story.database_fails, story.database.unreadable = "", False
        for node in story.slurm.nodes_:
            node.up, node.drained = True, False
        story.slurm.start_jobs()

    def later(self, low: float, high: float, do: Callable[[], object]) -> None:
        self._story.clock.after(self._rng.uniform(low, high), lambda: do() and None)

    # --- jobs and nodes

    def _running(self) -> list:  # type: ignore[type-arg]
        return self._story.slurm.running()

    def _node_lost(self) -> bool:
        up = [node for node in self._story.slurm.nodes_ if node.up]
        if not up:
            return False
        node = self._rng.choice(up)
        self._story.slurm.lose_node(node, zombies=self._rng.random() < 0.6, requeue=self._rng.random() < 0.7)

        def repair() -> None:
            node.up = True
            self._story.slurm.start_jobs()

        self.later(10, 300, repair)
        return True

    def _preempted(self) -> bool:
        jobs = [job for job in self._running() if job.ending is None and not job.requeue]
        if jobs:
            grace = self._rng.choice([1.0, 30.0, 120.0])
            self._story.slurm.preempt(self._rng.choice(jobs), requeue=self._rng.random() < 0.6, grace=grace)
        return bool(jobs)

    def _told(self, ending: JobState | None, *, requeue: bool, word: str, grace: float) -> bool:
        jobs = [job for job in self._running() if job.ending is None and not job.requeue]
        if jobs:
            self._story.slurm.signal(self._rng.choice(jobs), ending, requeue=requeue, word=word, grace=grace)
        return bool(jobs)

    def _queued_again(self) -> bool:
        return self._told(None, requeue=True, word="preempted", grace=10.0)

    def _cancelled(self) -> bool:
        return self._told(JobState.CANCELLED, requeue=False, word="preempted", grace=KILL_WAIT)

    def _time_limit(self) -> bool:
        return self._told(JobState.TIMEOUT, requeue=False, word="time_limit", grace=30.0)

    def _job_killed(self) -> bool:
        jobs = self._running()
        if jobs:
            self._rng.choice(jobs).process.end(137)
        return bool(jobs)

    def _node_process_killed(self) -> None:
        self._story.disk.strike("node", self._rng.randint(1, 40), self._story.disk.kill)

    def _drained(self) -> bool:
        nodes = [node for node in self._story.slurm.nodes_ if not node.drained]
        if not nodes:
            return False
        node = self._rng.choice(nodes)
        node.drained = True
        self.later(30, 300, lambda: setattr(node, "drained", False) or self._story.slurm.start_jobs())
        return True

    # --- slurmctld

    def _mood(self, low: float, high: float, **wrong: object) -> None:
        mood = self._story.slurm.mood
        for name, value in wrong.items():
            setattr(mood, name, value)

        def over() -> None:
            if self._story.slurm.mood is mood:
                for name in wrong:
                    setattr(mood, name, getattr(Mood(), name))
                self._story.slurm.start_jobs()

        self.later(low, high, over)

    def was_taken(self, name: str) -> bool:
        """Whether a job of the same experiment has run for a while: the master knows that Slurm took it."""
        experiment = name.partition(".")[0]
        began = self._story.judge.began.get(experiment)
        return began is not None and self._story.clock.now - began > 120.0

    # --- the master's machine

    def _clock_jump(self) -> None:
        self._story.clock.skew += self._rng.choice([-1, 1]) * self._rng.choice([5.0, 300.0, 3600.0, 86400.0])

    def _master_killed(self) -> None:
        self._story.disk.strike("master", self._rng.randint(1, 80), self._story.disk.kill)

    def _frozen(self) -> bool:
        if self._story.master is None:
            return False
        self._story.disk.strike("master", self._rng.randint(1, 80), lambda: freeze(self._story, self._rng))
        return True

    def _frozen_in_renewal(self) -> bool:
        story, master = self._story, self._story.master
        if master is None:
            return False
        write_over = master.daemon.lease._write_over

        def frozen(looked: float) -> None:
            del master.daemon.lease._write_over  # type: ignore[attr-defined]
            freeze(story, self._rng)
            write_over(looked)

        master.daemon.lease._write_over = frozen  # type: ignore[method-assign]
        return True

    def _disk(self, number: int) -> None:
        story = self._story
        actors = self._rng.choice([("master",), ("node",), ("master", "node")])
        for actor in actors:
            story.disk.failing[actor] = (self._rng.choice([0.05, 0.3, 1.0]), number)
        self.later(3, 60, lambda: [story.disk.failing.pop(actor, None) for actor in actors])

    def _database_full(self) -> None:
        self._story.database_fails = "the database failed: database or disk is full"
        self.later(1, 40, lambda: setattr(self._story, "database_fails", ""))

    def _database_unreadable(self) -> None:
        self._database_full()
        database = self._story.database
        database.unreadable = True
        self.later(1, 40, lambda: setattr(database, "unreadable", False))

    # --- users

    def wish(self) -> None:
        story = self._story
        if story.master is None:
            return
        at, state = story.clock.wall(), story.master.ledger.state
        if self._returning.random() < 0.2:  # of their own, so that the other wishes of a seed stay as they are
            story.count("wish: continue")
            story.go_on(self._returning.randint(1, max(1, state.next_experiment_id - 1)))
        open_ = list(state.experiments.values())
        kind = self._rng.choice(["pause", "pause", "activate", "cancel", "kill", "kill trial", "delete", "move"])
        if not open_ and kind != "delete":
            return
        story.count(f"wish: {kind}")
        if kind == "delete":
            id = self._rng.randint(1, max(1, state.next_experiment_id - 1))
            story.wish(events.Delete(id, str(uuid.UUID(int=self._rng.getrandbits(128))), at))
            return
        experiment = self._rng.choice(open_)
        id = experiment.row.id
        if kind == "kill trial":
            story.wish(events.KillTrial(self._rng.choice(experiment.trials).id, at))
        elif kind == "move":
            change = events.QueueChange(experiment.row.queue_id, priority=self._rng.randint(1, 99))
            story.wish(events.UpdateQueue([change], at))
        else:
            wishes = {"pause": events.Pause, "activate": events.Activate, "cancel": events.Cancel, "kill": events.Kill}
            if kind != "activate" or experiment.row.state is State.PAUSED:
                story.wish(wishes[kind](id, at))

    # --- what the judge asks

    def refused(self, why: str) -> None:
        self.damage.rebuild(why)

    def explains(self, reason: str) -> bool:
        for words, kinds in EXPLAINED.items():
            if words in reason:
                return not kinds or any(kind in name for name in self._story.counts for kind in kinds)
        return False
