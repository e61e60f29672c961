"""Trials that ended some hours ago leave one file each: their run directories are folded into an archive (``rundir.folded``).

One trial at a time, on a thread that rests longer than it works. An archive is written beside the directories, brought to disk and
read back; it takes their place in one rename, and only then they go. What is there twice because a master was killed in between
is the same twice, and goes with the next look.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from sqlalchemy import Connection

from dethpc.domain.facts import Run
from dethpc.master.rounds import Rounds
from dethpc.rundir import archives, folded
from dethpc.rundir.archives import GOING, PART, Trial, late_of
from dethpc.rundir.files import sync_name
from dethpc.rundir.fold_writer import DirectoryContents, Source, look, prove, sources, write
from dethpc.rundir.home import Home
from dethpc.rundir.tree import remove
from dethpc.state import SqlStore, queries
from dethpc.state.dialects import chunks

log = logging.getLogger(__name__)

SETTLED = 10.0
"""Seconds after a trial's end in which its jobs may still write, or take the next run."""

FIRST, EVERY = 30.0, 600.0
"""Seconds after its start, and between two times, that a master looks for trials to fold; sooner where they are folded sooner."""

REST, LONGEST_REST = 3.0, 10.0
"""How many times as long as it has worked it rests, and for how many seconds at most."""

_LONGEST_WAIT = 86400.0  # before a trial that cannot be folded is tried again
_LOGS = re.compile(r"[^/]+/(slurm\.log|waiting-\d+\.log|attempts/\d+/logs/.*)", re.DOTALL)


class Folding:
    """``hours`` after a trial's end that it is folded; None: never. ``live``: the runs that have not ended. ``check`` raises
    LeaseHeld when this master is not the one any more."""

    def __init__(
        self,
        store: SqlStore,
        home: Home,
        check: Callable[[], None],
        live: Callable[[], Collection[Run]],
        hours: float | None,
    ) -> None:
        self._store, self._home, self._check, self._live, self._hours = store, home, check, live, hours
        self._one = threading.Lock()  # one trial at a time
        self._waits: dict[Trial, tuple[float, float]] = {}  # cannot be folded: until when it waits, and how long
        self._since = time.monotonic()  # when it began to work
        soon = (hours or 0.0) * 900
        self._rounds = Rounds(
            "folding",
            lambda: self.fold_due(time.time()),
            max(1.0, min(EVERY, soon)),
            first=max(1.0, min(FIRST, soon)),
            trouble="trials that have ended could not be folded",
        )

    def start(self) -> None:
        if self._hours is not None:
            self._rounds.start()

    def stop(self) -> None:
        self._rounds.stop()

    def fold_due(self, now: float) -> int:
        """Fold what is due; how many trials were. Raises LeaseHeld, StoreError, OSError of the folder of all runs."""
        self._since = time.monotonic()
        done = 0
        for trial in self._due(self._with_directories(), now):
            until, waited = self._waits.get(trial, (0.0, 0.0))
            if time.monotonic() < until:
                continue
            try:
                done += self.fold(trial)
                self._waits.pop(trial, None)
            except (OSError, RecursionError) as error:
                log.warning("the directories of trial %s stay as they are: %s", trial.trial, error)
                longer = min(max(2 * waited, EVERY), _LONGEST_WAIT)
                self._waits[trial] = time.monotonic() + longer, longer
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                    return done  # that is no trial's own
            self._rest()
        return done

    def _with_directories(self) -> list[Trial]:
        """Trials of which there are run directories. What a killed master left of an archive, or of directories, goes."""
        trials = set()
        for name in os.listdir(self._home.runs):
            if name.endswith((PART, GOING)) and archives.belongs_to_trial(name):
                with self._one:
                    _remove(self._home.runs / name)
            elif parsed := archives.trial_of(name):
                trials.add(parsed[0])
            elif (replaced := archives.trial_of(name.removesuffix(".zip"))) is not None:
                if replaced[1] < self._home.archives.last(replaced[0]):  # a later one holds these runs, too
                    _remove(self._home.runs / name)
        return sorted(trials)

    def _due(self, trials: list[Trial], now: float) -> Iterable[Trial]:
        until = now - max(SETTLED, (self._hours or 0.0) * 3600)
        for some in chunks(trials):
            with self._store.read() as connection:
                over = set(queries.trials_that_are_over(connection, [trial.trial for trial in some], until))
                copied = self._being_copied(connection)
            yield from (
                trial
                for trial in some
                if trial.trial in over and trial.experiment not in copied and self._quiet(trial, until)
            )

    def _being_copied(self, connection: Connection) -> set[int]:
        """Experiments whose files are being taken in: not all of a trial need be there yet."""
        with contextlib.suppress(FileNotFoundError):
            experiments = [queries.experiment_of_copy(connection, name) for name in os.listdir(self._home.copies)]
            return {row.id for row in experiments if row is not None}
        return set()

    def _quiet(self, trial: Trial, until: float) -> bool:
        """Whether nothing was written of it after it was folded, since that time."""
        for number in range(1, self._home.archives.last(trial) + 1):
            late = late_of(self._home.run(trial.run(number)).path)
            with contextlib.suppress(OSError):
                if late and any(path.lstat().st_mtime > until for path in [late, *late.rglob("*")]):
                    return False
        return True

    # --- one trial

    def without_logs(self, trial_id: int, run_ids: Iterable[str]) -> bool:
        """Leave the logs of these runs, as far as they are folded, out of their archive; whether there were any. Raises OSError."""
        trials = {parsed[0] for run_id in run_ids if (parsed := archives.trial_of(run_id))}
        there = False
        for trial in trials:
            last = self._home.archives.last(trial)
            if trial.trial != trial_id or not last:
                continue
            tops = [self._home.find(trial.run(number)) for number in range(1, last + 1)]
            if any(run.attempt(k).nodes_with_logs() for run in tops for k in run.attempts()):
                self._since = time.monotonic()
                there = self.fold(trial, last, lambda path: not _LOGS.fullmatch(path)) or there
        return there

    def fold(self, trial: Trial, last: int | None = None, keep: Callable[[str], bool] | None = None) -> bool:
        """Put the runs of a trial that is over, up to number ``last``, into its archive; what ``keep`` refuses, is deleted.

        False: it is not over, is being changed, or there was nothing to do. Raises OSError, Unfit, LeaseHeld."""
        with self._one:
            runs = self._runs(trial)
            last = last or max(runs, default=0)
            before = self._home.archives.last(trial)
            if not runs or last < before:
                return False
            tops = self._tops(trial, last, before)
            seen = {top: look(top) for top in tops}
            if before == last and not seen and keep is None:
                self._take_away(trial, last, {})
                return False
            files, left_out = self._contents(trial, last, before, seen)
            files = [source for source in files if keep is None or keep(source.path)]
            target = self._home.runs / archives.archive_of(trial.run(last))
            part = target.with_name(target.name + PART)
            try:
                for piece in (write(part, files, left_out), prove(part, [source.path for source in files])):
                    for _ in piece:
                        self._rest()
                return self._published(trial, last, before, part, target, seen)
            finally:
                with contextlib.suppress(OSError):
                    part.unlink()

    def _runs(self, trial: Trial) -> dict[int, Run]:
        """The runs of a trial that is over, by number; {} where it is not, or where a run has an id of another form."""
        with self._store.read() as connection:
            if not queries.trials_that_are_over(connection, [trial.trial], time.time()):
                return {}
            runs = queries.runs_of_trial(connection, trial.trial)
        jobs = {run.scheduler_job_id for run in self._live()} - {None}
        if any(run.id != trial.run(run.number) or run.scheduler_job_id in jobs for run in runs):
            return {}
        return {run.number: run for run in runs}

    def _tops(self, trial: Trial, last: int, before: int) -> dict[Path, str]:
        """The folders whose files go into the archive, with their runs."""
        tops = {}
        for number in range(1, last + 1):
            path = self._home.run(trial.run(number)).path
            top = late_of(path) if number <= before else path
            if top and os.path.lexists(top):
                tops[top] = trial.run(number)
        return tops

    def _contents(
        self, trial: Trial, last: int, before: int, seen: dict[Path, DirectoryContents]
    ) -> tuple[list[Source], list[tuple[str, str]]]:
        files: list[Source] = []
        left_out: list[tuple[str, str]] = []
        if before:
            left_out += folded.index_of(self._home.runs / archives.archive_of(trial.run(before))).left_out
        for number in range(1, last + 1):
            run_id = trial.run(number)
            if number <= before:
                files += sources(run_id, self._home.find(run_id).path)
                continue
            top = self._home.run(run_id).path
            if top in seen:
                files += [Source(f"{run_id}/{below}", top, below) for below in sorted(seen[top].files)]
                left_out += [(f"{run_id}/{path}", what) for path, what in sorted(seen[top].others.items())]
        return files, left_out

    def _published(
        self, trial: Trial, last: int, before: int, part: Path, target: Path, seen: dict[Path, DirectoryContents]
    ) -> bool:
        with self._home.archives.lock:
            if not self._runs(trial) or {top: look(top) for top in self._tops(trial, last, before)} != seen:
                return False  # a job writes to it, or it is wanted again: later
            self._check()
            os.replace(part, target)
            sync_name(target)
            self._home.archives.add(trial, last)
        if 0 < before < last:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._home.runs / archives.archive_of(trial.run(before)))
        self._take_away(trial, last, seen)
        return True

    def _take_away(self, trial: Trial, last: int, merged: Mapping[Path, DirectoryContents]) -> None:
        """Remove the directories of folded runs, but for those with what the master has written since it ``merged`` such."""
        going = []
        for number in range(1, last + 1):
            path = self._home.run(trial.run(number)).path
            aside = path.with_name(path.name + GOING)
            with self._home.archives.lock:
                self._check()
                late = late_of(path)
                if not os.path.lexists(path) or (late and look(late) != merged.get(late)):
                    continue
                os.rename(path, aside)
            going.append(aside)
        for aside in going:
            _remove(aside)

    def _rest(self) -> None:
        worked = time.monotonic() - self._since
        self._rounds.rest(min(REST * worked, LONGEST_REST))
        self._since = time.monotonic()


def _remove(path: Path) -> None:
    """Whatever it is."""
    with contextlib.suppress(OSError):
        os.unlink(path)
        return
    remove(path)
