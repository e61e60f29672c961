"""Series of system metrics of a trial, which its profiler reports as groups of metrics: by node, and of GPUs by device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import Depends, Query
from fastapi.responses import StreamingResponse
from sqlalchemy import Connection

from dethpc.domain.nested import leaves
from dethpc.domain.text.not_finite import numbers_in
from dethpc.errors import NotSupportedYet
from dethpc.master.http import streams
from dethpc.master.http.access import Owner, TheStore, Viewer, visible_trial
from dethpc.master.http.models import Float, UserText, Wire, time
from dethpc.master.http.router import new_router
from dethpc.state import queries

GROUPS = ("cpu", "disk", "gpu", "memory", "network")
_TYPE = "PROFILER_METRIC_TYPE_SYSTEM"
_EVERY = 1.0
"""Seconds between two looks for what a stream that is followed has to add."""


class SeriesLabels(Wire):
    trial_id: int
    name: UserText
    agent_id: UserText
    gpu_uuid: UserText
    metric_type: str = _TYPE


class AvailableSeries(Wire):
    labels: list[SeriesLabels]


class ProfilerBatch(Wire):
    """One series: arrays of one length."""

    labels: SeriesLabels
    batches: list[int]
    timestamps: list[str]
    values: list[Float]


class ProfilerMetrics(Wire):
    batch: ProfilerBatch


router = new_router(prefix="/api/v1/trials", tags=["trials"])


@router.post("/profiler/metrics")
def post_metrics(who: Owner) -> None:
    raise NotSupportedYet("a profiler reports by its trial's journal, and core_context.profiler.on() starts it")


@router.get("/{trial_id}/profiler/available_series")
def available_series(trial_id: int, store: TheStore, who: Viewer, follow: bool = False) -> StreamingResponse:
    def look(connection: Connection) -> AvailableSeries:
        visible_trial(connection, who, trial_id)
        metrics = queries.last_reports(connection, trial_id, GROUPS)
        labels = [labels for report in metrics for labels, _ in _values(trial_id, report.group, report.metrics)]
        return AvailableSeries(labels=labels)

    series = streams.when_changed(look)
    return streams.following(store, _EVERY * follow, lambda one: queries.trial_is_over(one, trial_id), series)


class LabelsQuery:
    """Labels that a series must have; those that are not given may be any."""

    def __init__(
        self,
        name: Annotated[str, Query(alias="labels.name")] = "",
        agent_id: Annotated[str, Query(alias="labels.agentId")] = "",
        gpu_uuid: Annotated[str, Query(alias="labels.gpuUuid")] = "",
        metric_type: Annotated[str, Query(alias="labels.metricType")] = "",
    ) -> None:
        kind = "" if metric_type == "PROFILER_METRIC_TYPE_UNSPECIFIED" else metric_type
        self._fields = {"name": name, "agent_id": agent_id, "gpu_uuid": gpu_uuid, "metric_type": kind}

    def fit(self, labels: SeriesLabels) -> bool:
        return all(value in ("", getattr(labels, field)) for field, value in self._fields.items())


@router.get("/{trial_id}/profiler/metrics")
def profiler_metrics(
    trial_id: int, store: TheStore, who: Viewer, query: Annotated[LabelsQuery, Depends()], follow: bool = False
) -> StreamingResponse:
    """Of the series with these labels."""
    sent_until = -1.0

    def look(connection: Connection) -> list[ProfilerMetrics]:
        nonlocal sent_until
        visible_trial(connection, who, trial_id)
        batches: dict[str, ProfilerBatch] = {}
        latest = sent_until
        for report in queries.series(connection, [trial_id], GROUPS, None, None):
            if report.reported_at <= sent_until:
                continue
            latest = max(latest, report.reported_at)
            for labels, value in _values(trial_id, report.group, report.metrics):
                if query.fit(labels):
                    key = f"{report.group}/{labels.agent_id}/{labels.gpu_uuid}/{labels.name}"
                    batch = batches.setdefault(key, ProfilerBatch(labels=labels, batches=[], timestamps=[], values=[]))
                    batch.batches.append(report.steps_completed)
                    batch.timestamps.append(time(report.reported_at))
                    batch.values.append(value)
        sent_until = latest
        return [ProfilerMetrics(batch=batch) for _, batch in sorted(batches.items())]

    return streams.following(store, _EVERY * follow, lambda one: queries.trial_is_over(one, trial_id), look)


def _values(trial_id: int, group: str, metrics: dict[str, Any]) -> Iterator[tuple[SeriesLabels, float]]:
    for path, leaf in leaves(metrics, "/"):
        value = numbers_in(leaf)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            node, _, name = path.partition("/")
            device, _, last = name.rpartition("/")
            gpu = group == "gpu" and device
            yield (
                SeriesLabels(
                    trial_id=trial_id, name=last if gpu else name, agent_id=node, gpu_uuid=device if gpu else ""
                ),
                value,
            )
