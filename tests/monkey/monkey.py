"""A seeded monkey: it breaks things while a search goes on, writes down what it did, and plays the people who look after them.

The kinds of its faults, what it waits for before each, how long each lasts and how it chooses whom it meets follow from the seed.
Where the world's own timing is another, the same choice may meet another job.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dethpc.errors import DethpcError
from tests.monkey.faults import Fault, NothingThere, Undo
from tests.monkey.world import World

LONGEST_WAIT = 10.0
"""Seconds after which the next fault comes although nothing goes on."""

CANNOT = (DethpcError, OSError, subprocess.TimeoutExpired)
"""What a command or a file says while something else is broken."""

TERMINAL = ("STATE_COMPLETED", "STATE_CANCELED", "STATE_ERROR")


class Frozen(AssertionError):
    """The search did not end although nothing was broken any more."""


class Monkey:
    def __init__(self, world: World, seed: str, notes: Path) -> None:
        self.world, self.seed = world, seed
        self.world.rng = random.Random(f"{seed}:targets")
        self._notes = notes
        self._undos: list[tuple[float, int, Fault, Callable[[], object]]] = []
        self._held: Counter[str] = Counter()
        self._number = itertools.count()
        self._owner_at = 0.0
        self._began = time.monotonic()
        self.done: Counter[str] = Counter()
        self._note(seed=seed)

    def plan(self, faults: Sequence[Fault], count: int | None) -> Iterator[tuple[Fault, int, float]]:
        """What comes next, after how many more bytes of reports, and for how long: the same for the same seed.

        Every kind comes before any comes again.
        """
        rng = random.Random(f"{self.seed}:plan")
        kinds: list[Fault] = []
        for _ in itertools.count() if count is None else range(count):
            if not kinds:
                kinds = rng.sample(list(faults), len(faults))
            fault = kinds.pop()
            yield fault, rng.randint(0, 15000), rng.uniform(*fault.hold)

    def torment(self, experiment: int, faults: Sequence[Fault], count: int | None = None) -> None:
        """Break things until the experiment ends or ``count`` faults have been tried. Some may still last."""
        for fault, growth, hold in self.plan(faults, count):
            start, began = self.world.written(), time.monotonic()
            while self._busy(fault) or (
                self.world.written() < start + growth and time.monotonic() < began + LONGEST_WAIT
            ):
                if self._look_after(experiment):
                    return
                time.sleep(0.1)
            self._try(fault, hold)

    def make_peace(self, experiment: int, timeout: float) -> None:
        """Mend what is broken, and wait for the end. Raises Frozen when it does not come."""
        self._undos = [(0.0, number, fault, undo) for _, number, fault, undo in self._undos]
        heapq.heapify(self._undos)
        deadline = time.monotonic() + timeout
        while not self._look_after(experiment) or self._undos:
            if time.monotonic() > deadline:
                raise Frozen(f"experiment {experiment} has not ended {timeout:.0f} s after the last fault")
            time.sleep(0.2)
        self._note(peace=True)

    def _busy(self, fault: Fault) -> bool:
        return any(self._held[part] for part in fault.parts)

    def _try(self, fault: Fault, hold: float) -> None:
        try:
            target, undo = fault.do(self.world)
        except NothingThere:
            return self._note(kind=fault.kind, skipped="nothing there")
        except CANNOT as error:
            return self._note(kind=fault.kind, skipped=str(error))
        self.done[fault.kind] += 1
        self._note(kind=fault.kind, target=target, seconds=round(hold, 1) if undo else None)
        if undo:
            self._hold(fault, undo, time.monotonic() + hold)

    def _hold(self, fault: Fault, undo: Callable[[], object], until: float) -> None:
        heapq.heappush(self._undos, (until, next(self._number), fault, undo))
        self._held.update(fault.parts)

    def _undo_due(self) -> None:
        for _ in range(len(self._undos)):
            if not self._undos or self._undos[0][0] > time.monotonic():
                return
            _, _, fault, undo = heapq.heappop(self._undos)
            self._held.subtract(fault.parts)
            try:
                undo()
            except CANNOT as error:
                self._note(kind=fault.kind, not_yet_undone=str(error))
                self._hold(fault, undo, time.monotonic() + 1.0)
            else:
                self._note(kind=fault.kind, undone=True)

    # --- the people who look after it --------------------------------------------------------------------------------------

    def _look_after(self, experiment: int) -> bool:
        """Undo what is due, do what owner and administrator would do. True: the experiment has ended."""
        self._undo_due()
        if time.monotonic() < self._owner_at:
            return False
        self._owner_at = time.monotonic() + 1.5
        if not self._held["slurmctld"]:
            with contextlib.suppress(*CANNOT):
                self._administrate()
        if self._held["master"]:
            return False
        try:
            return self._own(experiment)
        except (*CANNOT, KeyError, ValueError):
            with contextlib.suppress(*CANNOT):
                self.world.user.det("experiment", "list", code=None, timeout=120)  # starts a master where none is
            return False

    def _own(self, experiment: int) -> bool:
        user = self.world.user
        state = user.experiment(experiment)["state"]
        if state in TERMINAL:
            return True
        if any(trial["state"] == "STATE_PAUSED" for trial in user.trials(experiment)):
            user.api("POST", f"/api/v1/experiments/{experiment}/activate")
        return False

    def _administrate(self) -> None:
        """Give back to service what Slurm has put aside by itself."""
        world = self.world
        if not self._held["nodes"] and not self._held["slurm disk"]:
            for node, state in world.cluster.node_states().items():
                if state.startswith(("down", "drain", "drng")):
                    self._note(resumes=node, state=state)
                    world.restart_node(node)
        if not self._held["jobs"]:
            for line in world.slurm("squeue", "--me", "--array", "--noheader", "--format=%i %j %r").splitlines():
                job, name, why = line.split(None, 2)
                if name != "mine" and why.startswith(("JobHeld", "launch failed", "job requeued in held")):
                    self._note(releases=job, reason=why)
                    world.slurm("scontrol", "release", job)

    def _note(self, **words: Any) -> None:
        with open(self._notes, "a") as file:
            file.write(json.dumps({"at": round(time.monotonic() - self._began, 1), **words}, default=str) + "\n")


__all__ = ["Frozen", "Monkey", "Undo"]
