"""What webhooks report besides changes of state, and how mails are sent."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dethpc.client.nouns import webhooks, workspaces
from dethpc.domain.attempts.end_report import EndReport
from dethpc.domain.facts import Run
from dethpc.domain.records import Webhook
from dethpc.domain.reports import Report
from dethpc.engine import events
from dethpc.errors import DethpcError, Refused
from dethpc.master.http.auth import mint_run_token
from dethpc.master.webhooks import formats
from dethpc.rundir import logline
from tests.master.conftest import T0, Published, Served, run_of, trial
from tests.master.http.test_control import YAML
from tests.master.webhooks.receiver import Receiver, created, deliveries, kill, waiting
from tests.waiting import wait_until

CUSTOM = [{"triggerType": "TRIGGER_TYPE_CUSTOM"}]
SPECIFIC = "WEBHOOK_MODE_SPECIFIC"
NAMING = f"{YAML}integrations: {{webhooks: {{webhook_name: [code, mail, far]}}}}\n"
CANCELED = [{"triggerType": "TRIGGER_TYPE_EXPERIMENT_STATE_CHANGE", "condition": {"state": "CANCELED"}}]


def running(served: Served) -> Run:
    """The run of a trial that trains."""
    experiment_id = created(served, NAMING)
    served.session.post(f"/api/v1/experiments/{experiment_id}/activate")
    (run,) = served.daemon.parts.live_runs()
    ledger = served.daemon.ledger
    ledger.do(events.Submitted(run.id, "41", T0))
    ledger.do(events.AttemptStarted(run.id, 0, ["node1"], None, 0, T0))
    return run


def report(served: Served, run: Run, *reports: tuple[str, dict[str, Any]], first: int = 1) -> None:
    lines = [Report(seq, T0, kind, data) for seq, (kind, data) in enumerate(reports, first)]
    served.daemon.ledger.do(events.Reported(run.id, 0, lines, T0))


def write_log(served: Served, run: Run, *lines: tuple[float, str]) -> None:
    """Each line with its time."""
    attempt = served.daemon.installation.home.run(run.id).attempt(0)
    attempt.make()
    log = attempt.log(0)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(logline.format(logline.LogLine(at, "INFO", 0, "stdout", text)) for at, text in lines))


def validation(steps: int, **metrics: Any) -> tuple[str, dict[str, Any]]:
    return "metrics", {"group": "validation", "steps_completed": steps, "metrics": metrics}


def test_what_training_code_says_is_sent_once_for_each_line_of_its_journal(sending: Served, receiver: Receiver) -> None:
    webhooks.create(sending.session, "code", receiver.url, CUSTOM, mode=SPECIFIC)
    run = running(sending)
    alert = ("alert", {"title": "Loss is NaN", "description": "at step 7", "level": "warn"})
    report(sending, run, alert)
    report(sending, run, alert, validation(1, loss=0.5))  # read once more
    report(sending, run, ("alert", {"title": None, "level": 3}), first=3)
    wait_until(lambda: len(receiver.posts) == 2)
    first, second = (post.event for post in receiver.posts)
    assert first["event_type"] == "CUSTOM" and first["condition"] == {"state": "ACTIVE"}
    assert first["event_data"]["custom_data"] == {
        "title": "Loss is NaN",
        "description": "at step 7",
        "level": "WARNING",
    }
    assert first["event_data"]["experiment"]["trial_id"] == 1
    assert second["event_data"]["custom_data"] == {"title": "", "description": "", "level": "3"}


def test_a_run_may_send_alerts_of_its_own_experiment_alone(sending: Served, receiver: Receiver) -> None:
    webhooks.create(sending.session, "code", receiver.url, CUSTOM, mode=SPECIFIC)
    created(sending, NAMING), created(sending, NAMING)
    run = run_of(trial(1))
    session = sending.as_run(run, mint_run_token(run.id)[0])
    body = {"data": {"title": "here", "level": "LOG_LEVEL_INFO"}}
    session.post("/api/v1/webhooks/custom", {**body, "experimentId": 1, "trialId": 1})
    with pytest.raises(DethpcError, match="does not allow access to another experiment"):
        session.post("/api/v1/webhooks/custom", {**body, "experimentId": 2})
    session.post("/api/v1/webhooks/custom", body)
    wait_until(lambda: len(receiver.posts) == 2)
    assert {post.event["event_data"]["experiment"]["id"] for post in receiver.posts} == {1}
    assert receiver.posts[0].event["event_data"]["custom_data"]["level"] == "INFO"
    with pytest.raises(Refused, match="experimentId is missing"):
        sending.session.post("/api/v1/webhooks/custom", body)


def test_the_published_client_sends_an_alert(sending: Served, published: Published, receiver: Receiver) -> None:
    webhooks.create(sending.session, "code", receiver.url, CUSTOM, mode=SPECIFIC, webhookType="WEBHOOK_TYPE_SLACK")
    created(sending, NAMING)
    code = """
data = bindings.v1CustomWebhookEventData(title="a <b>", description="c", level=bindings.v1LogLevel.ERROR)
body = bindings.v1PostWebhookEventDataRequest(data=data, experimentId=1, trialId=1)
bindings.post_PostWebhookEventData(sess, body=body)
print("1")
"""
    published.python(code)
    wait_until(lambda: receiver.posts)
    (block,) = receiver.posts[0].event["blocks"]
    assert block["text"]["text"] == "Experiment 1, trial 1: a <b>"
    assert [field["text"] for field in block["fields"]] == [
        "*Level*: ERROR",
        "*Title*: a &lt;b&gt;",
        "*Description*: c",
    ]


def test_a_metric_is_reported_when_a_trial_first_meets_the_condition(sending: Served, receiver: Receiver) -> None:
    condition = {"metricName": "accuracy", "metricValue": 0.9}
    trigger = {"triggerType": "TRIGGER_TYPE_METRIC_THRESHOLD_EXCEEDED", "condition": condition}
    row = webhooks.create(sending.session, "good", receiver.url, [trigger])
    stored_condition = {"metric_name": "accuracy", "metric_value": 0.9, "operator": ">", "group": "validation"}
    assert row["triggers"][0]["condition"] == stored_condition
    run = running(sending)
    report(sending, run, validation(1, accuracy=0.9, loss=1.0), validation(2, accuracy="0.95"), validation(3))
    report(sending, run, validation(4, accuracy=0.91), first=4)
    report(sending, run, validation(5, accuracy=0.99), first=5)
    wait_until(lambda: receiver.posts and not waiting(sending))
    (post,) = receiver.posts
    assert post.event["event_type"] == "METRIC_THRESHOLD_EXCEEDED" and post.event["condition"] == stored_condition
    assert post.event["event_data"]["metric"] == {
        "name": "accuracy",
        "group": "validation",
        "value": 0.91,
        "steps_completed": 4,
    }
    assert formats.title(post.event) == "Experiment 1, trial 1: accuracy is 0.91 (> 0.9)"
    assert len(deliveries(sending)) == 1


def test_a_line_of_a_log_is_reported_once_also_by_the_next_master(sending: Served, receiver: Receiver) -> None:
    trigger = {"triggerType": "TRIGGER_TYPE_TASK_LOG", "condition": {"regex": "out of memory|NaN+"}}
    row = webhooks.create(sending.session, "logs", receiver.url, [trigger])
    run = running(sending)
    since = sending.daemon.services.records.get(Webhook, row["id"]).created_at
    lines = [
        (since - 1, "NaN before"),
        (since + 1, "all is well"),
        (since + 2, "loss is NaN"),
        (since + 3, "NaN again"),
    ]
    write_log(sending, run, *lines)
    wait_until(lambda: receiver.posts)
    (post,) = receiver.posts
    assert post.event["event_data"]["task_log"]["triggering_log"] == "loss is NaN"
    assert post.event["event_data"]["task_log"]["task_id"] == "1.1"
    watch = sending.daemon.services.webhooks._logs
    watch._followers, watch._reported = {}, set()  # as a new one begins
    watch.look()
    assert len(deliveries(sending)) == 1
    wait_until(lambda: not waiting(sending))


def test_a_specific_webhook_reports_what_names_it_in_its_workspace_alone(sending: Served, receiver: Receiver) -> None:
    log = {"triggerType": "TRIGGER_TYPE_TASK_LOG", "condition": {"regex": "NaN"}}
    vision = workspaces.create_workspace(sending.session, "Vision")["id"]
    for name, place in (("code", {}), ("other", {}), ("far", {"workspaceId": vision})):
        triggers = [*CUSTOM, *CANCELED, log]
        webhooks.create(sending.session, name, f"{receiver.url}/{name}", triggers, mode=SPECIFIC, **place)
    run = running(sending)
    report(sending, run, ("alert", {"title": "a", "description": "b", "level": "info"}))
    write_log(sending, run, (time.time() + 60, "loss is NaN"))
    wait_until(lambda: len(receiver.posts) == 2)
    kill(sending, 1)
    sending.daemon.ledger.do(events.AttemptEnded(run.id, 0, EndReport(finished=True, exit_code=0), None, time.time()))
    wait_until(lambda: len(receiver.posts) == 3 and not waiting(sending))
    assert {post.path for post in receiver.posts} == {"/code"}
    types = {post.event["event_type"] for post in receiver.posts}
    assert types == {"CUSTOM", "TASK_LOG", "EXPERIMENT_STATE_CHANGE"}
    assert deliveries(sending, 2) == deliveries(sending, 3) == []


@pytest.fixture
def sendmail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a program called sendmail keeps its arguments and its input; ``code`` there: its exit code."""
    folder = tmp_path / "mails"
    folder.mkdir()
    program = tmp_path / "bin" / "sendmail"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" > {folder}/arguments; cat > {folder}/mail\n'
        f'[ -e {folder}/code ] && {{ echo "no such user" >&2; exit "$(cat {folder}/code)"; }}\nexit 0\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return folder


def test_mails_go_through_sendmail(sending: Served, sendmail: Path) -> None:
    webhooks.create(sending.session, "mail", "mailto:ada@example.org,grace@example.org", CANCELED)
    experiment_id = created(sending, YAML.replace("name: digits", "name: café"))
    kill(sending, experiment_id)
    wait_until(lambda: [row["state"] for row in deliveries(sending)] == ["DELIVERED"])
    assert (sendmail / "arguments").read_text() == "-i -- ada@example.org grace@example.org\n"
    mail = (sendmail / "mail").read_text()
    assert (
        "To: ada@example.org, grace@example.org\n" in mail
        and f"Subject: Experiment {experiment_id} is CANCELED\n" in mail
    )
    assert f"https://det.example/det/experiments/{experiment_id}" in mail and "Auto-Submitted: auto-generated" in mail
    assert deliveries(sending)[0]["answer"] == "accepted by sendmail"
    assert webhooks.test(sending.session, 1) == "accepted by sendmail"
    assert "Subject: Test of a webhook" in (sendmail / "mail").read_text()


def test_a_mail_that_sendmail_refuses_is_given_up(sending: Served, sendmail: Path) -> None:
    (sendmail / "code").write_text("67")
    webhooks.create(sending.session, "mail", "mailto:nobody@example.org", CANCELED)
    kill(sending, created(sending))
    wait_until(lambda: [row["state"] for row in deliveries(sending)] == ["GIVEN_UP"])
    assert "ended with 67: no such user" in deliveries(sending)[0]["answer"]
    (sendmail / "code").write_text("75")
    with pytest.raises(Refused, match="ended with 75: no such user"):
        webhooks.test(sending.session, 1)


def test_a_line_of_a_mail_starts_no_header(sending: Served, sendmail: Path) -> None:
    webhooks.create(sending.session, "mail", "mailto:ada@example.org", CUSTOM, mode=SPECIFIC)
    created(sending, NAMING)
    alert = {"title": "a\nBcc: eve@example.org\r\nX: y", "description": "d", "level": "info"}
    sending.session.post("/api/v1/webhooks/custom", {"data": alert, "experimentId": 1})
    wait_until(lambda: [row["state"] for row in deliveries(sending)] == ["DELIVERED"])
    headers = (sendmail / "mail").read_text().partition("\n\n")[0]
    assert "\nBcc:" not in headers and "Subject: Experiment 1: a Bcc: eve@example.org X: y" in headers


@pytest.fixture
def rarely_looking(served: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A daemon that has looked at logs once, and does so no more by time."""
    looks: list[float] = []
    webhook_service = served.daemon.services.webhooks
    rounds = webhook_service._logs._rounds
    rounds._first, rounds._every = 0.0, 1e6
    look = rounds._do
    monkeypatch.setattr(rounds, "_do", lambda: (look(), looks.append(time.time())))
    webhook_service.start()
    wait_until(lambda: looks)
    yield served
    webhook_service.stop()


def test_the_log_of_a_trial_is_read_when_it_ends(rarely_looking: Served, receiver: Receiver) -> None:
    served = rarely_looking
    run = running(served)
    trigger = {"triggerType": "TRIGGER_TYPE_TASK_LOG", "condition": {"regex": "out of memory"}}
    webhooks.create(served.session, "logs", receiver.url, [trigger])
    write_log(served, run, (time.time() + 1, "out of memory"))
    served.daemon.ledger.do(events.AttemptEnded(run.id, 0, EndReport(finished=True, exit_code=0), None, time.time()))
    wait_until(lambda: receiver.posts)


def test_the_log_of_a_trial_that_ended_without_a_master_is_still_read(served: Served, receiver: Receiver) -> None:
    trigger = {"triggerType": "TRIGGER_TYPE_TASK_LOG", "condition": {"regex": "out of memory"}}
    webhooks.create(served.session, "logs", receiver.url, [trigger])
    run = running(served)
    attempt = served.daemon.installation.home.run(run.id).attempt(0)
    attempt.make()
    log = attempt.log(0)
    log.parent.mkdir(parents=True, exist_ok=True)
    line = logline.LogLine(time.time() + 1, "INFO", 0, "stdout", "out of memory")
    log.write_text(logline.format(line))
    served.daemon.ledger.do(events.AttemptEnded(run.id, 0, EndReport(finished=True, exit_code=0), None, time.time()))
    assert served.daemon.parts.live_runs() == []
    watch = served.daemon.services.webhooks._logs
    watch._ended.clear()  # as a new master begins
    watch.look()
    assert [row.event["event_data"]["task_log"]["triggering_log"] for row in waiting(served)] == ["out of memory"]
