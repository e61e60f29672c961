"""Deliberate bugs, each put in the place of what mended it. A judge that lets one pass is none.

C6 (ending with long-polls) and C11 (the name under which a rebuild keeps the old database's log) are not here: the world has
neither a server nor anybody who opens the old database. ``docs/reliability.md`` names their own tests.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from dethpc.engine import events, reports, runs
from dethpc.master import daemon, parts, rebuild
from dethpc.master.durable import change_log, ids, lease, ledger, row_file
from dethpc.master.submitting import submit
from dethpc.master.watching import foreign_runs, job_identity, journals, poll, read, reconcile, trouble
from dethpc.rundir.journal import RemainsReader
from dethpc.rundir.journal import read as read_journal
from dethpc.state import rows
from tests.simulator.world.story import Faults, Story

Patch = tuple[Any, str, Any]

_decide = importlib.import_module("dethpc.engine.decide")  # the package has a function of this name


@dataclass(frozen=True)
class Mutation:
    """``kinds``: the faults that bring it to light."""

    name: str
    patches: Callable[[], Sequence[Patch]]
    kinds: tuple[str, ...]

    @contextmanager
    def done(self) -> Iterator[None]:
        with ExitStack() as stack:
            for target, name, replacement in self.patches():
                stack.enter_context(mock.patch.object(target, name, replacement))
            yield


def caught(mutation: Mutation, seeds: Sequence[int], events: int = 250) -> str:
    """What the judge said first; empty: the bug passed all these seeds."""
    for seed in seeds:
        faults = Faults(every=10.0, wishes=90.0, kinds=mutation.kinds)
        with mutation.done():
            try:
                Story(seed, faults, events=events).run()
            except Exception as found:  # a crash of the production code is a finding, too
                return f"{type(found).__name__}: {found}"
    return ""


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _unguarded(self: Any, live: Any, doing: str, call: Callable[..., object], *arguments: Any) -> None:
    call(*arguments)


def _all_for_good(self: Any, batch: Any) -> None:
    for live, error in batch.refused:
        self._runs.do(events.SubmitFailed(live.run.id, str(error), 0.0))


class _UpToDamage(RemainsReader):
    def read(self, most: int) -> list[Any]:
        reports, self.offset = read_journal(self._path, self.offset, self.last)
        self.last, self.whole = reports[-1].seq if reports else self.last, True
        return reports


def _strict_line(line: str | bytes) -> Any:
    if line.startswith((b"\xff", b"[")):
        raise TypeError("list indices must be integers")
    return _from_line(line)


_from_line = row_file.from_line


def _nothing_void(state: Any, event: Any) -> Any:
    """As if nothing were ever void."""
    decision = runs.started(state, event)
    decision.rows = [row for row in decision.rows if getattr(row, "void_after", None) is None]
    return decision


def _no_leftovers(self: Any, listed: Any) -> None:
    self._runs.leftover_jobs.clear()


def _reads_only_live(self: Any, live: Any, record: Any) -> None:
    if live.run.state is not read.RunState.RUNNING:
        with mock.patch.object(journals.Journals, "read_remains", lambda *_, **__: True):
            _conclude(self, live, record)
    else:
        _conclude(self, live, record)


_conclude = read.Reader.conclude
_following = runs._following
_fold_again = ledger.Ledger._fold_again


def _without_the_last(reports: Any, seq: int, *, gaps: bool) -> Any:
    taken = _following(reports, seq, gaps=gaps)
    return taken[:-1] if len(taken) > 1 else taken


def _no_patience(self: Any, batch: Any, failure: Any) -> None:
    self.state = self._fold()


def _loses_some(connection: Any, metrics: Any, recent: Any) -> None:
    _add_metrics(connection, [metric for metric in metrics if metric.seq % 7], recent)


_add_metrics = rows._add_metrics
_jobs = ("node lost", "preempted", "queued again", "job killed")

MUTATIONS = (
    Mutation(
        "C1: a database that knows less than the files is served",
        lambda: [
            (ids, "check", _nothing),
            (parts.ids, "check", _nothing),
            (submit, "check_directory", _nothing),
            (row_file.RowFile, "_unknown", lambda self, rows: []),
        ],
        ("database deleted", "database restored"),
    ),
    Mutation(
        "C2: a rebuild does not read over every damaged line",
        lambda: [(row_file, "from_line", _strict_line)],
        ("garbage in a change log", "database deleted"),
    ),
    Mutation(
        "C3: one run's trouble is everybody's", lambda: [(trouble.Trouble, "contain", _unguarded)], ("file damaged",)
    ),
    Mutation(
        "C4: a drained partition ends trials",
        lambda: [(submit.Submitter, "_take_refusals", _all_for_good)],
        ("partition drained", "submissions refused"),
    ),
    Mutation(
        "C5: a master without its ledger lives on",
        lambda: [(ledger.Ledger, "_fold_again", _no_patience), (daemon.Daemon, "_break", _nothing)],
        ("database unreadable",),
    ),
    Mutation(
        "C7: a silent squeue is evidence",
        lambda: [
            (read.Reader, "grows", lambda self, live: False),
            (poll.Poller, "_waited", lambda self, live, s: True),
        ],
        ("squeue empty",),
    ),
    Mutation(
        "C8: a job id is enough",
        lambda: [(job_identity.JobIdentity, "owns", lambda *_: True)],
        ("slurmctld gives ids again",),
    ),
    Mutation(
        "C9: a damaged line drops all after it",
        lambda: [(journals, "RemainsReader", _UpToDamage)],
        ("journal damaged",),
    ),
    Mutation(
        "C10: a rebuild leaves an experiment out and does not say so",
        lambda: [
            (rebuild, "lost_ids", lambda made: ids.Ids(frozenset(), frozenset())),
            (rebuild, "history", lambda path, damaged: {}),
        ],
        ("database deleted",),
    ),
    Mutation(
        "C12: a damaged checkpoint is tried again and again",
        lambda: [(reports, "_checkpoint_damaged", lambda state, trial, *_: trial)],
        ("checkpoint damaged", "job killed"),
    ),
    Mutation(
        "what is trained again is not void",
        lambda: [(_decide, "_DECISIONS", {**_decide._DECISIONS, events.AttemptStarted: _nothing_void})],
        _jobs,
    ),
    Mutation(
        "memory keeps what was not committed", lambda: [(ledger.Ledger, "_fold_again", _nothing)], ("database full",)
    ),
    Mutation(
        "a start does not append what was committed",
        lambda: [(change_log.ChangeLog, "catch_up", _nothing)],
        ("master to be killed",),
    ),
    Mutation(
        "nobody looks at the lease",
        lambda: [(lease.Lease, "check", _nothing), (lease.Lease, "renew", _nothing)],
        ("master frozen, another takes over",),
    ),
    Mutation(
        "a master that was frozen after a commit appends it behind newer rows",
        lambda: [(parts, "ChangeLog", lambda home, check_lease: change_log.ChangeLog(home))],
        ("master frozen, another takes over",),
    ),
    Mutation(
        "a frozen renewal writes over another master's word",
        lambda: [(lease, "STOOD_STILL", 1e9)],
        ("master frozen in its renewal",),
    ),
    Mutation(
        "an end report of a lost node counts, its reports do not",
        lambda: [(read.Reader, "conclude", _reads_only_live)],
        ("node lost", "slurmctld forgets"),
    ),
    Mutation(
        "a clock that is set back prolongs a rest",
        lambda: [(runs, "rested", lambda until, at: at >= until)],
        ("clock jump", "job killed"),
    ),
    Mutation(
        "jobs of runs that were given up go on",
        lambda: [(poll.Poller, "_cancel_leftovers", _no_leftovers)],
        ("squeue empty", "node lost"),
    ),
    Mutation(
        "another cluster's silence is evidence",
        lambda: [
            (foreign_runs.ForeignRuns, "has", lambda self, live: False),
            (read.Reader, "grows", lambda self, live: False),
            (poll.Poller, "_waited", lambda self, live, s: True),
        ],
        ("master cannot see the scheduler",),
    ),
    Mutation("a report is passed over", lambda: [(runs, "_following", _without_the_last)], ("slurmctld silent",)),
    Mutation("nobody wakes what rests", lambda: [(reconcile.Reconciler, "_tick", _nothing)], ("job killed",)),
    Mutation("the database loses a report", lambda: [(rows, "_add_metrics", _loses_some)], ("preempted",)),
)
