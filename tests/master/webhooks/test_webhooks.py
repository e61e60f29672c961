"""Webhooks: created, triggered, sent and signed; what fails is sent again, and nothing is lost with a master."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import time
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest

from dethpc.client.nouns import experiments, webhooks, workspaces
from dethpc.config.site import parse_site
from dethpc.domain.records import Webhook, WebhookDelivery
from dethpc.errors import NotFound, Refused
from dethpc.master.rebuild import recreate
from dethpc.master.webhooks import service
from dethpc.master.webhooks.sending import Allowlist
from dethpc.state import open_store
from dethpc.state.queries import records as stored
from tests.master.conftest import Published, Served
from tests.master.http.test_control import YAML
from tests.master.webhooks.receiver import KEY, Receiver, created, deliveries, kill, waiting
from tests.waiting import wait_until

SPECIFIC = "WEBHOOK_MODE_SPECIFIC"
CANCELED = [{"triggerType": "TRIGGER_TYPE_EXPERIMENT_STATE_CHANGE", "condition": {"state": "CANCELED"}}]


def test_a_change_of_state_is_sent_as_determined_sends_and_signs_it(sending: Served, receiver: Receiver) -> None:
    webhooks.create(sending.session, "ends", f"{receiver.url}/hook?a=1", CANCELED)
    experiment_id = created(sending)
    kill(sending, experiment_id)
    wait_until(lambda: receiver.posts)
    (post,) = receiver.posts
    assert post.path == "/hook?a=1"
    event = post.event
    assert event.keys() == {"event_id", "event_type", "timestamp", "condition", "event_data"}
    assert (event["event_type"], event["condition"]) == ("EXPERIMENT_STATE_CHANGE", {"state": "CANCELED"})
    assert event["event_data"] == {
        "experiment": {
            "id": experiment_id,
            "state": "CANCELED",
            "name": "digits",
            "duration": 0,
            "resource_pool": "default",
            "slots_per_trial": 1,
            "workspace": "Uncategorized",
            "project": "Uncategorized",
        }
    }
    at = post.headers["X-Determined-AI-Signature-Timestamp"]
    # As Determined's documentation has receivers verify it.
    again = json.dumps(separators=(",", ":"), obj=json.loads(post.body))
    digest = hmac.new(KEY.encode(), f"{at},{again}".encode(), digestmod=hashlib.sha256).hexdigest()
    assert post.headers["X-Determined-AI-Signature"] == digest
    assert sending.session.get("/api/v1/master/config")["config"]["webhooks"]["signing_key"] == KEY
    wait_until(lambda: deliveries(sending)[0]["state"] == "DELIVERED")
    (row,) = deliveries(sending)
    assert (row["attempts"], row["answer"], row["id"], row["event"]) == (1, "200 OK", event["event_id"], event)


def test_an_experiment_that_ended_long_ago_is_not_reported_when_it_is_edited(
    sending: Served, receiver: Receiver
) -> None:
    experiment_id = created(sending)
    kill(sending, experiment_id)
    webhooks.create(sending.session, "ends", receiver.url, CANCELED)
    sending.session.patch(f"/api/v1/experiments/{experiment_id}", {"notes": "later"})
    second = created(sending)
    kill(sending, second)
    wait_until(lambda: receiver.posts)
    assert [post.event["event_data"]["experiment"]["id"] for post in receiver.posts] == [second]


def test_what_fails_is_sent_again_in_order_until_it_is_taken(sending: Served, receiver: Receiver) -> None:
    receiver.statuses = [500, 429]
    webhooks.create(sending.session, "ends", receiver.url, CANCELED)
    ids = [created(sending), created(sending)]
    for experiment_id in ids:
        kill(sending, experiment_id)
    wait_until(lambda: len(receiver.posts) == 4)
    events = [post.event for post in receiver.posts]
    assert [event["event_data"]["experiment"]["id"] for event in events] == [ids[0], ids[0], ids[0], ids[1]]
    assert len({event["event_id"] for event in events}) == 2
    wait_until(lambda: {row["state"] for row in deliveries(sending)} == {"DELIVERED"})
    assert [row["attempts"] for row in deliveries(sending)] == [1, 3]


def test_a_receiver_that_asks_for_a_pause_gets_it(sending: Served, receiver: Receiver) -> None:
    receiver.statuses, receiver.headers = [429], {"Retry-After": "1800"}
    webhooks.create(sending.session, "ends", receiver.url, CANCELED)
    kill(sending, created(sending))
    wait_until(lambda: waiting(sending) and waiting(sending)[0].attempts)
    (row,) = waiting(sending)
    assert 1700 < row.not_before - time.time() <= 1800
    assert "notBefore" in deliveries(sending)[0] and len(receiver.posts) == 1


@pytest.mark.parametrize(
    ("status", "headers", "why"),
    [
        (404, {}, "127.0.0.1 answers 404 Not Found: not now"),
        (302, {"Location": "http://127.0.0.1:1/"}, "redirects are not followed"),
    ],
)
def test_what_is_refused_for_good_is_given_up_with_the_reason(
    sending: Served, receiver: Receiver, status: int, headers: dict[str, str], why: str
) -> None:
    receiver.statuses, receiver.headers = [status], headers
    webhooks.create(sending.session, "ends", receiver.url, CANCELED)
    kill(sending, created(sending))
    wait_until(lambda: [row["state"] for row in deliveries(sending)] == ["GIVEN_UP"])
    assert why in deliveries(sending)[0]["answer"] and len(receiver.posts) == 1


def test_what_no_receiver_takes_for_a_day_is_given_up(
    sending: Served, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.statuses = [503] * 1000
    webhooks.create(sending.session, "ends", receiver.url, CANCELED)
    for experiment_id in (created(sending), created(sending)):
        kill(sending, experiment_id)
    wait_until(lambda: receiver.posts)
    assert {row["state"] for row in deliveries(sending)} == {"WAITING"}
    assert "503" in wait_until(lambda: deliveries(sending)[1]["answer"])
    monkeypatch.setattr(service, "LONGEST_AGE", 0.0)
    wait_until(lambda: {row["state"] for row in deliveries(sending)} == {"GIVEN_UP"})
    assert [row["answer"] for row in deliveries(sending)] == [
        "those before it could not be sent",
        "127.0.0.1 answers 503 Service Unavailable: not now",
    ]


def test_an_edit_sends_what_waits_to_the_new_address_at_once(
    sending: Served, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "FIRST_PAUSE", 3600.0)
    webhooks.create(sending.session, "ends", "http://127.0.0.1:1/", CANCELED)
    kill(sending, created(sending))
    assert "cannot be reached" in wait_until(lambda: deliveries(sending) and deliveries(sending)[0]["answer"])
    assert webhooks.change(sending.session, 1, url=receiver.url, name="mended")["name"] == "mended"
    wait_until(lambda: receiver.posts)


def test_an_edit_while_an_event_is_sent_counts_for_the_next_one(
    sending: Served, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "FIRST_PAUSE", 3600.0)
    webhooks.create(sending.session, "ends", "http://127.0.0.1:1/", CANCELED)
    send, sent = service.sending.post, list[str]()

    def edited_meanwhile(url: str, *others: Any) -> str:
        sent.append(url)
        if len(sent) > 1:
            return send(url, *others)
        kill(sending, created(sending))
        webhooks.change(sending.session, 1, url=receiver.url)
        return "200 OK"

    monkeypatch.setattr(service.sending, "post", edited_meanwhile)
    kill(sending, created(sending))
    wait_until(lambda: receiver.posts)


def test_a_master_that_is_killed_before_it_sends_loses_nothing(
    served: Served, receiver: Receiver, tmp_path: Path
) -> None:
    """The event is in the transaction of the change: whoever reads the one reads the other."""
    webhooks.create(served.session, "ends", receiver.url, CANCELED)
    store, commits = served.daemon.store, []
    commit = store.commit
    store.commit = lambda rows: (commits.append([type(row) for row in rows]), commit(rows))[1]  # type: ignore[method-assign]
    kill(served, created(served))
    (of_end,) = [kinds for kinds in commits if WebhookDelivery in kinds]
    assert {kind.__name__ for kind in of_end} >= {"Experiment", "WebhookDelivery"}
    (row,) = waiting(served)
    assert row.event["event_data"]["experiment"]["state"] == "CANCELED" and not receiver.posts
    served.daemon.services.webhooks.start()  # that of the next master
    wait_until(lambda: receiver.posts)
    served.daemon.services.webhooks.stop()
    assert [post.event["event_id"] for post in receiver.posts] == [row.id]


def test_a_commit_that_fails_reports_nothing(served: Served, receiver: Receiver) -> None:
    webhooks.create(served.session, "ends", receiver.url, CANCELED)
    experiment_id = created(served)
    check = served.daemon.store.before_commit

    def refuse() -> None:
        raise Refused("not this one")

    served.daemon.store.before_commit = refuse
    with pytest.raises(Refused):
        kill(served, experiment_id)
    served.daemon.store.before_commit = check
    assert waiting(served) == []
    kill(served, experiment_id)
    assert len(waiting(served)) == 1


def test_a_rebuild_brings_back_webhooks_and_what_waits(served: Served, receiver: Receiver, tmp_path: Path) -> None:
    webhooks.create(served.session, "ends", receiver.url, CANCELED)
    deleted = webhooks.create(served.session, "gone", receiver.url, CANCELED)
    webhooks.delete(served.session, deleted["id"])
    kill(served, created(served))
    served.daemon.services.webhooks._copy_fresh()
    with open_store(tmp_path / "again.db") as again:
        recreate(served.daemon.installation.home, again)
        with again.read() as new, served.daemon.store.read() as old:
            for kind in (Webhook, WebhookDelivery):
                assert stored.find(new, kind) == stored.find(old, kind) != []


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://example.org/", "needs a URL such as"),
        ("http:///path", "needs a URL such as"),
        ("", "needs a URL such as"),
        ("http://[::1]/", "::1: it is a loopback address"),
        ("http://[::ffff:127.0.0.2]/", "a loopback address"),
        ("http://169.254.169.254/latest", "a link-local address"),
        ("http://0.0.0.0/", "no address of a host"),
        ("http://239.1.1.1/", "a multicast address"),
        ("http://255.255.255.255/", "the broadcast address"),
        ("http://user:word@example.org/", "cannot have a user or password"),
        ("http://example.org/a b", "it has blanks"),
        ("http://example.org:port/", "is no URL"),
        ("mailto:-oQ/tmp@example.org", "is no mail address"),
        ("mailto:", "is no mail address"),
    ],
)
def test_urls_that_are_refused(served: Served, url: str, why: str) -> None:
    with pytest.raises(Refused, match=why.replace("[", r"\[")):
        webhooks.create(served.session, "hook", url, CANCELED)


def test_a_refusal_says_what_to_write_into_which_file(served: Served) -> None:
    home = served.daemon.installation.home.root
    with pytest.raises(Refused) as refusal:
        webhooks.create(served.session, "hook", "http://[::1]:8000/", CANCELED)
    text, _, place = str(refusal.value).partition("put ")[2].partition(" into ")
    assert place == f"{served.daemon.installation.site_file or home / 'site.yaml'}, then det master down"
    assert parse_site(text).webhooks.allow[-1] == "::1"


def test_what_was_allowed_before_stays_in_the_advice() -> None:
    text = Allowlist([ip_network("10.0.0.0/8"), ip_network("::1")]).remedy(ip_address("fe80::1"))
    advice = text.partition("put ")[2].partition(" into")[0]
    assert parse_site(advice).webhooks.allow == ["10.0.0.0/8", "::1/128", "fe80::1"]


def test_a_name_that_leads_to_a_forbidden_address_is_given_up(sending: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo
    metadata = [(2, 1, 6, "", ("169.254.169.254", 80))]
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *more, **options: metadata if host == "metadata.example" else resolve(host, *more, **options),
    )
    webhooks.create(sending.session, "hook", "http://metadata.example/", CANCELED)
    kill(sending, created(sending))
    wait_until(lambda: [row["state"] for row in deliveries(sending)] == ["GIVEN_UP"])
    assert "metadata.example is 169.254.169.254, a link-local address" in deliveries(sending)[0]["answer"]


@pytest.mark.parametrize(
    ("triggers", "why"),
    [
        ([], "at least one trigger"),
        ([{"triggerType": "TRIGGER_TYPE_CUSTOM"}], "needs a webhook of mode SPECIFIC"),
        ([{"triggerType": "TRIGGER_TYPE_NONE"}], "is not one of TRIGGER_TYPE_EXPERIMENT_STATE_CHANGE"),
        ([{"triggerType": "TRIGGER_TYPE_EXPERIMENT_STATE_CHANGE"}], "one of ACTIVE, PAUSED"),
        ([{"triggerType": "TRIGGER_TYPE_TASK_LOG", "condition": {}}], "has regex"),
        ([{"triggerType": "TRIGGER_TYPE_TASK_LOG", "condition": {"regex": "("}}], "regex '\\('"),
        ([{"triggerType": "TRIGGER_TYPE_METRIC_THRESHOLD_EXCEEDED", "condition": {}}], "has metric_name"),
    ],
)
def test_triggers_that_are_refused(served: Served, triggers: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(Refused, match=why):
        webhooks.create(served.session, "hook", "https://example.org/", triggers)


def test_they_are_listed_edited_and_deleted(served: Served) -> None:
    vision = workspaces.create_workspace(served.session, "Vision")["id"]
    row = webhooks.create(
        served.session, "hook", "https://example.org/", CANCELED, workspaceId=vision, webhookType="WEBHOOK_TYPE_SLACK"
    )
    assert row["triggers"] == [{"id": 100, "webhookId": 1, **CANCELED[0]}]
    assert (row["workspaceId"], row["webhookType"], row["mode"]) == (
        vision,
        "WEBHOOK_TYPE_SLACK",
        "WEBHOOK_MODE_WORKSPACE",
    )
    assert webhooks.webhooks(served.session) == [row]
    with pytest.raises(Refused, match="webhook 'hook' already exists") as refusal:
        webhooks.create(served.session, "hook", "https://example.org/", CANCELED, workspaceId=vision)
    assert refusal.value.status_code == 409  # type: ignore[attr-defined]
    with pytest.raises(Refused, match=r"it has webhooks \(hook\)"):
        workspaces.delete_workspace(served.session, vision)
    assert webhooks.create(served.session, "hook", "https://example.org/", CANCELED)["workspaceId"] == 0
    webhooks.delete(served.session, 1)
    for act in (webhooks.delete, webhooks.test, webhooks.deliveries, webhooks.change):
        with pytest.raises(NotFound, match="webhook 1 not found"):
            act(served.session, 1)
    assert [row["id"] for row in webhooks.webhooks(served.session)] == [2]
    assert served.daemon.services.records.get(Webhook, 1).url == ""


def test_webhooks_need_no_name(sending: Served, receiver: Receiver) -> None:
    first, second = (webhooks.create(sending.session, "", receiver.url, CANCELED, mode=SPECIFIC) for _ in range(2))
    assert first["name"] == second["name"] == ""
    with pytest.raises(Refused, match="a webhook needs a name"):
        webhooks.create(sending.session, " ", receiver.url, CANCELED)
    config = f"{YAML}integrations: {{webhooks: {{webhook_id: [1, 2], webhook_name: ['']}}}}\n"
    notes = experiments.create(sending.session, config, [], activate=False)["notes"]
    assert [note for note in notes if "no webhook" in note] == [
        "there is no webhook '' in its workspace: det webhook create --specific creates one"
    ]
    kill(sending, created(sending, f"{YAML}integrations: {{webhooks: {{webhook_name: ['']}}}}\n"))
    kill(sending, 1)
    wait_until(lambda: len(receiver.posts) == 2)
    assert {post.event["event_data"]["experiment"]["id"] for post in receiver.posts} == {1}
    assert webhooks.change(sending.session, 2, name="named")["name"] == "named"


def test_a_mode_that_does_not_fit_the_triggers_is_refused(served: Served) -> None:
    custom = [{"triggerType": "TRIGGER_TYPE_CUSTOM", "condition": {}}]
    webhooks.create(served.session, "hook", "https://example.org/", custom, mode=SPECIFIC)
    webhooks.create(served.session, "all", "https://example.org/", CANCELED)
    for number, fields in ((1, {"mode": "WEBHOOK_MODE_WORKSPACE"}), (2, {"triggers": custom})):
        with pytest.raises(Refused, match="needs a webhook of mode SPECIFIC"):
            webhooks.change(served.session, number, **fields)
    webhooks.change(served.session, 2, mode=SPECIFIC, triggers=custom)
    webhooks.change(served.session, 1, mode="WEBHOOK_MODE_WORKSPACE", triggers=CANCELED, name="")


def test_of_which_experiments_a_webhook_reports(sending: Served, receiver: Receiver) -> None:
    vision = workspaces.create_workspace(sending.session, "Vision")["id"]
    project = workspaces.create_project(sending.session, vision, "Digits")["id"]
    webhooks.create(sending.session, "all", f"{receiver.url}/all", CANCELED)
    webhooks.create(sending.session, "vision", f"{receiver.url}/vision", CANCELED, workspaceId=vision)
    webhooks.create(sending.session, "named", f"{receiver.url}/named", CANCELED, mode="WEBHOOK_MODE_SPECIFIC")
    names = {
        "plain": created(sending),
        "excluded": created(sending, f"{YAML}integrations: {{webhooks: {{exclude: true}}}}\n"),
        "by name": created(sending, f"{YAML}integrations: {{webhooks: {{webhook_name: [named]}}}}\n"),
        "by id": created(sending, f"{YAML}integrations: {{webhooks: {{webhook_id: [3]}}}}\n", project=project),
    }
    for experiment_id in names.values():
        kill(sending, experiment_id)
    wait_until(lambda: not waiting(sending) and len(receiver.posts) >= 6)
    reports = {(post.path[1:], post.event["event_data"]["experiment"]["id"]) for post in receiver.posts}
    assert reports == {
        ("all", names["plain"]),
        ("all", names["by name"]),
        ("named", names["by name"]),
        ("all", names["by id"]),
        ("named", names["by id"]),
        ("vision", names["by id"]),
    }


def test_a_configuration_that_names_no_webhook_is_told_so(served: Served) -> None:
    webhooks.create(served.session, "mails", "https://example.org/", CANCELED)
    config = f"{YAML}integrations: {{webhooks: {{webhook_name: [mail, mails], webhook_id: [1, 7]}}}}\n"
    notes = experiments.create(served.session, config, [], activate=False)["notes"]
    assert [note for note in notes if "webhook" in note] == [
        "there is no webhook 'mail' in its workspace (did you mean 'mails'?): det webhook create --specific creates one",
        "there is no webhook '7' in its workspace (there are: mails): det webhook create --specific creates one",
    ]


def test_a_test_is_sent_at_once_and_shows_the_answer(served: Served, receiver: Receiver) -> None:
    webhooks.create(served.session, "hook", receiver.url, CANCELED)
    assert webhooks.test(served.session, 1) == "200 OK"
    assert receiver.posts[0].event["event_data"] == {"data": "test"}
    receiver.statuses = [410]
    with pytest.raises(Refused, match="the test of webhook 1 failed: 127.0.0.1 answers 410 Gone: not now"):
        webhooks.test(served.session, 1)


def test_slack_gets_messages(sending: Served, receiver: Receiver) -> None:
    webhooks.create(sending.session, "chat", receiver.url, CANCELED, webhookType="WEBHOOK_TYPE_SLACK")
    experiment_id = created(sending, YAML.replace("name: digits", "name: <a> & b"))
    kill(sending, experiment_id)
    wait_until(lambda: receiver.posts)
    message = receiver.posts[0].event
    assert message["blocks"][0]["text"] == {
        "type": "plain_text",
        "text": f"Experiment {experiment_id} is CANCELED",
    }
    (attachment,) = message["attachments"]
    (block,) = attachment["blocks"]
    assert block["text"]["text"] == (
        f"<https://det.example/det/experiments/{experiment_id}|&lt;a&gt; &amp; b (#{experiment_id})>"
    )
    assert "*Workspace*: Uncategorized" in [field["text"] for field in block["fields"]]


def test_the_published_client_works_with_them(served: Served, published: Published, receiver: Receiver) -> None:
    code = f"""
trigger = bindings.v1Trigger(
    triggerType=bindings.v1TriggerType.EXPERIMENT_STATE_CHANGE, condition={{"state": "COMPLETED"}}
)
webhook = bindings.v1Webhook(
    name="hook", url={receiver.url!r}, mode=bindings.v1WebhookMode.WORKSPACE, triggers=[trigger],
    webhookType=bindings.v1WebhookType.DEFAULT,
)
row = bindings.post_PostWebhook(sess, body=webhook).webhook
tested = bindings.post_TestWebhook(sess, id=row.id).completed
bindings.patch_PatchWebhook(sess, id=row.id, body=bindings.v1PatchWebhook(url={receiver.url!r} + "/new"))
rows = [one.to_json() for one in bindings.get_GetWebhooks(sess).webhooks]
bindings.delete_DeleteWebhook(sess, id=row.id)
left = len(bindings.get_GetWebhooks(sess).webhooks)
print(json.dumps([row.id, tested, rows, left]))
"""
    webhook_id, completed, rows, count = published.python(code)
    assert (webhook_id, completed, count) == (1, True, 0)
    assert rows[0]["url"] == f"{receiver.url}/new" and len(receiver.posts) == 1
