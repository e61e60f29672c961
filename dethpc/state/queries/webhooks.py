"""Deliveries of webhooks."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, func, or_, select

from dethpc.domain.facts import Trial
from dethpc.domain.records import DeliveryState, WebhookDelivery
from dethpc.state import rows
from dethpc.state.queries.page import Page

_trial = rows.table(Trial).c
_delivery = rows.table(WebhookDelivery).c


def next_delivery(connection: Connection, webhook_id: int) -> WebhookDelivery | None:
    """The first that waits: a webhook's events are sent in order."""
    waiting = _delivery.webhook_id == webhook_id, _delivery.state == DeliveryState.WAITING
    query = rows.query(WebhookDelivery, *waiting).order_by(_delivery.created_at, _delivery.id).limit(1)
    return next((WebhookDelivery(*row) for row in connection.execute(query)), None)


def list_deliveries(connection: Connection, webhook_id: int, page: Page) -> tuple[list[WebhookDelivery], int, int]:
    """The page, the newest first, the total, and where the page begins."""
    own = _delivery.webhook_id == webhook_id
    total = connection.scalar(select(func.count()).select_from(rows.table(WebhookDelivery)).where(own)) or 0
    begin = page.begin(total)
    if page.limit == 0:
        return [], total, begin
    query = rows.query(WebhookDelivery, own).order_by(_delivery.created_at.desc(), _delivery.id)
    return [WebhookDelivery(*row) for row in connection.execute(query.offset(begin).limit(page.limit))], total, begin


def trials_ended_since(connection: Connection, at: float) -> list[tuple[int, int]]:
    """Experiment and trial of each."""
    ended = select(_trial.experiment_id, _trial.id).where(_trial.ended_at >= at)
    return [(experiment_id, trial_id) for experiment_id, trial_id in connection.execute(ended)]


def old_deliveries(
    connection: Connection, webhooks: Collection[int], ended_before: float, most: int, at_once: int
) -> list[WebhookDelivery]:
    """Some of those that nobody asks for any more: of webhooks that are not among ``webhooks``, those that ended long ago, and all
    but the last ``most`` that ended."""
    ended = _delivery.ended_at
    last = connection.scalar(select(ended).where(ended.is_not(None)).order_by(ended.desc()).offset(most).limit(1))
    old = or_(_delivery.webhook_id.not_in(webhooks), ended < ended_before, *([ended <= last] if last else ()))
    return [WebhookDelivery(*row) for row in connection.execute(rows.query(WebhookDelivery, old).limit(at_once))]
