"""Runs whose jobs another scheduler has: this master's own knows nothing of them, which is no evidence that they are over.

Their directories are read as those of all runs: what a run says itself counts, whoever asks.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable

from dethpc.domain.facts import Run
from dethpc.domain.ports import Scheduler
from dethpc.engine.state import ClusterState
from dethpc.errors import Refused
from dethpc.master.scheduler_settings import SchedulerSettings
from dethpc.master.watching.live_runs import LiveRun
from dethpc.rundir.home import Home

log = logging.getLogger(__name__)

GIVE_UP = "det master take-over"


class ForeignRuns:
    """``before``: how the last master reached its scheduler, ``now`` how this one does. Runs of an earlier release do not say which
    scheduler has them: it is the one of ``before``.

    ``runs``: those of which nothing can be learned, each with its job and its scheduler in words; ``notice``: what to tell whoever
    looks at runs, "" when there are none. Any thread may read both.
    """

    def __init__(self, scheduler: Scheduler, before: SchedulerSettings, now: SchedulerSettings) -> None:
        self._scheduler, self._now = scheduler, now
        self._earlier_are_here = before.is_same_as(now)
        self._before = _unnamed(before)
        self._here: str | None = None  # the identity of this master's scheduler, once it has said it
        self._wanted = threading.Event()
        self.notice = ""
        self.runs: list[tuple[str, str, str]] = []

    @classmethod
    def begin(cls, scheduler: Scheduler, before: SchedulerSettings, home: Home, state: ClusterState) -> ForeignRuns:
        """For a master that starts, and is remembered from now on. Raises OSError; Refused where runs are open at another kind."""
        check_kind(state, before, scheduler.kind)
        now = SchedulerSettings.of_this_process(scheduler.kind)
        now.write(home)
        return cls(scheduler, before, now)

    def here(self) -> str:
        """The identity of this master's scheduler. Raises SchedulerUnavailable."""
        if self._here is None:
            self._here = self._scheduler.identity
        return self._here

    def of(self, live: LiveRun) -> str:
        """The identity of the scheduler that has, or may have, the run's job. Raises SchedulerUnavailable."""
        return self._of(live.run, live.handed_to)

    def has(self, live: LiveRun) -> bool:
        """Whether this master's scheduler cannot tell what became of the run. Raises SchedulerUnavailable."""
        return live.handed_over and self.of(live) != self.here()

    def unsaid(self, live: LiveRun) -> str:
        """What the row of a run of an earlier release lacks, whose scheduler is another one: the next master cannot know it."""
        scheduler = live.run.scheduler or live.handed_to or self._earlier_are_here
        return self._before if live.handed_over and not scheduler else ""

    def _of(self, run: Run, handed_to: str) -> str:
        return run.scheduler or handed_to or (self.here() if self._earlier_are_here else self._before)

    # --- for people

    def why(self, run: Run) -> str:
        """In words, why nothing is known of the run's job; "" where its scheduler can be asked."""
        if self._here is None or run.scheduler_job_id is None or (name := self._of(run, "")) == self._here:
            return ""
        return f"job {run.scheduler_job_id} belongs to {title(name)}, which this master cannot ask: it serves {title(self._here)}"

    def look(self, runs: Iterable[LiveRun], unavailable: str) -> None:
        """Bring ``runs`` and ``notice`` up to date. ``unavailable``: why the scheduler gave no answer last."""
        live = [entry for entry in runs if entry.handed_over]
        if unavailable:
            kind = _KINDS.get(self._now.kind, "the scheduler")
            self.runs = [
                (entry.run.id, entry.run.scheduler_job_id or "", f"{kind}, which gives no answer") for entry in live
            ]
            self._say(f"{kind} gives no answer ({unavailable}): {_count(len(live))} shown as last seen" if live else "")
            return
        names = [(entry.run, name) for entry in live if (name := self.of(entry)) != self.here()]
        self.runs = [(run.id, run.scheduler_job_id or "", title(name)) for run, name in names]
        counts = Counter(name for _, name in names)
        self._say("; ".join(self._notice_on(name, count) for name, count in sorted(counts.items())))

    def _notice_on(self, name: str, count: int) -> str:
        kind, place, _ = _parts(name)
        go_on = f"run det on {place}" if kind == "local" else "run det in a shell that is set up for it"
        return (
            f"{_count(count)} at {title(name)}, and this master serves {title(self.here())}: nothing is concluded there, and "
            f"no trial starts again. To continue there: det master down, then {go_on}. If all there is over: {GIVE_UP}"
        )

    def _say(self, notice: str) -> None:
        if notice and notice != self.notice:
            log.warning("%s", notice)
        self.notice = notice

    # --- their owner says that they are over

    def take_over(self) -> None:
        """From now on they count as over. Any thread may call it."""
        self._wanted.set()

    def taken_over(self) -> bool:
        """Whether that was said since the last call."""
        requested = self._wanted.is_set()
        self._wanted.clear()
        return requested


def check_kind(state: ClusterState, before: SchedulerSettings, kind: str) -> None:
    """Raises Refused where runs are open at a scheduler of another kind: their trials would be trained twice."""
    open_runs = [run for run in state.runs.values() if run.scheduler_job_id is not None and state.submits(run)]
    names = {run.id: run.scheduler or _unnamed(before) for run in open_runs if run.scheduler or before.kind}
    other = sorted(run for run, name in names.items() if _parts(name)[0] not in ("", kind))
    if not other:
        return
    first, shown = names[other[0]], ", ".join([*other[:3], *["..."] * (len(other) > 3)])
    raise Refused(
        f"{_count(len(other))} open at {title(first)} ({shown}), and a master that serves {_KINDS[kind]} cannot ask "
        f"what became of them. Start one that can: DETHPC_SCHEDULER={_parts(first)[0]} det master up. Once these runs "
        f"have ended, or were given up by {GIVE_UP}, the master may serve another scheduler"
    )


def _unnamed(before: SchedulerSettings) -> str:
    """The identity of the scheduler of runs that do not say it, and that another one is asked about: equal to none that says it."""
    place = before.host if before.kind == "local" else before.slurm_conf
    return f"{before.kind}:{place}:?" if before.kind else ":?"


_KINDS = {"slurm": "Slurm", "local": "this machine without Slurm"}


def title(identity: str) -> str:
    """``the Slurm cluster NAME (controller HOST)`` or ``the machine HOST without Slurm``."""
    kind, name, rest = _parts(identity)
    if kind == "local":
        return f"the machine {name or 'of an earlier master'} without Slurm"
    if not kind:
        return "the scheduler of an earlier master"
    if rest == "?":
        return f"the Slurm of {name or 'an earlier master'}"
    cluster, _, controller = name.partition("@")
    return f"the Slurm cluster {cluster or 'without a name'}" + (f" (controller {controller})" if controller else "")


def _parts(identity: str) -> tuple[str, str, str]:
    kind, _, rest = identity.partition(":")
    name, _, rest = rest.partition(":")
    return kind, name, rest


def _count(runs: int) -> str:
    return "1 run is" if runs == 1 else f"{runs} runs are"
