"""Metrics that do not come from a trial's chief count exactly once, too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dethpc.domain.facts import Metric, Row
from dethpc.domain.reports import Report, ReportKind
from dethpc.errors import Refused, RunOver, StoreError, UnfitRow
from dethpc.master.check import check
from dethpc.master.durable.change_log import ChangeLog
from dethpc.master.rebuild import recreate
from dethpc.rundir.files import MOST_VALUES
from dethpc.rundir.journal import JournalWriter
from dethpc.state import open_store
from dethpc.state.store import SqlStore
from tests.master.reconciler_world import World
from tests.state.reading import metrics


def say(world: World, rank: int, *steps: int, k: int = 0, group: str = "training", **values: float) -> Path:
    """What a worker of this rank writes; its journal."""
    journal = world.home.run("1.1.1").attempt(k).journal_of(rank)
    journal.parent.mkdir(exist_ok=True)
    with JournalWriter(journal) as writer:
        for step in steps:
            writer.append(ReportKind.METRICS, report(step, group, rank=rank, **values))
    return journal


def report(steps: int | None, group: str = "training", **values: float) -> dict[str, Any]:
    return {"group": group, "steps_completed": steps, "metrics": values}


def counted(store: SqlStore) -> list[tuple[float, int]]:
    """(rank, steps) of what other workers than the chief reported."""
    return [(m.metrics["rank"], m.steps_completed) for m in metrics(store, [1]) if "rank" in m.metrics]


def rebuilt(world: World, folder: Path) -> list[tuple[float, int]]:
    """The same from the files alone."""
    ChangeLog(world.home).catch_up(world.store)
    assert [each for each in check(world.home.root)[1] if each.where in ("journal", "change log")] == []
    with open_store(folder / "again") as again:
        outcome = recreate(world.home, again)
        assert outcome.complete, outcome
        return counted(again)


@pytest.fixture
def world(world: World) -> World:
    """Its run 1.1.1 trains."""
    world.cycle()
    world.node_starts()
    world.cycle()
    return world


def test_what_other_workers_report_counts_once_whoever_is_master(world: World, tmp_path: Path) -> None:
    say(world, 1, 1, 2)
    world.cycle(2)
    assert counted(world.store) == [(1, 1), (1, 2)]
    world.reconciler = world.start()
    say(world, 1, 3)
    damaged = say(world, 2, 1, 2, 3)
    lines = damaged.read_bytes().splitlines(keepends=True)
    damaged.write_bytes(lines[0] + b"?" + lines[1][1:] + lines[2])
    world.cycle(2)
    assert counted(world.store) == [(1, 1), (1, 2), (1, 3), (2, 1)]
    say(world, 1, 4)
    world.node_ends()
    world.cycle(2)
    assert world.ended()
    say(world, 1, 5)  # by a node that was given up
    world.cycle()
    assert counted(world.store) == [(1, 1), (1, 2), (1, 3), (2, 1), (1, 4), (2, 3)] == rebuilt(world, tmp_path)


def test_a_master_that_was_killed_before_it_committed_what_it_took_does_so_at_its_next_start(world: World) -> None:
    say(world, 1, 1)
    master_journal = world.home.run("1.1.1").attempt(0).master_journal
    with JournalWriter(master_journal) as journal:
        journal.append(ReportKind.METRICS, {**report(1, rank=1), "rank": 1, "number": 1})
    world.cycle(2)
    assert counted(world.store) == [(1, 1)]


def test_what_a_resumed_trial_trains_again_counts_once(world: World, tmp_path: Path) -> None:
    say(world, 1, 1, 2, 3)
    world.cycle()
    world.node_says("1.1.1", "checkpoint", uuid="c2", steps_completed=2, resources={})
    world.cycle()
    say(world, 1, 4)
    world.node_starts(k=1, resumed_from="c2", resumed_steps=2, prior={"0": 1})
    world.fake.requeue(world.job().job_id)
    world.cycle(2)
    assert counted(world.store) == [(1, 1), (1, 2)], "it was at step 2 when the checkpoint came after report 3"
    say(world, 1, 3, 4, k=1)
    world.cycle(2)
    assert counted(world.store) == [(1, 1), (1, 2), (1, 3), (1, 4)] == rebuilt(world, tmp_path)


def test_the_search_hears_of_a_validation_by_another_worker(world: World) -> None:
    say(world, 3, 1, group="validation", loss=0.5)
    world.cycle()
    assert world.trial().best_validation == 0.5


def test_metrics_are_posted_for_a_trial_that_trains_or_has_ended(world: World, tmp_path: Path) -> None:
    post = world.worker_reports.post
    post(1, report(2, rank=9), None, None)
    post(1, report(3, rank=9), 1, "1.1.1")
    assert world.trial().steps_completed == 3
    with pytest.raises(Refused, match="run 7 is over"):
        post(1, report(4, rank=9), 7, None)
    with pytest.raises(Refused, match="steps_completed"):
        post(1, report(-1, rank=9), None, None)
    with pytest.raises(Refused, match="has not begun"):
        post(2, report(1, rank=9), None, None)
    world.node_ends()
    world.cycle(2)
    with pytest.raises(RunOver, match=r"run 1\.1\.1 has ended"):
        post(1, report(4, rank=9), 1, "1.1.1")
    post(1, report(None, rank=9, group="test"), None, None)
    assert counted(world.store) == [(9, 2), (9, 3), (9, 3)] == rebuilt(world, tmp_path)


def failing(world: World, monkeypatch: pytest.MonkeyPatch, *failures: Exception) -> None:
    """The next commits of metrics fail so."""
    commit, left = world.store.commit, list(failures)

    def fails(rows: Sequence[Row], *rest: Any) -> None:
        if left and any(isinstance(row, Metric) for row in rows):
            raise left.pop(0)
        commit(rows, *rest)

    monkeypatch.setattr(world.store, "commit", fails)


def test_reports_whose_commit_failed_count_once_with_the_next_ones(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = StoreError("database or disk is full")
    failing(world, monkeypatch, full)
    say(world, 1, 1, 2)
    with pytest.raises(StoreError):
        world.cycle()
    failing(world, monkeypatch, full)
    with pytest.raises(StoreError):
        world.worker_reports.post(1, report(3, rank=9), None, None)
    world.cycle(2)
    assert counted(world.store) == [(1, 1), (1, 2), (9, 3)] == rebuilt(world, tmp_path)


def test_a_report_that_the_database_has_no_place_for_keeps_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(world, monkeypatch, UnfitRow("no place"), UnfitRow("no place"))
    with pytest.raises(UnfitRow):
        world.worker_reports.post(1, report(1, rank=9), None, None)
    say(world, 1, 1)
    world.cycle(2)
    say(world, 1, 2)
    world.cycle()
    assert not world.ended() and counted(world.store) == [(1, 2)]


def test_what_is_decided_again_is_not_reported_again(world: World) -> None:
    say(world, 1, 1)
    world.cycle()
    attempt = world.ledger.state.attempt("1.1.1", 0)
    assert attempt is not None
    (again,) = [Report(1, 0.0, ReportKind.METRICS, report(1, rank=1))]
    world.ledger.do_after(lambda: world.worker_reports._taking(1, attempt, 1, [again]))
    assert counted(world.store) == [(1, 1)]


def test_a_report_that_has_no_room_left_costs_itself(world: World) -> None:
    journal = say(world, 1, 1)
    with JournalWriter(journal) as writer:
        for zeros in range(MOST_VALUES, 0, -1):  # the most that one report takes
            try:
                writer.append(ReportKind.METRICS, {**report(2), "metrics": {"rank": 1, "zeros": [0] * zeros}})
                break
            except ValueError:
                continue
    say(world, 1, 3)
    with pytest.raises(Refused, match="cannot be reported: .* too large"):
        world.worker_reports.post(1, {**report(4), "metrics": {"rank": 9, "text": "x" * (17 << 20)}}, None, None)
    world.cycle(4)
    assert counted(world.store) == [(1, 1), (1, 3)]
    assert "report 2 of rank 1 counts for nothing" in world.home.run("1.1.1").waiting(0).read_text()


def test_what_is_no_file_in_place_of_a_workers_journal_keeps_no_other_workers(world: World) -> None:
    say(world, 2, 1)
    world.home.run("1.1.1").attempt(0).journal_of(1).mkdir()
    world.cycle()
    assert counted(world.store) == [(2, 1)]


def test_no_journal_is_written_through_a_link(world: World, tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.tex"
    thesis.write_text("chapter one")
    journal = world.home.run("1.1.1").attempt(0).master_journal
    journal.parent.mkdir()
    journal.symlink_to(thesis)
    with pytest.raises(OSError):
        world.worker_reports.post(1, report(1, rank=9), None, None)
    assert thesis.read_text() == "chapter one"
