"""Logs of trials are deleted when their experiment says so, and not before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dethpc.domain.facts import Run
from dethpc.domain.states import RunState, State
from dethpc.errors import LeaseHeld
from dethpc.master.files import folding
from dethpc.master.files.retention import DAY, LogRetention
from dethpc.rundir import logline
from dethpc.rundir.files import exists
from dethpc.rundir.logline import LogLine
from tests.master.conftest import CONFIG, T0, Served, experiment, run_of, task_of, trial

END = T0 + 100


def put(served: Served, number: int, days: int | None, **changes: Any) -> Run:
    """An experiment with one trial that ended and has logs."""
    policy = {} if days is None else {"retention_policy": {"log_retention_days": days}}
    whose = trial(number, experiment_id=number, **{"ended_at": END, **changes})
    run = run_of(whose)
    served.put([experiment(number, config={**CONFIG, **policy}), whose, task_of(whose), run])
    directory = served.daemon.installation.home.run(run.id)
    directory.make()
    directory.attempt(0).make()
    directory.attempt(0).log(0).write_text(logline.format(LogLine(T0, "INFO", None, "stdout", "said")))
    directory.waiting(0).write_text("")
    directory.log.write_text("slurm says\n")
    directory.attempt(0).end.write_text("{}")
    return run


def said(served: Served, number: int) -> list[str]:
    lines = served.session.stream(f"/api/v1/trials/{number}/logs", params={"follow": False})
    return [line["message"] for line in lines]


def retention(served: Served) -> LogRetention:
    return LogRetention(served.daemon.store, served.daemon.installation.home, lambda: None, served.daemon.folding)


def test_logs_go_when_their_days_are_over_and_all_else_stays(served: Served) -> None:
    run, *_ = [put(served, 1, 30), put(served, 2, -1), put(served, 3, None), put(served, 4, 31)]
    keeper = retention(served)
    keeper.delete_due(END + 30 * DAY - 1)
    assert all("said" in "".join(said(served, number)) for number in (1, 2, 3, 4))
    keeper.delete_due(END + 30 * DAY + 1)
    (line,) = said(served, 1)
    assert "the log was deleted, as retention_policy says: the trial ended 30 days ago or earlier" in line
    assert all("said" in "".join(said(served, number)) for number in (2, 3, 4))
    directory = served.daemon.installation.home.run(run.id)
    assert directory.attempt(0).end.exists() and not directory.log.exists()
    note = directory.waiting(0).read_text()
    retention(served).delete_due(END + 40 * DAY)  # another master, which knows of nothing
    assert directory.waiting(0).read_text() == note


def test_logs_go_of_a_trial_whose_end_was_noticed_after_they_were_due(served: Served) -> None:
    keeper = retention(served)
    keeper.delete_due(END + 3600)
    put(served, 1, 0)  # its end is in the past
    keeper.delete_due(END + 2 * 3600)
    assert "the log was deleted" in "".join(said(served, 1))


def test_who_still_trains_keeps_the_logs_and_a_replaced_master_deletes_none(served: Served) -> None:
    def replaced() -> None:
        raise LeaseHeld("another master")

    put(served, 1, 0, state=State.ACTIVE, ended_at=None)
    served.put([replace(put(served, 2, 0), state=RunState.RUNNING)])
    retention(served).delete_due(END + DAY)
    assert all("said" in "".join(said(served, number)) for number in (1, 2))
    put(served, 3, 0)
    with pytest.raises(LeaseHeld):
        LogRetention(served.daemon.store, served.daemon.installation.home, replaced, served.daemon.folding).delete_due(
            END + DAY
        )
    assert "said" in "".join(said(served, 3))


def test_logs_that_cannot_be_deleted_keep_no_others_and_are_tried_again(served: Served) -> None:
    first, _ = put(served, 1, 0), put(served, 2, 0)
    in_the_way = served.daemon.installation.home.run(first.id).log
    in_the_way.unlink()
    in_the_way.mkdir()
    keeper = retention(served)
    keeper.delete_due(END + DAY)
    assert "the log was deleted" in "".join(said(served, 2))
    in_the_way.rmdir()
    keeper.delete_due(END + DAY + 1)
    assert "the log was deleted" in "".join(said(served, 1))


def test_logs_that_are_folded_go_when_their_days_are_over_and_all_else_stays(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "REST", 0.0)
    put(served, 1, 30)
    home = served.daemon.installation.home
    assert served.daemon.folding.fold_due(END + DAY) == 1 and sorted(home.runs.iterdir()) == [home.runs / "1.1.1.zip"]
    assert "said" in "".join(said(served, 1))
    retention(served).delete_due(END + 30 * DAY + 1)
    (line,) = said(served, 1)
    assert "the log was deleted, as retention_policy says: the trial ended 30 days ago or earlier" in line
    run_dir = home.find("1.1.1")
    assert exists(run_dir.attempt(0).end) and not exists(run_dir.log) and not exists(run_dir.attempt(0).logs)
    retention(served).delete_due(END + 40 * DAY)  # another master, which knows of nothing
    assert len(said(served, 1)) == 1
    assert served.daemon.folding.fold_due(2e10) == 1 and sorted(home.runs.iterdir()) == [home.runs / "1.1.1.zip"]
    assert said(served, 1) == [line]
