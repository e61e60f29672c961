"""Routes of webhooks, of what they have sent, and of what training code says to them."""

from __future__ import annotations

import logging
import time as clock
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Annotated, Any, TypeVar

from sqlalchemy import Connection

from dethpc.domain import records as stored
from dethpc.domain.records import TriggerType, WebhookDelivery, WebhookMode, WebhookType
from dethpc.domain.roles import Role
from dethpc.domain.secrets import MASK
from dethpc.domain.text import names
from dethpc.errors import AlreadyExists, Refused
from dethpc.master.experiments import filing
from dethpc.master.http.access import (
    AdminSomewhere,
    AnyPrincipal,
    Owner,
    Reading,
    ThePage,
    TheRecords,
    TheWebhooks,
    ViewerSomewhere,
    VisibleRecords,
    may_see_experiment,
)
from dethpc.master.http.auth import Principal
from dethpc.master.http.models import Given, Pagination, Plain, Shallow, UserText, Wire, time, time_or_none
from dethpc.master.http.router import new_router
from dethpc.master.webhooks.conditions import checked
from dethpc.master.webhooks.triggers import alert_data
from dethpc.state import queries
from dethpc.state.queries.webhooks import list_deliveries

_MEMBER = TypeVar("_MEMBER", bound=Enum)

MOST_TRIGGERS = 100


class Trigger(Wire):
    id: int
    trigger_type: str
    condition: Plain
    webhook_id: int


class Webhook(Wire):
    """``workspace_id`` 0: all workspaces."""

    id: int
    name: UserText
    url: UserText
    webhook_type: str
    mode: str
    triggers: list[Trigger]
    workspace_id: int

    @classmethod
    def of(cls, row: stored.Webhook, *, shows_url: bool = True) -> Webhook:
        triggers = [
            Trigger(
                id=row.id * MOST_TRIGGERS + index,
                trigger_type=f"TRIGGER_TYPE_{trigger['type']}",
                condition=trigger["condition"],
                webhook_id=row.id,
            )
            for index, trigger in enumerate(row.triggers)
        ]
        return cls(
            id=row.id,
            name=row.name,
            url=row.url if shows_url else MASK,
            webhook_type=f"WEBHOOK_TYPE_{row.type.value}",
            mode=f"WEBHOOK_MODE_{row.mode.value}",
            triggers=triggers,
            workspace_id=row.workspace_id or 0,
        )


class WebhookAnswer(Wire):
    webhook: Webhook


class Webhooks(Wire):
    webhooks: list[Webhook]


class TriggerFields(Wire):
    trigger_type: str = ""
    condition: Annotated[dict[str, Any] | None, Shallow] = None


class WebhookFields(Wire):
    """What may be changed; None: as it is."""

    name: Given | None = None
    url: Given | None = None
    webhook_type: str | None = None
    mode: str | None = None
    triggers: list[TriggerFields] | None = None


class NewWebhook(WebhookFields):
    workspace_id: int | None = None


class TestAnswer(Wire):
    completed: bool
    answer: UserText


class Delivery(Wire):
    id: str
    webhook_id: int
    event_type: str
    state: str
    attempts: int
    created_at: str
    not_before: str | None
    ended_at: str | None
    answer: UserText
    event: Plain

    @classmethod
    def of(cls, row: WebhookDelivery) -> Delivery:
        return cls(
            id=row.id,
            webhook_id=row.webhook_id,
            event_type=str(row.event["event_type"]),
            state=row.state.value,
            attempts=row.attempts,
            created_at=time(row.created_at),
            not_before=time_or_none(row.not_before or None),
            ended_at=time_or_none(row.ended_at),
            answer=row.answer,
            event=row.event,
        )


class Deliveries(Wire):
    deliveries: list[Delivery]
    pagination: Pagination


class Alert(Wire):
    title: str | None = None
    description: str | None = None
    level: str | None = None


class AlertRequest(Wire):
    data: Alert
    experiment_id: int = 0
    trial_id: int | None = None


router = new_router(prefix="/api/v1", tags=["webhooks"])
_log = logging.getLogger(__name__)


@router.get("/webhooks")
def list_webhooks(records: TheRecords, who: ViewerSomewhere) -> Webhooks:
    """Those of all workspaces, and of each that the user sees. A URL may be a secret, so that only admins see it."""
    return Webhooks(
        webhooks=[
            Webhook.of(row, shows_url=who.role_in(row.workspace_id or 0) is Role.ADMIN)
            for row in records.find(stored.Webhook, deleted=False)
            if row.workspace_id is None or who.role_in(row.workspace_id) >= Role.VIEWER
        ]
    )


@router.post("/webhooks")
def create_webhook(
    request: NewWebhook, records: TheRecords, visible: VisibleRecords, webhooks: TheWebhooks, who: AdminSomewhere
) -> WebhookAnswer:
    if not request.triggers:
        raise Refused("a webhook needs at least one trigger")
    webhooks.check_url(request.url or "")
    with records.exclusive():
        workspace_id = filing.open_workspace(visible, request.workspace_id).id if request.workspace_id else None
        who.must_be(Role.ADMIN, workspace_id or 0)
        mode = _member(WebhookMode, request.mode, "WEBHOOK_MODE_", WebhookMode.WORKSPACE)
        row = records.add(
            stored.Webhook,
            name=_name(request.name or "", workspace_id, records.find(stored.Webhook, deleted=False)),
            url=request.url or "",
            type=_member(WebhookType, request.webhook_type, "WEBHOOK_TYPE_", WebhookType.DEFAULT),
            mode=mode,
            triggers=_triggers(request.triggers, mode),
            user_id=who.user_id,
            created_at=clock.time(),
            workspace_id=workspace_id,
        )
    webhooks.changed(row.id)
    return WebhookAnswer(webhook=Webhook.of(row))


@router.post("/webhooks/custom")
def send_alert(request: AlertRequest, connection: Reading, webhooks: TheWebhooks, who: AnyPrincipal) -> dict[str, Any]:
    """Something that training code wants known: webhooks with a trigger of type CUSTOM report it."""
    experiment_id = _experiment_of(connection, request, who)
    may_see_experiment(who, experiment_id)
    experiment = queries.experiment(connection, experiment_id)
    texts = (request.data.title or "", request.data.description or "", request.data.level or "")
    _log.info("alert of experiment %d, trial %s [%s] %s: %s", experiment_id, request.trial_id, texts[2], *texts[:2])
    webhooks.alert(experiment, request.trial_id or None, alert_data(*texts))
    return {}


@router.patch("/webhooks/{webhook_id}")
def change_webhook(
    webhook_id: int, request: WebhookFields, records: TheRecords, webhooks: TheWebhooks, who: Owner
) -> WebhookAnswer:
    """What waits to be sent is sent as the webhook is then."""
    with records.exclusive():
        row = records.live(stored.Webhook, webhook_id)
        others = [other for other in records.find(stored.Webhook, deleted=False) if other.id != row.id]
        if request.url is not None:
            webhooks.check_url(request.url)
            row = replace(row, url=request.url)
        if request.name is not None:
            row = replace(row, name=_name(request.name, row.workspace_id, others))
        row.type = _member(WebhookType, request.webhook_type, "WEBHOOK_TYPE_", row.type)
        row.mode = _member(WebhookMode, request.mode, "WEBHOOK_MODE_", row.mode)
        if request.triggers is not None:
            row = replace(row, triggers=_triggers(request.triggers, row.mode))
        elif request.mode:
            _check_mode(row.triggers, row.mode)
        records.put(row)
    webhooks.changed(row.id)
    return WebhookAnswer(webhook=Webhook.of(row))


@router.delete("/webhooks/{webhook_id}")
def delete_webhook(webhook_id: int, records: TheRecords, webhooks: TheWebhooks, who: Owner) -> dict[str, Any]:
    """What waits to be sent is not sent any more. Its URL, which may be a secret, is kept nowhere."""
    with records.exclusive():
        records.put(replace(records.live(stored.Webhook, webhook_id), url="", deleted=True))
    webhooks.changed(webhook_id)
    return {}


@router.post("/webhooks/{webhook_id}/test")
def test_webhook(webhook_id: int, records: TheRecords, webhooks: TheWebhooks, who: Owner) -> TestAnswer:
    """Send an event now. The answer is that of the receiver, or why there is none."""
    return TestAnswer(completed=True, answer=webhooks.test(records.live(stored.Webhook, webhook_id)))


@router.get("/webhooks/{webhook_id}/deliveries")
def webhook_deliveries(
    webhook_id: int, records: TheRecords, connection: Reading, who: Owner, paging: ThePage
) -> Deliveries:
    """Ours: what it has sent, what waits and what was given up, the newest first."""
    row = records.live(stored.Webhook, webhook_id)
    rows, total, begin = list_deliveries(connection, row.id, paging.page)
    return Deliveries(
        deliveries=[Delivery.of(delivery) for delivery in rows],
        pagination=paging.pagination(total, begin, len(rows)),
    )


def _name(name: str, workspace_id: int | None, others: Sequence[stored.Webhook]) -> str:
    """One may have no name: then configurations name it by its id. Raises Refused, AlreadyExists."""
    if not name:
        return ""
    names.check_handle("webhook", name)
    if any(other.name == name and other.workspace_id == workspace_id for other in others):
        raise AlreadyExists(f"webhook {name!r} already exists")
    return name


def _triggers(triggers: Iterable[TriggerFields], mode: WebhookMode) -> list[dict[str, Any]]:
    """Raises Refused."""
    checked_triggers = []
    for trigger in triggers:
        trigger_type = _member(TriggerType, trigger.trigger_type, "TRIGGER_TYPE_", None)
        checked_trigger = {"type": trigger_type.value, "condition": checked(trigger_type, trigger.condition or {})}
        if checked_trigger not in checked_triggers:
            checked_triggers.append(checked_trigger)
    if not 0 < len(checked_triggers) <= MOST_TRIGGERS:
        raise Refused(f"a webhook has 1 to {MOST_TRIGGERS} triggers, not {len(checked_triggers)}")
    _check_mode(checked_triggers, mode)
    return checked_triggers


def _check_mode(triggers: Iterable[Mapping[str, Any]], mode: WebhookMode) -> None:
    """Raises Refused."""
    if mode is not WebhookMode.SPECIFIC and any(trigger["type"] == TriggerType.CUSTOM.value for trigger in triggers):
        raise Refused(
            "a CUSTOM trigger needs a webhook of mode SPECIFIC: it reports the experiments whose configuration names it; "
            "det webhook create --specific creates one"
        )


def _member(kind: type[_MEMBER], name: str | None, prefix: str, default: _MEMBER | None) -> _MEMBER:
    """The member that a request names, with or without the wire's prefix. Raises Refused."""
    short = (name or "").upper().removeprefix(prefix)
    if short in ("", "UNSPECIFIED") and default is not None:
        return default
    try:
        return kind(short)
    except ValueError:
        names = ", ".join(f"{prefix}{member.value}" for member in kind)
        raise Refused(f"{name!r} is not one of {names}") from None


def _experiment_of(connection: Connection, request: AlertRequest, who: Principal) -> int:
    """Raises NotFound, Refused."""
    if request.experiment_id:
        return request.experiment_id
    if request.trial_id:
        return queries.trial(connection, request.trial_id).experiment_id
    if who.experiment_id is None:
        raise Refused("experimentId is missing: of which experiment the alert is")
    return who.experiment_id
