"""``core_context.searcher``: how long older code is asked to train."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Dict, List

import pytest

from dethpc import core
from dethpc.core._distributed import DummyDistributedContext
from dethpc.core._searcher import SearcherContext, Unit
from dethpc.rundir import fold_writer
from dethpc.rundir.files import write_json
from dethpc.rundir.journal import JournalWriter
from tests.core.conftest import Cluster, FakeMaster

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture(autouse=True)
def master(cluster: Cluster) -> FakeMaster:
    return cluster.start_master()


def lengths(context: core.Context) -> List[int]:
    found = []
    for op in context.searcher.operations():
        found.append(op.length)
        op.report_completed(0.5)
    return found


@pytest.mark.parametrize(
    ("searcher", "length", "unit"),
    [
        ({"max_length": 5}, 5, None),
        ({"max_length": {"batches": 5}}, 5, Unit.BATCHES),
        ({"max_length": {"records": 5}}, 5, Unit.RECORDS),
        ({"time_metric": "epochs", "max_time": 7}, 7, Unit.EPOCHS),
        ({"unit": "epochs", "max_length": 3}, 3, Unit.EPOCHS),
    ],
)
def test_the_length_is_in_the_unit_of_the_configuration(
    cluster: Cluster, searcher: Dict[str, Any], length: int, unit: Any
) -> None:
    cluster.info["trial"]["config"]["searcher"] = {"name": "x", "metric": "loss", **searcher}
    cluster.enter()
    with core.init() as context:
        assert context.searcher.get_configured_units() is unit
        assert lengths(context) == [length]


def test_a_time_metric_of_another_name_is_no_length(cluster: Cluster) -> None:
    cluster.info["trial"]["config"]["searcher"].update(time_metric="minutes", max_time=7)
    cluster.enter()
    with core.init() as context, pytest.raises(ValueError, match="max_length"):
        context.searcher.operations()


@pytest.mark.parametrize(
    ("search", "targets"),
    [({"length": 4}, [4]), ({"lengths": [1.0, 3.2, 16]}, [1, 4, 16]), ({"bracket": 1}, [16])],
)
def test_the_searchs_targets_for_the_trial_come_first(
    cluster: Cluster, search: Dict[str, Any], targets: List[int]
) -> None:
    cluster.info["trial"]["config"]["searcher"]["max_length"] = {"epochs": 16}
    cluster.info["trial"]["search"] = search
    cluster.enter()
    with core.init() as context:
        assert lengths(context) == targets
    assert [event.data["length"] for event in cluster.journal("searcher_op")] == targets


def complete(journal: Path, *lengths: int, **unit: str) -> None:
    journal.parent.mkdir(parents=True, exist_ok=True)
    writer = JournalWriter(journal)
    for length in lengths:
        writer.append("searcher_op", {"length": length, **unit, "metric": 0.5})
    writer.close()


def begin_again(cluster: Cluster) -> None:
    """In another attempt of the run, with lengths of 1, 4 and 16."""
    cluster.attempt = cluster.run.attempt(1)
    cluster.attempt.make()
    cluster.info["allocation_id"] = "1.3.2.1"
    cluster.info["trial"]["search"] = {"lengths": [1, 4, 16]}
    cluster.enter()


def test_a_later_attempt_goes_on_with_what_is_not_completed(cluster: Cluster) -> None:
    complete(cluster.attempt.journal, 1, 4)
    begin_again(cluster)
    with core.init() as context:
        assert lengths(context) == [16]


def test_a_later_run_trains_to_its_larger_target(cluster: Cluster) -> None:
    complete(cluster.run.path.with_name("1.3.1") / "attempts" / "0" / "journal.jsonl", 1)
    complete(cluster.run.path.with_name("1.33.1") / "attempts" / "0" / "journal.jsonl", 16)  # another trial
    cluster.info["trial"]["search"] = {"lengths": [1, 4]}
    cluster.enter()
    with core.init() as context:
        assert lengths(context) == [4]


def test_a_damaged_line_of_an_earlier_attempt_hides_none_after_it(cluster: Cluster) -> None:
    complete(cluster.attempt.journal, 1, 4)
    cluster.attempt.journal.write_bytes(cluster.attempt.journal.read_bytes().replace(b'"length":1', b'"length":9'))
    begin_again(cluster)
    with core.init() as context:
        assert lengths(context) == [16]


def test_a_trial_that_is_continued_after_it_was_folded_knows_what_it_completed(cluster: Cluster) -> None:
    runs, journal = cluster.run.path.parent, "1.3.1/attempts/0/journal.jsonl"
    complete(runs / journal, 1, 4)
    list(fold_writer.write(runs / "1.3.1.zip", [fold_writer.Source(journal, runs, journal)], []))
    shutil.rmtree(runs / "1.3.1")
    cluster.info["trial"]["search"] = {"lengths": [1, 4, 16]}
    cluster.enter()
    with core.init() as context:
        assert lengths(context) == [16]


@pytest.mark.parametrize(
    ("unit", "found"),
    [({"unit": "BATCHES"}, [4]), ({"unit": "EPOCHS"}, []), ({}, [])],
    ids=["another", "same", "older"],
)
def test_what_was_completed_in_another_unit_does_not_count(
    cluster: Cluster, unit: Dict[str, str], found: List[int]
) -> None:
    complete(cluster.run.path.with_name("1.3.1") / "attempts" / "0" / "journal.jsonl", 100, **unit)
    cluster.info["trial"]["config"]["searcher"]["max_length"] = {"epochs": 4}
    cluster.enter()
    with core.init() as context:
        assert lengths(context) == found


def test_preemption_ends_the_iteration_and_is_acknowledged(cluster: Cluster) -> None:
    cluster.info["trial"]["search"] = {"lengths": [1, 4, 16]}
    cluster.enter()
    seen = []
    with core.init() as context:
        for op in context.searcher.operations():
            seen.append(op.length)
            op.report_completed(0.5)
            write_json(cluster.attempt.stop, {"reason": "searcher"})
    assert seen == [1]
    assert cluster.attempt.ack.exists()
    assert [event.kind for event in cluster.journal()] == ["searcher_op", "ack"]


def test_the_next_operation_waits_for_the_verdict_on_the_last(cluster: Cluster, master: FakeMaster) -> None:
    answers = [0, 0, 1]  # the master learns of the attempt only after two questions

    def events(body: Dict[str, Any]) -> Any:
        applied = answers.pop(0) if len(answers) > 1 else answers[0]
        return 200, {"appliedSeq": applied, "stop": {"reason": "searcher"} if applied else None}

    master.answers["/api/v1/runs/1.3.2/attempts/0/events"] = events
    cluster.info["trial"]["search"] = {"lengths": [1, 4]}
    cluster.enter()
    with core.init() as context:
        assert lengths(context) == [1]
    assert cluster.attempt.ack.exists()


@pytest.mark.parametrize("status", [410, 400, 503])
def test_nobody_waits_for_a_master_that_does_not_answer(cluster: Cluster, master: FakeMaster, status: int) -> None:
    error = {"error": {"code": 9, "reason": "x", "error": "no"}}
    master.answers["/api/v1/runs/1.3.2/attempts/0/events"] = lambda body: (status, error)
    cluster.info["trial"]["search"] = {"lengths": [1, 4]}
    cluster.enter()
    with core.init() as context:
        found = lengths(context)
    assert found == ([1] if status == 410 else [1, 4])  # the one answer by which the attempt is over


def test_the_chief_may_iterate_alone(cluster: Cluster) -> None:
    reports: List[Any] = []
    context = SearcherContext(DummyDistributedContext(), lambda *report: reports.append(report), [2, 4])
    for op in context.operations(core.SearcherMode.ChiefOnly):
        op.report_progress(1)
        op.report_completed(float("nan"))
    assert reports == [
        ("progress", {"progress": 0.5}),
        ("searcher_op", {"length": 2, "metric": "NaN"}),
        ("progress", {"progress": 0.25}),
        ("searcher_op", {"length": 4, "metric": "NaN"}),
    ]
