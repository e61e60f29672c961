"""Reporting: what reaches the journal and the master, and what happens when one of them cannot take it."""

from __future__ import annotations

import datetime
import enum
import errno
import itertools
import json
import math
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from pathlib import Path
from typing import Any, Callable, List

import pytest

from dethpc import core
from dethpc.core import _reporter
from dethpc.domain.ids import AttemptId
from dethpc.domain.reports import Report, ReportKind
from dethpc.errors import InvalidHP, MasterUnreachable, MetricMissing
from dethpc.rundir.journal import read
from tests.core.conftest import TOKEN, Cluster
from tests.waiting import cheapest, wait_until

ROOT = Path(__file__).parents[2]


def brief(events: List[Report]) -> List[Any]:
    return [(event.seq, event.kind, event.data) for event in events]


def test_reports_are_in_the_journal_and_reach_the_master(cluster: Cluster) -> None:
    master = cluster.start_master()
    cluster.enter()
    with core.init() as context:
        context.train.report_training_metrics(10, {"loss": 0.5}, [{"loss": 0.4}, {"loss": 0.6}])
        context.train.report_validation_metrics(10, {"acc": 1})
        context.train.report_metrics("inference", 11, {"x": {"y": [1, 2]}})
        context.train.report_progress(0.25)
        context.train.set_status("warming up")
        assert context.train.set_metadata({"a": {"b": 1}}) == {"a": {"b": 1}}
    expected = [
        (
            1,
            "metrics",
            {
                "group": "training",
                "steps_completed": 10,
                "metrics": {"loss": 0.5},
                "batch_metrics": [{"loss": 0.4}, {"loss": 0.6}],
            },
        ),
        (2, "metrics", {"group": "validation", "steps_completed": 10, "metrics": {"acc": 1}}),
        (3, "metrics", {"group": "inference", "steps_completed": 11, "metrics": {"x": {"y": [1, 2]}}}),
        (4, "progress", {"progress": 0.25}),
        (5, "status", {"status": "warming up"}),
        (6, "run_metadata", {"metadata": {"a": {"b": 1}}}),
    ]
    assert brief(cluster.journal()) == expected
    assert brief(master.events) == expected


def test_what_nobody_waits_for_rings_no_sooner_than_the_master_says_and_a_validation_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_reporter, "_LONGEST_REST", 1e9)
    master = cluster.start_master()
    master.ring_after = 1e9
    cluster.enter()
    rings = lambda: sum(asked.endswith("/events") for asked in master.asked)  # noqa: E731
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
        wait_until(lambda: master.events)
        for step in range(2, 300):
            context.train.report_training_metrics(step, {"loss": 1.0})
            time.sleep(0.001)
        context.train.report_validation_metrics(300, {"loss": 1.0})
        wait_until(lambda: len(master.events) == 300)
        assert rings() == 2
        for step in range(1, 2 * _reporter._BATCH):  # a full call does not wait either
            context.train.report_training_metrics(300 + step, {"loss": 1.0})
        wait_until(lambda: len(master.events) > 300)
        context.train.report_training_metrics(10_000, {"loss": 1.0})
    assert len(master.events) == 301 + 2 * _reporter._BATCH - 1, "leaving tells everything"


def test_only_what_the_thread_does_not_know_yet_wakes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reporter = _reporter.Reporter(tmp_path / "journal", None, AttemptId("1.1.1", 0), str, str)  # type: ignore[arg-type]
    woken: List[int] = []
    monkeypatch.setattr(reporter._lock, "notify_all", lambda: woken.append(len(reporter._waiting)))
    for step in range(3 * _reporter._BATCH):
        reporter.report(ReportKind.METRICS, {"group": "training", "steps_completed": step, "metrics": {}})
    assert woken == [1, _reporter._BATCH]
    reporter.report(ReportKind.METRICS, {"group": "validation", "steps_completed": 1, "metrics": {}})
    assert woken[2:] == [3 * _reporter._BATCH + 1]


def test_a_second_context_goes_on_where_the_first_ended(cluster: Cluster) -> None:
    cluster.start_master()
    cluster.enter()
    for n in range(2):
        with core.init() as context:
            context.train.report_progress(n / 2)
    assert [event.seq for event in cluster.journal()] == [1, 2]


def test_without_a_master_training_goes_on_and_the_journal_has_everything(cluster: Cluster) -> None:
    cluster.enter()
    with core.init() as context:
        steps = itertools.count()
        took = cheapest(lambda: context.train.report_training_metrics(next(steps), {"loss": 1.0}))
        with pytest.raises(MasterUnreachable):
            context.train._session._retries = 0
            context.train.get_experiment_best_validation()
    assert len(cluster.journal()) == 2000
    assert took < 0.001, "a report may not cost the loop a millisecond"


def test_reports_find_a_master_that_moved(cluster: Cluster) -> None:
    (cluster.root / "master.json").write_text(json.dumps({"url": "http://127.0.0.1:1"}))
    cluster.enter()
    with core.init() as context:
        context.train.report_progress(0.1)
        time.sleep(0.05)
        master = cluster.start_master()
        wait_until(lambda: len(master.events) == 1)


def test_what_the_disk_refuses_goes_to_the_master_alone_in_order(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    master = cluster.start_master()
    cluster.enter()
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignore = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with core.init() as context:
            context.train.report_progress(0.1)
            size = cluster.attempt.journal.stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, old[1]))  # the disk takes ten bytes more
            for n in (2, 3, 4):
                context.train.report_progress(n / 10)
            wait_until(lambda: len(master.events) == 4)
            assert [event.seq for event in master.events] == [1, 2, 3, 4]
            assert [event.seq for event in cluster.journal()] == [1]
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
            context.train.report_progress(0.5)
        assert [event.seq for event in cluster.journal()] == [1, 2, 3, 4, 5]
        assert caplog.text.count("the journal cannot be written") == 1
        assert os.strerror(errno.EFBIG) in caplog.text
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, ignore)


def test_an_attempt_that_is_over_is_told_to_stop(cluster: Cluster) -> None:
    master = cluster.start_master()
    refusal = {"error": {"code": 9, "reason": "x", "error": "attempt 0 is over"}}
    master.answers["/api/v1/runs/1.3.2/attempts/0/events"] = lambda body: (410, refusal)
    cluster.enter()
    with core.init() as context:
        assert not context.preempt.should_preempt()
        context.train.report_progress(0.5)
        wait_until(context.preempt.should_preempt)


class Colour(enum.Enum):
    RED = 1


class Scalar:
    """What numpy's and torch's scalars have in common."""

    def tolist(self) -> float:
        return 0.25


def test_unusual_values_survive(cluster: Cluster) -> None:
    cluster.enter()
    moment, name = datetime.datetime(2024, 1, 2), uuid.uuid4()
    with core.init() as context:
        context.train.report_training_metrics(
            1,
            {
                "nan": math.nan,
                "list": [math.inf, -math.inf, 1.5],
                "scalar": Scalar(),
                "colour": Colour.RED,
                "when": moment,
                "id": name,
                "bytes": b"text",
                "nothing": None,
                7: True,
            },
        )
    assert cluster.journal()[0].data["metrics"] == {
        "nan": "NaN",
        "list": ["Infinity", "-Infinity", 1.5],
        "scalar": 0.25,
        "colour": "RED",
        "when": moment.isoformat(),
        "id": str(name),
        "bytes": "text",
        "nothing": None,
        "7": True,
    }


def test_numpy_and_torch_values_are_numbers(cluster: Cluster) -> None:
    np, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    cluster.enter()
    with core.init() as context:
        context.train.report_training_metrics(
            np.int64(5),
            {
                "f64": np.float64(0.5),
                "f32": np.float32("nan"),
                "i": np.int32(3),
                "b": np.bool_(True),
                "a": np.arange(3),
                "t": torch.tensor(0.5, requires_grad=True),
                "ti": torch.tensor([float("inf")]),
                "bf": torch.tensor(2.0, dtype=torch.bfloat16),
            },
        )
    event = cluster.journal()[0]
    assert event.data["steps_completed"] == 5
    assert event.data["metrics"] == {
        "f64": 0.5,
        "f32": "NaN",
        "i": 3,
        "b": True,
        "a": [0, 1, 2],
        "t": 0.5,
        "ti": ["Infinity"],
        "bf": 2.0,
    }


def test_a_value_that_cannot_be_reported_fails_where_it_is_reported(cluster: Cluster) -> None:
    cluster.enter()
    with core.init() as context:
        train = context.train
        with pytest.raises(TypeError, match=r"metric 'model'\['deep'\] is a .*object"):
            train.report_training_metrics(1, {"model": {"deep": object()}})
        with pytest.raises(TypeError, match="UTF-8"):
            train.report_training_metrics(1, {"x": b"\xff"})
        with pytest.raises(TypeError, match="metrics must be a dict"):
            train.report_training_metrics(1, [1])  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="steps_completed"):
            train.report_training_metrics("1", {})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="without '.'"):
            train.report_metrics("a.b", 1, {})
        with pytest.raises(ValueError, match="from 0 to 1"):
            train.report_progress(1.5)
        with pytest.raises(RuntimeError, match="'acc' is None"):
            train.report_validation_metrics(1, {"acc": None})
        with pytest.warns(UserWarning, match="blob"):
            train.report_validation_metrics(1, {"acc": 1, "blob": b"x"})
    assert [event.data["metrics"] for event in cluster.journal()] == [{"acc": 1}]
    with pytest.raises(RuntimeError, match="closed"):
        train.report_progress(0.5)


def test_off_the_cluster_what_a_cluster_would_refuse_is_a_warning(
    off_cluster: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with core.init() as context:
        train = context.train
        reports: List[Callable[[], None]] = [
            lambda: train.report_training_metrics(1, {"model": object()}),
            lambda: train.report_training_metrics("1", {}),  # type: ignore[arg-type]
            lambda: train.report_metrics("a.b", 1, {}),
            lambda: train.report_progress(1.5),
            lambda: train.report_validation_metrics(1, {"acc": None}),
        ]
        for report in reports:
            caplog.clear()
            report()
            assert "on a cluster" in caplog.text
        caplog.clear()
        with context.checkpoint.store_path({"note": "no steps"}) as (path, storage_id):
            assert path.name == storage_id
        assert "steps_completed" in caplog.text
        assert context.checkpoint.get_metadata(storage_id) == {"note": "no steps"}


def test_the_best_validation_comes_from_the_master(cluster: Cluster) -> None:
    master = cluster.start_master()
    path = "/api/v1/experiments/1/searcher/best_searcher_validation_metric"
    cluster.enter()
    with core.init() as context:
        assert context.train.get_experiment_best_validation() is None
        master.answers[path] = lambda body: (200, {"metric": 0.25})
        assert context.train.get_experiment_best_validation() == 0.25
        master.answers["/api/v1/runs/3/metadata"] = lambda body: (200, {"metadata": {"k": 1}})
        assert context.train.get_metadata() == {"k": 1}


def test_invalid_hyperparameters_are_reported_and_the_process_exits_with_zero(cluster: Cluster) -> None:
    cluster.enter()
    with pytest.raises(SystemExit) as exit, core.init():
        raise InvalidHP("lr and momentum do not go together")
    assert exit.value.code == 0
    assert brief(cluster.journal()) == [(1, "early_exit", {"reason": "EXITED_REASON_INVALID_HP"})]


def test_what_would_fail_again_is_reported_as_such(cluster: Cluster) -> None:
    cluster.enter()
    with pytest.raises(MetricMissing), core.init():
        raise MetricMissing("acuracy is not among them")
    assert brief(cluster.journal()) == [(1, "early_exit", {"reason": "WOULD_FAIL_AGAIN: acuracy is not among them"})]


def test_another_workers_invalid_hyperparameters_are_told_to_the_master(cluster: Cluster) -> None:
    master = cluster.start_master()
    told: List[Any] = []
    master.answers["/api/v1/trials/3/early_exit"] = lambda body: (told.append(body) or 200, {})  # type: ignore[func-returns-value]
    cluster.enter()
    context = core.init(distributed=beside_chief())
    context.train.report_early_exit(core.EarlyExitReason.INVALID_HP)
    assert told == [{"reason": "EXITED_REASON_INVALID_HP"}]


def test_metrics_of_another_worker_are_in_its_own_journal_without_a_master(cluster: Cluster) -> None:
    cluster.enter()
    for values in ({"loss": 0.5}, {"loss": math.nan}):  # the second time it was started again by its launcher
        with core.init(distributed=beside_chief()) as context:
            context.train.report_training_metrics(2, values)
    found = [(event.seq, event.data["metrics"]) for event in read(cluster.attempt.journal_of(1))[0]]
    assert found == [(1, {"loss": 0.5}), (2, {"loss": "NaN"})] and cluster.journal() == []


def test_progress_of_another_worker_goes_to_the_master(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    master = cluster.start_master()
    told: List[Any] = []
    answers = iter([(503, {}), (200, {}), (403, {"error": {"code": 7, "error": "no"}}), (200, {})])

    def take(body: Any) -> Any:
        told.append(body["progress"])
        return next(answers)

    master.answers["/api/v1/trials/3/progress"] = take
    cluster.enter()
    with core.init(distributed=beside_chief()) as context:
        for progress in (0.25, 0.5, 0.75):
            context.train.report_progress(progress)
    assert told == [0.25, 0.25, 0.5, 0.75]
    assert "refuses a report of trial 3" in caplog.text and cluster.journal() == []


def beside_chief() -> core.DistributedContext:
    """The second worker of two, who has nobody to speak to."""
    context = core.DummyDistributedContext()
    context.rank, context.size = 1, 2
    return context


def test_a_killed_process_leaves_all_that_it_reported(cluster: Cluster) -> None:
    cluster.enter()
    code = """
    import os, signal
    from dethpc import core
    with core.init() as context:
        for step in range(1, 101):
            context.train.report_training_metrics(step, {"loss": 1 / step})
        os.kill(os.getpid(), signal.SIGKILL)
    """
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=env, check=False)
    assert [event.data["steps_completed"] for event in cluster.journal()] == list(range(1, 101))


def test_tensorboard_files_are_copied_to_storage(cluster: Cluster, tmp_path: Path) -> None:
    cluster.enter()
    with core.init() as context:
        path = context.train.get_tensorboard_path()
        (path / "sub").mkdir(exist_ok=True)
        (path / "sub" / "events").write_text("1")
        with pytest.raises(RuntimeError, match="MANUAL"):
            context.train.upload_tensorboard_files()
    assert (cluster.storage / "c1/tensorboard/experiment/1/trial/3/sub/events").read_text() == "1"
    with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context:
        path = context.train.get_tensorboard_path()  # outside an attempt each has a folder of its own
        (path / "sub").mkdir(exist_ok=True)
        (path / "sub" / "events").write_text("1")
        context.train.upload_tensorboard_files(
            lambda file: file.name == "events", lambda file, rank: file.with_name(f"{file.name}.{rank}")
        )
    assert (cluster.storage / "c1/tensorboard/experiment/1/trial/3/sub/events.0").read_text() == "1"
    import shutil

    shutil.rmtree(path)


def test_off_the_cluster_reports_are_accepted(off_cluster: Path) -> None:
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": 0.5})
        context.train.report_validation_metrics(1, {"loss": 0.5})
        context.train.report_progress(1)
        context.train.report_early_exit(core.EarlyExitReason.USER_REQUESTED_STOP)
        assert context.train.get_experiment_best_validation() is None
        assert context.info is None
        path = context.train.get_tensorboard_path()
        context.train.upload_tensorboard_files()
    path.rmdir()
    with pytest.raises(SystemExit), core.init():
        raise InvalidHP
    with pytest.raises(MetricMissing), core.init():
        raise MetricMissing


def test_alerts_are_logged_and_reported(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.enter()
    with core.init() as context:
        context.alert("title", "text", "warn")
    (event,) = cluster.journal("alert")
    assert event.data == {"title": "title", "description": "text", "level": "warn"}
    assert "alert: title: text" in caplog.text


def test_the_token_is_in_no_environment_variable(cluster: Cluster) -> None:
    cluster.enter()
    with core.init() as context:
        assert context.info is not None and context.info.session_token == TOKEN
        assert TOKEN not in " ".join(os.environ.values())


@pytest.mark.parametrize("steps", [2**63, -1, 2**200])
def test_steps_that_no_database_holds_are_refused_where_they_are_reported(cluster: Cluster, steps: int) -> None:
    cluster.enter()
    with core.init() as context:
        for report in (context.train.report_training_metrics, context.train.report_validation_metrics):
            with pytest.raises(ValueError, match=r"steps_completed is a whole number from 0 to 2\*\*63 - 1"):
                report(steps, {"loss": 1.0})
        with pytest.raises(ValueError, match="2.*63 - 1"), context.checkpoint.store_path({"steps_completed": steps}):
            pass
    assert cluster.journal() == []


@pytest.mark.parametrize("value", [10**400, [-(10**400)], {"a": 2**20000}])
def test_a_whole_number_that_no_float_holds_is_refused_by_name(cluster: Cluster, value: Any) -> None:
    cluster.enter()
    with core.init() as context, pytest.raises(ValueError, match="'loss'.* is a number of .* bits, which no float can"):
        context.train.report_validation_metrics(1, {"loss": value})
    assert cluster.journal() == []


def test_a_group_or_status_that_is_no_text_is_refused(cluster: Cluster) -> None:
    cluster.enter()
    with core.init() as context:
        with pytest.raises(ValueError, match="group of metrics is no text"):
            context.train.report_metrics("\ud800", 1, {})
        with pytest.raises(ValueError, match="status is no text"):
            context.train.set_status("\ud800")
    assert cluster.journal() == []


def test_a_report_too_large_to_be_read_at_once_is_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dethpc.rundir.journal.MOST_BYTES", 1000)
    cluster.enter()
    with core.init() as context:
        with pytest.raises(ValueError, match="too large: 1000 are allowed; put large things into a checkpoint"):
            context.train.report_training_metrics(1, {"text": "x" * 1000})
        context.train.report_training_metrics(1, {"loss": 1.0})
    assert [event.seq for event in cluster.journal()] == [1]


def test_reports_of_metrics_leave_the_log_to_the_user_but_for_debug(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.enter()
    with caplog.at_level("DEBUG", "dethpc.core"), core.init() as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
        context.train.report_validation_metrics(1, {"loss": 1.0})
        context.train.report_metrics("mine", 1, {"loss": 1.0})
    told = [(r.levelname, r.getMessage().partition("(")[0]) for r in caplog.records if "report_" in r.getMessage()]
    names = ("report_training_metrics", "report_validation_metrics", "report_metrics")
    assert told == [("DEBUG", name) for name in names]


def test_off_the_cluster_reports_are_told_for_there_is_no_other_place(
    off_cluster: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "dethpc.core"), core.init() as context:
        context.train.report_validation_metrics(1, {"loss": 1.0})
    assert "report_validation_metrics(steps_completed=1, metrics={'loss': 1.0})" in caplog.text
