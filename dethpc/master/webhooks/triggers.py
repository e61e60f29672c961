"""Which webhooks report what the ledger is about to commit.

Deliveries are rows of the transaction that commits what they report, so that a master that is killed at any instant has
committed both or none. Deciding them reads memory; names of projects are read from the database where a webhook has something to
report.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4, uuid5

from sqlalchemy import Connection

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.sections import services
from dethpc.domain.attempts.end_report import plain_text
from dethpc.domain.facts import Experiment, Metric, Row
from dethpc.domain.records import Project, TriggerType, Webhook, WebhookDelivery, WebhookMode, Workspace
from dethpc.domain.reports import ReportKind
from dethpc.domain.states import State
from dethpc.domain.text.not_finite import as_float, spelled
from dethpc.engine import events
from dethpc.engine.events import Event
from dethpc.errors import StoreUnavailable
from dethpc.master.experiments.filing import others
from dethpc.master.parts import Parts
from dethpc.master.webhooks.conditions import exceeds
from dethpc.state.queries import records as stored

log = logging.getLogger(__name__)

LONGEST_TEXT = 10_000
"""Characters of a text that training code sends along."""

_IDS = UUID("6f0d0c1e-58a6-4f3c-9a53-2f6a8f4f9b11")
"""The namespace of the ids of what is reported once."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that webhooks may report. ``data``: what the event says beside its experiment. ``once``: what tells it from all
    others, so that it is reported once however often it is noticed; "": it is noticed once."""

    type: TriggerType
    experiment: Experiment
    condition: Mapping[str, Any]
    data: Mapping[str, Any] = field(default_factory=dict)
    trial_id: int | None = None
    once: str = ""
    webhook: int = 0  # the only one that reports it; 0: all whose triggers it meets


def covers(webhook: Webhook, experiment: Experiment, workspace_id: int) -> bool:
    """Whether the webhook reports what happens to the experiment, as both say."""
    if webhook.workspace_id not in (None, workspace_id):
        return False
    section = _section(experiment)
    if section.exclude or webhook.mode is WebhookMode.WORKSPACE:
        return not section.exclude
    if webhook.id in (section.webhook_id or ()):
        return True
    return webhook.name != "" and webhook.name in (section.webhook_name or ())


def unknown(webhooks: Iterable[Webhook], experiment: Experiment, workspace_id: int) -> list[str]:
    """A sentence for each webhook that the experiment's configuration names and that is not there."""
    visible = [hook for hook in webhooks if hook.workspace_id in (None, workspace_id)]
    names, ids = {hook.name for hook in visible if hook.name}, {hook.id for hook in visible}
    section = _section(experiment)
    missing = [name for name in section.webhook_name or () if name not in names]
    missing += [str(webhook_id) for webhook_id in section.webhook_id or () if webhook_id not in ids]
    remedy = "det webhook create --specific creates one"
    return [f"there is no webhook {name!r} in its workspace{others(name, names)}: {remedy}" for name in missing]


def _section(experiment: Experiment) -> services.Webhooks:
    integrations = ExperimentConfig.from_json(experiment.config).integrations
    return (integrations and integrations.webhooks) or services.Webhooks()


def alert_data(title: str, description: str, level: str) -> dict[str, str]:
    """What training code said by ``core_context.alert``."""
    level = plain_text(level)[:LONGEST_TEXT].upper().removeprefix("LOG_LEVEL_")
    return {
        "title": plain_text(title)[:LONGEST_TEXT],
        "description": plain_text(description)[:LONGEST_TEXT],
        "level": {"WARN": "WARNING"}.get(level, level),
    }


class Triggers:
    """``report`` and ``committed`` are for the ledger's thread; the rest may be called from any."""

    def __init__(self, parts: Parts) -> None:
        self._ledger, self._store = parts.ledger, parts.store
        self._states = {id: experiment.row.state for id, experiment in parts.ledger.state.experiments.items()}
        self._begun: list[WebhookDelivery] = []  # of the commit that is under way
        self._metrics: set[str] = set()  # ids of events of metrics, which each trial has once
        self.fresh: deque[WebhookDelivery] = deque()  # committed; the service takes them from here
        self.webhooks: tuple[Webhook, ...] = ()
        self.load()

    def load(self) -> None:
        """Webhooks as they are now. Raises StoreError."""
        with self._store.read() as connection:
            self.webhooks = tuple(stored.find(connection, Webhook, deleted=False))

    def of_type(self, trigger_type: TriggerType) -> Iterator[tuple[Webhook, dict[str, Any]]]:
        """Webhooks with a trigger of the type, each with the trigger's condition."""
        for webhook in self.webhooks:
            for trigger in webhook.triggers:
                if trigger["type"] == trigger_type.value:
                    yield webhook, trigger["condition"]

    def report(self, happened: Sequence[Event], rows: Sequence[Row]) -> Sequence[WebhookDelivery]:
        """What to commit along with ``rows``. Raises StoreUnavailable; whatever else goes wrong costs reports, and no commit."""
        self._begun = []
        if self.webhooks:
            try:
                self._begun = self.deliveries(self._occurrences(happened, rows))
            except StoreUnavailable:
                raise
            except Exception:
                log.exception("webhooks do not report %d events", len(happened))
        return self._begun

    def committed(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if type(row) is Experiment:
                if row.state.terminal:
                    self._states.pop(row.id, None)
                else:
                    self._states[row.id] = row.state
        metrics = TriggerType.METRIC_THRESHOLD_EXCEEDED.value
        self._metrics.update(begun.id for begun in self._begun if begun.event["event_type"] == metrics)
        self.fresh += self._begun
        self._begun = []

    def deliveries(self, occurrences: Iterable[Occurrence]) -> list[WebhookDelivery]:
        """Of what webhooks report of ``occurrences``. Raises StoreError."""
        chosen = [
            (webhook, occurrence)
            for occurrence in occurrences
            for webhook, condition in self.of_type(occurrence.type)
            if occurrence.webhook in (0, webhook.id) and condition == occurrence.condition
        ]
        if not chosen:
            return []
        with self._store.read() as connection:
            return [
                _delivery(webhook, occurrence, project, workspace)
                for webhook, occurrence in chosen
                for project, workspace in [_place(connection, occurrence.experiment.project_id)]
                if covers(webhook, occurrence.experiment, workspace.id)
            ]

    def _occurrences(self, happened: Sequence[Event], rows: Sequence[Row]) -> Iterator[Occurrence]:
        yield from self._changes_of_state(rows)
        thresholds = list(self.of_type(TriggerType.METRIC_THRESHOLD_EXCEEDED))
        for row in rows if thresholds else ():
            if type(row) is Metric:
                yield from self._beyond(row, thresholds)
        if any(self.of_type(TriggerType.CUSTOM)):
            for event in happened:
                if isinstance(event, events.Reported):
                    yield from self._alerts(event)

    def _changes_of_state(self, rows: Sequence[Row]) -> Iterator[Occurrence]:
        """An experiment of which nothing was known is new, or ended long ago and was edited."""
        before: dict[int, State] = {}
        for row in rows:
            if type(row) is Experiment:
                last = before.get(row.id) or self._states.get(row.id, row.state)
                before[row.id] = row.state
                if row.state is not last:
                    yield Occurrence(TriggerType.EXPERIMENT_STATE_CHANGE, row, {"state": row.state.value})

    def _beyond(self, row: Metric, thresholds: Sequence[tuple[Webhook, dict[str, Any]]]) -> Iterator[Occurrence]:
        """Once for each trial and trigger."""
        for webhook, condition in thresholds:
            value = row.metrics.get(condition["metric_name"])
            if row.group != condition["group"] or value is None or type(value) not in (int, float):
                continue
            once = f"{row.trial_id} {condition}"
            experiment = self._ledger.state.experiments.get(row.experiment_id)
            if experiment is None or _id(webhook, once) in self._metrics or not exceeds(condition, as_float(value)):
                continue
            metric = {"name": condition["metric_name"], "group": row.group, "value": spelled(value)}
            yield Occurrence(
                TriggerType.METRIC_THRESHOLD_EXCEEDED,
                experiment.row,
                condition,
                {"metric": {**metric, "steps_completed": row.steps_completed}},
                row.trial_id,
                once,
                webhook.id,
            )

    def _alerts(self, event: events.Reported) -> Iterator[Occurrence]:
        """A journal may be read twice: each line of it is reported once."""
        for report in event.reports:
            if report.kind == ReportKind.ALERT:
                experiment_id, trial_id, _ = event.run_id.split(".")
                experiment = self._ledger.state.experiments.get(int(experiment_id))
                if experiment is not None:
                    texts = (str(report.data.get(name) or "") for name in ("title", "description", "level"))
                    once = f"{event.run_id}.{event.attempt} {report.seq}"
                    yield alert(experiment.row, int(trial_id), alert_data(*texts), once)


def alert(experiment: Experiment, trial_id: int | None, data: dict[str, str], once: str = "") -> Occurrence:
    return Occurrence(TriggerType.CUSTOM, experiment, {}, {"custom_data": data}, trial_id, once)


def _id(webhook: Webhook, once: str) -> str:
    """Of the event that the webhook sends. ``once``: see ``Occurrence``."""
    return str(uuid5(_IDS, f"{webhook.id} {once}") if once else uuid4())


def _place(connection: Connection, project_id: int) -> tuple[Project, Workspace]:
    project = stored.get(connection, Project, project_id)
    return project, stored.get(connection, Workspace, project.workspace_id)


def _delivery(webhook: Webhook, occurrence: Occurrence, project: Project, workspace: Workspace) -> WebhookDelivery:
    now, experiment = time.time(), occurrence.experiment
    event_id = _id(webhook, occurrence.once)
    described = {
        "id": experiment.id,
        "state": experiment.state.value,
        "name": experiment.name,
        "duration": int(experiment.duration(now)),
        "resource_pool": experiment.pool,
        "slots_per_trial": experiment.slots_per_trial,
        "workspace": workspace.name,
        "project": project.name,
    }
    if occurrence.trial_id is not None:
        described["trial_id"] = occurrence.trial_id
    event = {
        "event_id": event_id,
        "event_type": occurrence.type.value,
        "timestamp": int(now),
        "condition": dict(occurrence.condition) or {"state": experiment.state.value},
        "event_data": {"experiment": described, **occurrence.data},
    }
    return WebhookDelivery(event_id, webhook.id, now, event)
