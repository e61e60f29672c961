"""Webhooks of a real experiment on this machine, over the death of a master and the loss of its database."""

from __future__ import annotations

from typing import Any

from tests.e2e.conftest import User
from tests.master.webhooks.receiver import receiving
from tests.waiting import wait_until

TRAIN = """
import determined as det

with det.core.init() as core:
    core.alert(title="half way", description="of one step", level="info")
    print("RuntimeError: out of memory", flush=True)
    core.train.report_validation_metrics(steps_completed=1, metrics={"validation_loss": 0.05})
"""


def test_what_an_experiment_does_is_sent_though_the_master_is_killed_and_its_database_lost(user: User) -> None:
    (user.home / "site.yaml").write_text("webhooks: {allow: [127.0.0.1]}\n")
    user.write("context/train.py", TRAIN)
    with receiving() as receiver:
        receiver.statuses = [503] * 10_000
        options = (
            "--specific",
            "--on",
            "COMPLETED",
            "--custom",
            "--log",
            "out of memory",
            "--metric",
            "validation_loss<0.1",
        )
        user.det("webhook", "create", "all", receiver.url, *options)
        user.config(integrations={"webhooks": {"webhook_name": ["all"]}})
        user.det("experiment", "create", "config.yaml", "context")
        user.det("experiment", "wait", "1")
        wait_until(lambda: len(user.json("webhook", "deliveries", "1")) == 4)
        assert {row["state"] for row in user.json("webhook", "deliveries", "1")} == {"WAITING"} and receiver.posts
        user.kill_master()
        for path in user.home.glob("dethpc.db*"):
            path.unlink()
        user.det("master", "rebuild", "--yes")
        receiver.posts.clear()
        receiver.statuses.clear()
        (webhook,) = user.json("webhook", "list")
        assert webhook["url"] == receiver.url
        wait_until(lambda: {row["state"] for row in user.json("webhook", "deliveries", "1")} == {"DELIVERED"})
        events: dict[str, Any] = {post.event["event_type"]: post.event for post in receiver.posts}
    assert events.keys() == {"EXPERIMENT_STATE_CHANGE", "CUSTOM", "TASK_LOG", "METRIC_THRESHOLD_EXCEEDED"}
    assert len(receiver.posts) == 4
    assert events["EXPERIMENT_STATE_CHANGE"]["event_data"]["experiment"]["state"] == "COMPLETED"
    assert events["CUSTOM"]["event_data"]["custom_data"]["title"] == "half way"
    assert events["TASK_LOG"]["event_data"]["task_log"]["triggering_log"] == "RuntimeError: out of memory"
    assert events["METRIC_THRESHOLD_EXCEEDED"]["event_data"]["metric"]["value"] == 0.05
