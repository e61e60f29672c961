"""The message to everybody who uses the cluster."""

from __future__ import annotations

import time
from typing import Any

import pytest
import requests

from dethpc.domain.text.times import seconds
from dethpc.errors import Refused
from dethpc.master.http.models import time as spelled
from tests.master.conftest import Published, Served
from tests.web.conftest import Visitor

PATH = "/api/v1/master/cluster_message"
NOW = "2025-11-13T02:00:00Z"


def message(served: Served) -> dict[str, Any] | None:
    answer: dict[str, Any] | None = served.session.get(PATH)["clusterMessage"]
    return answer


def test_a_message_is_set_replaced_and_cleared(served: Served) -> None:
    assert message(served) is None
    served.session.put(PATH, {"message": "down at noon", "startTime": NOW})
    first = message(served)
    assert first and (first["message"], first["startTime"], first["endTime"]) == (
        "down at noon",
        "2025-11-13T02:00:00.000000Z",
        None,
    )
    later = spelled(time.time() + 3600)
    served.session.put(PATH, {"message": "down at one", "startTime": later, "duration": "1h30m0.5s"})
    second = message(served)
    assert second and second["message"] == "down at one"
    assert second["endTime"] == spelled(seconds(later) + 5400.5)
    served.session.delete(PATH)
    served.session.delete(PATH)
    assert message(served) is None


def test_who_is_logged_in_sees_the_message_of_now_in_the_masters_answer_and_on_each_page(served: Served) -> None:
    def shown() -> Any:
        return served.session.get("/api/v1/master")["clusterMessage"]

    visitor = Visitor(served.url).enter(served)

    def on_page() -> bool:
        return "down at &lt;noon&gt;" in visitor.get("experiments").text

    assert shown() is None and not on_page()
    served.session.put(PATH, {"message": "down at <noon>", "startTime": spelled(time.time() + 3600)})
    assert shown() is None and not on_page()
    served.session.put(PATH, {"message": "down at <noon>", "startTime": NOW})
    assert shown()["message"] == "down at <noon>" and on_page()
    stranger = requests.get(f"{served.url}/api/v1/master", timeout=60).json()
    assert stranger["clusterMessage"] is None


def test_a_message_ends(served: Served) -> None:
    served.session.put(PATH, {"message": "soon over", "startTime": NOW, "endTime": spelled(time.time() + 1)})
    assert message(served)
    time.sleep(1.1)
    assert message(served) is None


@pytest.mark.parametrize(
    "change",
    [
        {"message": " "},
        {"message": "x" * 251},
        {"message": "\ud800"},
        {"message": "down\u202e at \x1b[31mnoon"},
        {"startTime": "now"},
        {"startTime": "0001-01-01T00:00:00+23:59"},
        {"endTime": "2100-01-01T00:00:00Z", "duration": "1h"},
        {"endTime": "2025-11-13T03:00:00Z"},
        {"startTime": "2100-01-02T00:00:00Z", "endTime": "2100-01-01T00:00:00Z"},
        {"duration": "an hour"},
        {"duration": "-1h"},
        {"duration": "9" * 200 + "h"},
        {"duration": "1h "},
    ],
)
def test_what_makes_no_sense_is_refused(served: Served, change: dict[str, str]) -> None:
    with pytest.raises(Refused):
        served.session.put(PATH, {"message": "x", "startTime": NOW, **change})
    assert message(served) is None


def test_the_published_client_sets_it(published: Published, served: Served) -> None:
    published.det("master", "cluster-message", "set", "--message", "down at noon", "--duration", "24h")
    assert "down at noon" in published.det("master", "cluster-message", "get")
    assert "down at noon" in published.det("master", "info")
    published.det("master", "cluster-message", "clear")
    assert "down at noon" not in published.det("master", "cluster-message", "get")
