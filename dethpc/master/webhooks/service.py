"""The service that sends what webhooks report, on a thread of its own.

A delivery waits as a row until its receiver has taken it, or has refused it for good, or has not taken it for a day. A webhook's
events are sent in order, each at least once: a master that is killed between the receiver's answer and the row's next commit sends
it again, with the same ``event_id``.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_network
from typing import Any
from uuid import uuid4

from dethpc.domain.facts import Experiment, Row
from dethpc.domain.records import DeliveryState, TriggerType, Webhook, WebhookDelivery, WebhookType
from dethpc.errors import Refused
from dethpc.master.durable.records import Records
from dethpc.master.parts import Parts
from dethpc.master.rounds import Rounds
from dethpc.master.webhooks import formats, sending, triggers
from dethpc.master.webhooks.logs import LogWatch
from dethpc.master.webhooks.sending import Unsent
from dethpc.master.webhooks.triggers import Triggers
from dethpc.rundir.files import create_once, read_json
from dethpc.rundir.home import Home
from dethpc.state.queries.webhooks import next_delivery, old_deliveries

log = logging.getLogger(__name__)

EVERY = 2.0
"""Seconds between two looks for deliveries that are due: what was just committed is sent at once."""

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 3600.0
"""Seconds between two attempts: at first, and at most. Each pause is twice as long as the one before, less up to a half of it."""

LONGEST_AGE = 24 * 3600.0
"""Seconds after which what could not be sent is given up."""

KEEP, MOST_KEPT = 30 * 24 * 3600.0, 2000
"""Seconds for which deliveries that have ended are shown, and how many of them."""

_TIDY_EVERY = 600.0
_AT_ONCE = 500  # rows that are dropped in one round


class Webhooks:
    """Every method may be called from any thread."""

    def __init__(self, parts: Parts, records: Records) -> None:
        self._store, self._records, self._home = parts.store, records, parts.home
        self._site = parts.site.webhooks
        networks = [ip_network(network, strict=False) for network in self._site.allow]
        site_file = parts.installation.site_file or str(self._home.root / "site.yaml")
        self._allowlist = sending.Allowlist(networks, site_file)
        self._triggers = Triggers(parts)
        self._resting: dict[int, float] = {}  # webhooks whose receivers failed, and until when
        self._failures: dict[int, int] = {}  # how often in a row
        self._tidied = 0.0
        self._rounds = Rounds("webhooks", self._round, EVERY, first=0.0, trouble="webhooks could not be sent")
        self._logs = LogWatch(parts, self._triggers, self._send_later)
        parts.ledger.report = self._triggers.report
        parts.ledger.listen(self._committed)

    def start(self) -> None:
        self._rounds.start()
        self._logs.start()

    def stop(self) -> None:
        self._logs.stop()
        self._rounds.stop()

    @property
    def base_url(self) -> str:
        return self._site.base_url.rstrip("/")

    def signing_key(self) -> str:
        """The site's, or one that is made when it is first asked for. Raises OSError, RunDirError."""
        return self._site.signing_key or _own_key(self._home)

    def check_url(self, url: str) -> None:
        """Raises Refused."""
        sending.check_url(url, self._allowlist)

    def notes(self, experiment: Experiment, workspace_id: int) -> list[str]:
        """What the owner of a new experiment should know of webhooks that it names."""
        return triggers.unknown(self._triggers.webhooks, experiment, workspace_id)

    def changed(self, webhook_id: int) -> None:
        """It was created, edited or deleted: what waits is sent at once. Raises StoreError."""
        self._triggers.load()
        self._resting[webhook_id] = 0.0
        self._rounds.wake()

    def alert(self, experiment: Experiment, trial_id: int | None, data: dict[str, str]) -> None:
        """Training code said something. Raises StoreError."""
        self._send_later(self._triggers.deliveries([triggers.alert(experiment, trial_id, data)]))

    def _send_later(self, deliveries: Sequence[WebhookDelivery]) -> None:
        """Raises StoreError."""
        if deliveries:
            self._store.commit(deliveries)
            self._records.copy(WebhookDelivery, [(delivery.id,) for delivery in deliveries])
            self._rounds.wake()

    def test(self, webhook: Webhook) -> str:
        """Send an event that says so, and return the receiver's answer. Raises Refused."""
        event = {
            "event_id": str(uuid4()),
            "event_type": TriggerType.EXPERIMENT_STATE_CHANGE.value,
            "timestamp": int(time.time()),
            "condition": {"state": "COMPLETED"},
            "event_data": {"data": "test"},
        }
        try:
            return self._send(webhook, event)
        except Unsent as error:
            raise Refused(f"the test of webhook {webhook.id} failed: {error}") from None

    def _committed(self, rows: Sequence[Row]) -> None:
        self._triggers.committed(rows)
        if self._triggers.fresh:
            self._rounds.wake()

    # --- rounds

    def _round(self) -> None:
        self._copy_fresh()
        if time.time() - self._tidied > _TIDY_EVERY:
            self._tidied = time.time()
            self._tidy()
        webhooks = list(self._triggers.webhooks)
        while webhooks:  # in turn, so that one with much to send delays no other
            webhooks = [webhook for webhook in webhooks if not self._rounds.stopping and self._send_next(webhook)]

    def _copy_fresh(self) -> None:
        fresh = self._triggers.fresh
        self._records.copy(WebhookDelivery, [(fresh.popleft().id,) for _ in range(len(fresh))])

    def _tidy(self) -> None:
        live = [webhook.id for webhook in self._triggers.webhooks]
        with self._store.read() as connection:
            old = old_deliveries(connection, live, time.time() - KEEP, MOST_KEPT, _AT_ONCE)
        for delivery in old:
            self._records.drop(delivery)

    def _send_next(self, webhook: Webhook) -> bool:
        """Whether the next one may follow at once."""
        now = time.time()
        with self._store.read() as connection:
            delivery = next_delivery(connection, webhook.id)
        if delivery is None:
            return False
        if webhook.id in self._failures and now - delivery.created_at > LONGEST_AGE:
            self._give_up(delivery, delivery.answer or "those before it could not be sent")
            return True
        if self._resting.get(webhook.id, delivery.not_before) > now:
            return False
        self._resting.pop(webhook.id, None)
        delivery = replace(delivery, attempts=delivery.attempts + 1)
        try:
            answer = self._send(webhook, delivery.event)
        except Unsent as error:
            if error.final:
                self._give_up(delivery, str(error))
                return True
            self._rest(webhook, delivery, error)
            return False
        self._failures.pop(webhook.id, None)
        state = DeliveryState.DELIVERED
        self._records.put(replace(delivery, state=state, ended_at=time.time(), answer=answer))
        return True

    def _give_up(self, delivery: WebhookDelivery, why: str) -> None:
        log.warning("webhook %d: event %s is given up: %s", delivery.webhook_id, delivery.id, why)
        self._records.put(replace(delivery, state=DeliveryState.GIVEN_UP, ended_at=time.time(), answer=why))

    def _rest(self, webhook: Webhook, delivery: WebhookDelivery, error: Unsent) -> None:
        failures = self._failures[webhook.id] = self._failures.get(webhook.id, delivery.attempts - 1) + 1
        edited = webhook not in self._triggers.webhooks  # meanwhile: it failed as it was before
        until = 0.0 if edited else time.time() + max(error.pause, _pause(failures))
        self._resting.setdefault(webhook.id, until)  # it may have been edited meanwhile
        self._records.put(replace(delivery, not_before=until, answer=str(error)))

    def _send(self, webhook: Webhook, event: dict[str, Any]) -> str:
        """The receiver's answer. Raises Unsent."""
        if webhook.url.startswith("mailto:"):
            subject, text = formats.mail(event, self.base_url)
            headers = {"Message-ID": f"<{event['event_id']}@dethpc>"}
            return sending.mail(self._site.sendmail, sending.mail_addresses(webhook.url), subject, text, headers)
        body = formats.slack(event, self.base_url) if webhook.type is WebhookType.SLACK else event
        return sending.post(webhook.url, formats.encoded(body), self.signing_key(), self._allowlist, self._site.proxy)


def _pause(failures: int) -> float:
    """With jitter: receivers that come back are not asked by all at once."""
    doubled: float = FIRST_PAUSE * 2 ** min(failures - 1, 20)
    return min(doubled, LONGEST_PAUSE) * random.uniform(0.5, 1.0)


def _own_key(home: Home) -> str:
    """Raises OSError, RunDirError."""
    if (held := read_json(home.webhook_key)) is None:
        create_once(home.webhook_key, {"signing_key": secrets.token_hex(32)})
        held = read_json(home.webhook_key) or {}
    return str(held["signing_key"])
