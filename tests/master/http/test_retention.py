"""For how long logs are kept, set anew for experiments and trials; logs that are due go on request."""

from __future__ import annotations

import time
from typing import Any

import pytest

from dethpc.errors import NotFound, Refused
from dethpc.master.files.retention import DAY
from tests.master.conftest import Published, Served
from tests.master.files.test_retention import put, said


def retain(served: Served, noun: str, id: int, days: Any) -> None:
    served.session.put(f"/api/v1/{noun}s/{id}/retain_logs", {"numDays": days})


def remaining(served: Served, trial_id: int) -> int:
    return int(served.session.get(f"/api/v1/trials/{trial_id}/remaining_log_retention_days")["remainingDays"])


def cleaned(served: Served) -> str:
    return str(served.session.post("/api/v1/cleanup_logs")["removedCount"])


def test_days_of_a_trial_count_before_those_of_its_experiment_and_its_configuration(served: Served) -> None:
    ended = time.time() - 10.5 * DAY
    put(served, 1, 30, ended_at=ended)
    put(served, 2, None, ended_at=ended)
    assert (remaining(served, 1), remaining(served, 2)) == (19, -1) and cleaned(served) == "0"
    retain(served, "experiment", 1, 12)
    retain(served, "trial", 2, 3)
    assert (remaining(served, 1), remaining(served, 2)) == (1, 0)
    retain(served, "trial", 1, -1)
    assert remaining(served, 1) == -1
    assert cleaned(served) == "1" and cleaned(served) == "0"
    assert "said" in "".join(said(served, 1)) and "the log was deleted" in "".join(said(served, 2))
    retain(served, "experiment", 1, 5)
    assert remaining(served, 1) == 0, "the experiment's days are those of all its trials"
    assert cleaned(served) == "1" and "the log was deleted" in "".join(said(served, 1))


def test_the_master_itself_deletes_what_became_due_by_new_days(served: Served) -> None:
    put(served, 1, None, ended_at=time.time() - 10 * DAY)
    keeper = served.daemon.services.retention
    assert keeper.delete_due(time.time()) == 0
    retain(served, "experiment", 1, 5)
    assert keeper.delete_due(time.time()) == 1


def test_many_experiments_at_a_time(served: Served) -> None:
    for id in (1, 2):
        put(served, id, None)
    body = {"experimentIds": [1, 2, 9], "numDays": 7, "projectId": 1}
    results = served.session.put("/api/v1/projects/1/experiments/retain_logs", body)["results"]
    assert [(one["id"], one["error"]) for one in results] == [(1, ""), (2, ""), (9, "experiment 9 not found")]
    assert remaining(served, 1) == remaining(served, 2) == 0
    with pytest.raises(Refused, match="numDays is missing"):
        served.session.put("/api/v1/projects/1/experiments/retain_logs", {"experimentIds": [1]})


def test_what_is_not_there_and_days_that_cannot_be(served: Served) -> None:
    for noun in ("experiment", "trial"):
        with pytest.raises(NotFound):
            retain(served, noun, 9, 1)
        for days in (-2, 40_000, "soon", None, 1.5, 10**40):
            with pytest.raises(Refused, match="numDays"):
                retain(served, noun, 1, days)
    with pytest.raises(NotFound):
        remaining(served, 9)


def test_the_published_client_sets_them(published: Published, served: Served) -> None:
    put(served, 1, None, ended_at=time.time() - 10 * DAY)
    published.det("experiment", "set", "log-retention", "1", "--days", "100")
    assert remaining(served, 1) == 89
    published.det("trial", "set", "log-retention", "1", "--forever")
    assert remaining(served, 1) == -1
    published.det("task", "cleanup-logs")
    got = published.python(
        "bindings.put_PutTrialRetainLogs(sess, trialId=1, body=bindings.v1PutTrialRetainLogsRequest(numDays=3))\n"
        "print(json.dumps(bindings.post_CleanupLogs(sess).removedCount))"
    )
    assert got == "1"
