"""The checkpoint that an attempt resumes from: the last one of earlier attempts of its run, else the one that the master named."""

from __future__ import annotations

import os
from typing import Any, Mapping, NamedTuple, Optional

from dethpc import storage
from dethpc.domain.reports import Report, ReportKind
from dethpc.errors import CheckpointError, MissingDriver, RunDirError
from dethpc.rundir import journal
from dethpc.rundir.layout import RunDir
from dethpc.rundir.spec import Spec
from dethpc.storage.driver import StoreAway


class Resume(NamedTuple):
    """``prior`` maps each earlier attempt to the number of its last report that counts: what it writes later is void. ``missing``
    are later checkpoints of the trial than ``checkpoint``, which are not where they should be. ``away``: why nobody can say whether
    ``checkpoint`` is where it should be, as its storage does not answer; "" if one does."""

    checkpoint: Optional[str]
    steps: int
    prior: dict[str, int]
    missing: tuple[str, ...] = ()
    away: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"resumed_from": self.checkpoint, "resumed_steps": self.steps, "prior": self.prior}

    @classmethod
    def from_json(cls, obj: dict[str, Any]) -> Resume:
        return cls(obj["resumed_from"], obj["resumed_steps"], obj["prior"])


class _Candidate(NamedTuple):
    uuid: str
    steps: int
    section: Mapping[str, Any]  # where it is


def find(run: RunDir, k: int, spec: Spec) -> Resume:
    """Read the journals of the attempts before ``k``, and look for checkpoints that the attempt may go on from.

    Raises OSError; CheckpointError when a storage has not one of those that it should have; and as ``storage.build`` does.
    """
    earlier = [j for j in run.attempts() if j < k]
    bounds = _bounds(run, earlier)
    prior: dict[str, int] = {}
    reports: list[Report] = []
    for j in earlier:
        remains = journal.read_remains(run.attempt(j).journal).reports
        counted = [report for report in remains if report.seq <= bounds.get(j, report.seq)]
        prior[str(j)] = counted[-1].seq if counted else 0
        reports += counted
    candidates = _candidates(reports, spec)
    try:
        return _latest(candidates, spec, prior)
    except OSError as error:
        # Where the trial has saved before, a refusal or a file server's error will pass, too; elsewhere it may be a mistake.
        if not isinstance(error, StoreAway) and (isinstance(error, MissingDriver) or not _has_saved(candidates, spec)):
            raise
        return Resume(candidates[0].uuid, candidates[0].steps, prior, away=str(error))


def _has_saved(candidates: list[_Candidate], spec: Spec) -> bool:
    return any(candidate.uuid != spec.source_checkpoint for candidate in candidates)


def _latest(candidates: list[_Candidate], spec: Spec, prior: dict[str, int]) -> Resume:
    missing: list[_Candidate] = []
    for candidate in candidates:
        if _exists(candidate, spec):
            _check_storages(missing, candidates, spec)
            return Resume(candidate.uuid, candidate.steps, prior, tuple(checkpoint.uuid for checkpoint in missing))
        missing.append(candidate)
    # A master of before had no list in the specification, but the last one alone.
    last, steps = (spec.source_checkpoint, 0) if spec.checkpoints else (spec.latest_checkpoint, spec.steps_completed)
    if last == spec.source_checkpoint:
        _check_storages(missing, candidates, spec)
    return Resume(last, steps, prior)


def _check_storages(missing: list[_Candidate], candidates: list[_Candidate], spec: Spec) -> None:
    """Raises CheckpointError where a storage lacks every checkpoint of the trial that it should have: that each of them is lost is
    less likely than that it is not mounted, and to begin before them all costs what was trained since. StoreAway where a folder
    holds nothing at all: nothing is mounted there."""
    stores = {str(storage.build(candidate.section)): candidate for candidate in reversed(missing)}
    for where, latest in stores.items():
        there = [one for one in candidates if one.section and str(storage.build(one.section)) == where]
        if not any(_exists(candidate, spec) for candidate in there):
            message = f"none of the trial's checkpoints is in {where} (the last one: {latest.uuid})"
            if _is_bare(latest.section):
                raise StoreAway(f"{message}, nor is anything else; is it mounted on {os.uname().nodename}?")
            raise CheckpointError(f"{message}; is it mounted on this node?")


def _is_bare(section: dict[str, Any]) -> bool:
    if section.get("type") != "shared_fs":
        return False
    try:
        return not os.listdir(str(storage.build(section)))
    except FileNotFoundError:
        return True


def _candidates(reports: list[Report], spec: Spec) -> list[_Candidate]:
    """The trial's checkpoints, latest first, but for those that are known to be deleted or damaged."""
    latest: dict[str, _Candidate] = {}
    gone = set()
    for report in reversed(reports):
        uuid = report.data.get("uuid")
        if report.kind == ReportKind.CHECKPOINT and isinstance(uuid, str):
            section = report.data.get("storage")  # training code may have chosen another storage
            steps = int(report.data.get("steps_completed") or 0)
            latest.setdefault(uuid, _Candidate(uuid, steps, section or spec.checkpoint_storage))
        elif report.kind in (ReportKind.CHECKPOINT_DELETED, ReportKind.CHECKPOINT_DAMAGED):
            gone.add(uuid)
    for checkpoint in spec.checkpoints:
        section = checkpoint.get("storage") or spec.checkpoint_storage
        latest.setdefault(checkpoint["uuid"], _Candidate(checkpoint["uuid"], checkpoint["steps_completed"], section))
    return [candidate for uuid, candidate in latest.items() if uuid not in gone]


def _bounds(run: RunDir, attempts: list[int]) -> dict[int, int]:
    """What attempts that started in between took as the end of their predecessors. The first word stands: a node that
    comes back may have written more since."""
    bounds: dict[int, int] = {}
    for later in attempts:
        try:
            started = run.attempt(later).start_report()
        except RunDirError:
            continue
        for j, seq in started.prior.items() if started is not None else ():
            bounds.setdefault(j, seq)
    return bounds


def _exists(candidate: _Candidate, spec: Spec) -> bool:
    """Whether the checkpoint is where it should be. Where nobody can be asked it counts as there: without a section, or for a
    directory that only a container sees."""
    section = candidate.section
    if not section or section.get("type") == "directory":
        return True
    return storage.build(section, spool=spec.spool).exists(candidate.uuid)
