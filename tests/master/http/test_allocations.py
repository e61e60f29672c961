"""The history of slots: raw, in sums and as CSV, and what the published client prints of it."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
import requests

from dethpc.client.nouns import users, workspaces
from dethpc.domain.facts import Attempt, Task
from dethpc.domain.states import AttemptState, RunState, State, TaskKind
from dethpc.errors import Refused
from tests.master.conftest import Published, Served, experiment, run_of, trial
from tests.waiting import LONG_ENOUGH

DAILY, MONTHLY = (f"RESOURCE_ALLOCATION_AGGREGATION_PERIOD_{period}" for period in ("DAILY", "MONTHLY"))
HOUR = 3600.0


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()


@pytest.fixture
def history(served: Served) -> Served:
    """Two slots from 20:00 on the last of October to 04:00 on the first of November; one, restarted once, in an afternoon."""
    long, short = trial(1), trial(2, 2, index=0)
    runs = [replace(run_of(long), slots=2, pool="gpu"), run_of(short), replace(run_of(trial(3, 3, index=0)))]
    spans = [
        (runs[0], 0, "2025-10-31T20:00", "2025-11-01T04:00"),
        (runs[1], 0, "2025-11-02T12:00", "2025-11-02T13:00"),
        (runs[1], 1, "2025-11-02T14:00", "2025-11-02T14:30"),
    ]
    attempts = [
        Attempt(run.id, k, run.experiment_id, run.task_id, AttemptState.ENDED, at(begin), at(end))
        for run, k, begin, end in spans
    ]
    ada = users.create(served.session, "ada", "")["id"]
    served.put(
        [
            experiment(1, user_id=ada, labels=["a,b", "c"]),
            experiment(2, user_id=ada),
            long,
            short,
            *runs[:2],
            *attempts,
        ]
    )
    return served


def raw(served: Served, after: str, before: str) -> list[dict[str, Any]]:
    times = {"timestampAfter": after, "timestampBefore": before}
    answer: list[dict[str, Any]] = served.session.get("/api/v1/resources/allocation/raw", times)["resourceEntries"]
    return answer


def sums(served: Served, start: str, end: str, period: str = DAILY) -> list[dict[str, Any]]:
    dates = {"startDate": start, "endDate": end, "period": period}
    answer: list[dict[str, Any]] = served.session.get("/api/v1/resources/allocation/aggregated", dates)[
        "resourceEntries"
    ]
    return answer


def test_raw_allocations_of_a_time(history: Served) -> None:
    entries = raw(history, "2025-11-01T00:00:00Z", "2025-11-02T12:30:00Z")
    assert [(one["experimentId"], one["username"], one["slots"], one["seconds"]) for one in entries] == [
        (1, "ada", 2, 4 * HOUR),
        (2, "ada", 1, HOUR / 2),
    ]
    assert {one["userId"] for one in entries} == {users.by_name(history.session, "ada")["id"]}
    assert entries[0]["labels"] == ["a,b", "c"] and entries[0]["kind"] == "trial"
    assert entries[0]["startTime"] == "2025-10-31T20:00:00.000000Z" and entries[0]["endTime"]
    assert raw(history, "2025-11-01T04:00:00Z", "2025-11-02T12:00:00Z") == []


def test_sums_by_day_and_month_are_slot_seconds(history: Served) -> None:
    days = sums(history, "2025-10-31", "2025-11-02")
    assert [(one["periodStart"], one["seconds"] / HOUR) for one in days] == [
        ("2025-10-31", 8),
        ("2025-11-01", 8),
        ("2025-11-02", 1.5),
    ]
    assert days[0]["byUsername"] == {"ada": 8 * HOUR} and days[0]["byResourcePool"] == {"gpu": 8 * HOUR}
    assert days[0]["byExperimentLabel"] == {"a,b": 8 * HOUR, "c": 8 * HOUR} and days[2]["byExperimentLabel"] == {}
    months = sums(history, "2025-10", "2025-11", MONTHLY)
    assert [(one["periodStart"], one["seconds"] / HOUR) for one in months] == [("2025-10", 8), ("2025-11", 9.5)]
    assert sums(history, "2025-11-03", "2025-12-31") == [] and sums(history, "1970-01-01", "9998-12-31")


def test_what_still_holds_its_slots_counts_until_now(served: Served) -> None:
    busy = trial(1, state=State.ACTIVE, ended_at=None)
    run = run_of(busy, state=RunState.RUNNING)
    begin = datetime.now(timezone.utc).timestamp() - 600
    attempt = Attempt(run.id, 0, 1, run.task_id, AttemptState.RUNNING, begin)
    served.put([experiment(1, state=State.ACTIVE, ended_at=None), busy, run, attempt])
    (entry,) = raw(served, "2025-01-01T00:00:00Z", "2100-01-01T00:00:00Z")
    assert entry["endTime"] is None and 600 <= entry["seconds"] < 1200
    assert 600 <= sum(one["seconds"] for one in sums(served, "2025-01-01", "2100-01-01")) < 1200


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("raw", {"timestampAfter": "x", "timestampBefore": "2025-11-02T12:30:00Z"}),
        ("raw", {"timestampAfter": "2025-11-03T00:00:00Z", "timestampBefore": "2025-11-02T12:30:00Z"}),
        ("raw", {"timestampAfter": "2025-11-03T00:00:00Z"}),
        ("aggregated", {"startDate": "2025-11", "endDate": "2025-11-03"}),
        ("aggregated", {"startDate": "2025-11-04", "endDate": "2025-11-03"}),
        ("aggregated", {"startDate": "0001-01-01", "endDate": "9999-12-31"}),
        ("aggregated", {"startDate": "2025-11-04", "endDate": "2025-11-05", "period": "WEEKLY"}),
    ],
)
def test_times_that_are_none_are_refused(served: Served, path: str, parameters: dict[str, str]) -> None:
    for prefix in ("/api/v1", ""):
        with pytest.raises(Refused):
            served.session.get(f"{prefix}/resources/allocation/{path}", parameters)


def test_the_same_as_csv(history: Served) -> None:
    def table(path: str, **parameters: str) -> list[dict[str, str]]:
        answer = requests.get(
            f"{history.url}/resources/allocation/{path}",
            parameters,
            headers={"Authorization": f"Bearer {history.token}"},
            timeout=LONG_ENOUGH,
        )
        assert answer.headers["content-type"].startswith("text/csv"), answer.text
        return list(csv.DictReader(io.StringIO(answer.text)))

    times = {"timestampAfter": "2025-10-01T00:00:00Z", "timestampBefore": "2025-12-01T00:00:00Z"}
    rows = table("raw", **times)
    assert [(row["username"], row["labels"], row["seconds"]) for row in rows][0] == ("ada", "a\\,b,c", "28800.000000")
    rows = table("allocations-csv", **times)
    assert [(row["allocation_id"], row["slot_hours"], row["resource_pool"]) for row in rows] == [
        ("1.1.1.0", "16.000000", "gpu"),
        ("2.2.1.0", "1.000000", "default"),
        ("2.2.1.1", "0.500000", "default"),
    ]
    assert rows[0]["workspace_name"] == "Uncategorized"
    rows = table("aggregated", startDate="2025-11-02", endDate="2025-11-02", period=DAILY)
    assert [tuple(row.values()) for row in rows] == [
        ("username", "ada", "2025-11-02", "5400.000000"),
        ("resource_pool", "default", "2025-11-02", "5400.000000"),
        ("total", "total", "2025-11-02", "5400.000000"),
    ]


def test_what_a_task_of_its_own_held_is_of_its_workspace(served: Served) -> None:
    vision = workspaces.create_workspace(served.session, "Vision")["id"]
    began, ended = at("2025-11-02T12:00"), at("2025-11-02T13:00")
    for id, config in (("inside", {"workspace_id": vision}), ("before", {})):
        task = Task(id, TaskKind.COMMAND, id, "me", State.COMPLETED, began, config=config)
        run = run_of(trial(1), id=f"{id}.1", task_id=id, experiment_id=None)
        served.put([task, run, Attempt(run.id, 0, None, id, AttemptState.ENDED, began, ended)])
    times = {"timestamp_after": "2025-10-01T00:00:00Z", "timestamp_before": "2025-12-01T00:00:00Z"}
    answer = requests.get(
        f"{served.url}/resources/allocation/allocations-csv",
        times,
        headers={"Authorization": f"Bearer {served.token}"},
        timeout=LONG_ENOUGH,
    )
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert {row["allocation_id"]: (row["workspace_name"], row["experiment_id"]) for row in rows} == {
        "inside.1.0": ("Vision", ""),
        "before.1.0": ("Uncategorized", ""),
    }


def test_the_published_client_prints_them(published: Published, history: Served) -> None:
    times = ("2025-10-01T00:00:00Z", "2025-12-01T00:00:00Z")
    assert "ada" in published.det("resources", "raw", *times)
    assert "Uncategorized" in published.det("resources", "allocations", *times)
    assert "2025-11-01" in published.det("resources", "aggregated", "2025-11-01", "2025-11-02")
    assert "2025-11" in published.det("resources", "aggregated", "2025-10", "2025-11", "--monthly", "--json")
    got = published.python(
        "period = bindings.v1ResourceAllocationAggregationPeriod.MONTHLY\n"
        "sums = bindings.get_ResourceAllocationAggregated(sess, startDate='2025-10', endDate='2025-11', period=period)\n"
        f"raw = bindings.get_ResourceAllocationRaw(sess, timestampAfter={times[0]!r}, timestampBefore={times[1]!r})\n"
        "print(json.dumps([len(sums.resourceEntries), [one.seconds for one in raw.resourceEntries]]))"
    )
    assert got == [2, [8 * HOUR, HOUR, HOUR / 2]]
