"""Where an attempt goes on: the last checkpoint that earlier attempts of its run left, else what the master knew."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from dethpc import storage
from dethpc.domain.reports import Report, ReportKind
from dethpc.errors import RunDirError
from dethpc.rundir import journal
from dethpc.rundir.files import read_json
from dethpc.rundir.layout import RunDir
from dethpc.rundir.spec import Spec


class Resume(NamedTuple):
    """``prior`` maps each earlier attempt to the number of its last report that counts: what it writes later is void."""

    checkpoint: Optional[str]
    steps: int
    prior: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        return {"resumed_from": self.checkpoint, "resumed_steps": self.steps, "prior": self.prior}

    @classmethod
    def from_json(cls, obj: dict[str, Any]) -> Resume:
        return cls(obj["resumed_from"], obj["resumed_steps"], obj["prior"])


def find(run: RunDir, k: int, spec: Spec) -> Resume:
    """Read the journals of the attempts before ``k``. Raises OSError, and as ``storage.build`` does."""
    earlier = [j for j in run.attempts() if j < k]
    bounds = _bounds(run, earlier)
    prior: dict[str, int] = {}
    checkpoints: list[Report] = []
    deleted = set()
    for j in earlier:
        reports = journal.read_remains(run.attempt(j).journal).reports
        counted = [report for report in reports if report.seq <= bounds.get(j, report.seq)]
        prior[str(j)] = counted[-1].seq if counted else 0
        checkpoints += [report for report in counted if report.kind == ReportKind.CHECKPOINT]
        deleted |= {report.data.get("uuid") for report in counted if report.kind == ReportKind.CHECKPOINT_DELETED}
    for report in reversed(checkpoints):
        uuid = report.data.get("uuid")
        section = report.data.get("storage") or spec.checkpoint_storage  # training code may have chosen another storage
        if isinstance(uuid, str) and uuid not in deleted and _exists(uuid, section):
            return Resume(uuid, int(report.data.get("steps_completed") or 0), prior)
    return Resume(spec.latest_checkpoint, spec.steps_completed, prior)


def _bounds(run: RunDir, attempts: list[int]) -> dict[int, int]:
    """What attempts that started in between took as the end of their predecessors. The first word stands: a node that
    comes back may have written more since."""
    bounds: dict[int, int] = {}
    for later in attempts:
        try:
            started = read_json(run.attempt(later).started) or {}
        except RunDirError:
            continue
        for j, seq in (started.get("prior") or {}).items():
            bounds.setdefault(int(j), int(seq))
    return bounds


def _exists(uuid: str, section: dict[str, Any]) -> bool:
    """Whether the checkpoint is where ``section`` says. Without a section nobody can be asked: it counts as there."""
    return not section or storage.build(section).exists(uuid)
