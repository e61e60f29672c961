"""The simulated world of ``tests/simulator``, with a webhook: masters are killed at any of their writes, and each end of an
experiment is among the deliveries exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from dethpc.domain.facts import Experiment, Row
from dethpc.domain.records import Webhook, WebhookDelivery, WebhookMode, WebhookType
from dethpc.engine.events import Event
from dethpc.master.webhooks.triggers import Triggers
from dethpc.state import rows
from dethpc.state.queries import records as stored
from tests.simulator.world.story import Faults, Story

ENDS = ("COMPLETED", "CANCELED", "ERROR")
TRIGGERS = [{"type": "EXPERIMENT_STATE_CHANGE", "condition": {"state": state}} for state in ENDS]


class ReportedStory(Story):
    """``ends`` and ``reports``: experiments and states, as their rows and the deliveries have them at the end."""

    ends: Counter[tuple[int, str]]
    reports: Counter[tuple[int, str]]

    def start_master(self, name: str = "login1") -> None:
        first = not self.started
        super().start_master(name)
        if first and self.master is not None:
            mode, kind = WebhookMode.WORKSPACE, WebhookType.DEFAULT
            with self.disk.acting(""):
                self.database.put(Webhook(1, "ends", "https://example.org/", kind, mode, TRIGGERS, 1, 0.0))
                self.master.daemon.services.webhooks._triggers.load()

    def _end_well(self) -> None:
        super()._end_well()
        with self.database.read() as connection:
            self.ends = Counter((row.id, row.state.value) for row in rows.read(connection, Experiment))
            events = [row.event for row in stored.find(connection, WebhookDelivery)]
        self.reports = Counter(
            (event["event_data"]["experiment"]["id"], event["condition"]["state"]) for event in events
        )


def run_story(seed: int) -> ReportedStory:
    story = ReportedStory(seed, Faults(every=6.0, kinds=("master to be killed",)), events=250)
    story.run()
    return story


def test_each_end_is_reported_once_whenever_masters_are_killed() -> None:
    ends = kills = 0
    for seed in range(4):
        story = run_story(seed)
        assert story.reports == story.ends, f"seed {seed}"
        ends += story.ends.total()
        kills += story.counts["master killed"]
    assert ends > 8 and kills > 20


def test_reports_that_are_committed_after_their_rows_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would find nothing."""
    report, committed = Triggers.report, Triggers.committed

    def alone(triggers: Triggers, happened: Sequence[Event], changed: Sequence[Row]) -> Sequence[WebhookDelivery]:
        report(triggers, happened, changed)
        return ()

    def later(triggers: Triggers, changed: Sequence[Row]) -> None:
        if triggers._begun:
            triggers._store.commit(triggers._begun)
        committed(triggers, changed)

    monkeypatch.setattr(Triggers, "report", alone)
    monkeypatch.setattr(Triggers, "committed", later)
    assert any((story := run_story(seed)).reports != story.ends for seed in range(12))
