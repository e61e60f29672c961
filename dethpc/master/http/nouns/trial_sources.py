"""Routes about which trials use a checkpoint or a version of a model, and what those report."""

from __future__ import annotations

import time as clock
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query
from pydantic import Field
from sqlalchemy import Connection

from dethpc.domain import records as stored
from dethpc.errors import NotFound, Refused
from dethpc.master.http.access import AnyPrincipal, TheRecords, TheStore, Viewer, VisibleRecords, visible_trial
from dethpc.master.http.models import Wire
from dethpc.master.http.nouns.metrics import MetricsReport
from dethpc.master.http.nouns.models import model_and_version
from dethpc.master.http.router import new_router
from dethpc.state import queries

_KINDS = ("INFERENCE", "FINE_TUNING")
_PREFIX = "TRIAL_SOURCE_INFO_TYPE_"
_MOST = 1 << 62

Number = Annotated[int | None, Field(ge=0, le=_MOST)]


class TrialSourceInfo(Wire):
    """A trial that uses a checkpoint; ``model_id`` and ``model_version`` where it uses it by that name."""

    trial_id: Annotated[int, Field(ge=0, le=_MOST)]
    checkpoint_uuid: str
    trial_source_info_type: str = ""
    model_id: Number = None
    model_version: Number = None


class SourceReport(Wire):
    trial_source_info: TrialSourceInfo


class Reported(Wire):
    trial_id: int
    checkpoint_uuid: str


class MetricsAnswer(Wire):
    metrics: list[MetricsReport]


@dataclass(frozen=True, slots=True)
class ReportQuery:
    """The group of metrics, and how the trials that report them use a checkpoint."""

    group: Annotated[str, Query(alias="metricGroup", description="None: every group.")] = ""
    kind: Annotated[str, Query(alias="trialSourceInfoType")] = ""


Reports = Annotated[ReportQuery, Depends()]

router = new_router(prefix="/api/v1", tags=["trials"])


@router.post("/trial-source-info")
def report(
    request: SourceReport, store: TheStore, records: TheRecords, visible: VisibleRecords, who: AnyPrincipal
) -> Reported:
    """A run may say it of its own trial."""
    info = request.trial_source_info
    kind = _kind(info.trial_source_info_type) or _KINDS[0]
    with store.read() as connection:
        visible_trial(connection, who, info.trial_id)
    with visible.reading() as connection:
        queries.checkpoint(connection, info.checkpoint_uuid)
    model_id, version = info.model_id or 0, info.model_version or 0
    if model_id:
        try:
            model_and_version(visible, str(model_id), version)
        except NotFound:
            if not who.is_run:
                raise
            # Its token reaches the registry by this alone: no message tells of other models.
            raise NotFound(f"model {model_id} has no version {version}, or there is no such model") from None
    now = clock.time()
    records.put(stored.TrialSource(info.trial_id, info.checkpoint_uuid, model_id, version, kind, now))
    return Reported(trial_id=info.trial_id, checkpoint_uuid=info.checkpoint_uuid)


@router.get("/checkpoints/{uuid}/metrics")
def metrics_of_checkpoint(
    uuid: str, store: TheStore, records: TheRecords, who: Viewer, query: Reports
) -> MetricsAnswer:
    """What the trials that use it report."""
    with store.read() as connection:
        queries.checkpoint(connection, uuid)
        return _answer(connection, records.find(stored.TrialSource, checkpoint=uuid), query)


@router.get("/models/{model_name}/versions/{number}/metrics")
def metrics_of_version(
    model_name: str, number: int, store: TheStore, records: TheRecords, who: Viewer, query: Reports
) -> MetricsAnswer:
    """What the trials report that use its checkpoint by this name."""
    model, version = model_and_version(records, model_name, number)
    sources = [
        source
        for source in records.find(stored.TrialSource, checkpoint=version.checkpoint)
        if (source.model_id, source.model_version) == (model.id, version.number)
    ]
    with store.read() as connection:
        return _answer(connection, sources, query)


def _answer(connection: Connection, sources: list[stored.TrialSource], query: ReportQuery) -> MetricsAnswer:
    kind = _kind(query.kind)
    kinds = [kind] if kind else _KINDS
    trial_ids = sorted({source.trial_id for source in sources if source.kind in kinds})
    return MetricsAnswer(metrics=[one for id in trial_ids for one in _reports(connection, id, query.group)])


def _reports(connection: Connection, trial_id: int, group: str) -> Iterator[MetricsReport]:
    after = 0
    while reports := queries.metrics_after(connection, trial_id, group or None, after, 500):
        after = reports[-1][0]
        yield from (MetricsReport.of(id, fact) for id, fact in reports)


def _kind(text: str) -> str:
    """Raises Refused."""
    name = text.removeprefix(_PREFIX)
    if name in ("", "UNSPECIFIED"):
        return ""
    if name not in _KINDS:
        possible = " or ".join(_PREFIX + kind for kind in _KINDS)
        raise Refused(f"trialSourceInfoType is {possible}, not {text[:60]!r}")
    return name
