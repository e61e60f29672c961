"""Columns of a project's tables, ranges of its metrics, and streams of one metric of an experiment."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from dethpc.domain.states import State
from dethpc.errors import NotFound, Refused
from tests.master.conftest import CONFIG, Published, Served, _metric, experiment, run_of, trained, trial

HPARAMS = {
    "lr": {"type": "double", "minval": 0.001, "maxval": 0.1},
    "net": {"width": {"type": "categorical", "vals": [1, 2]}, "name": {"type": "const", "val": "res"}},
    "mixed": {"type": "categorical", "vals": [1, "a"]},
    "flag": {"type": "const", "val": True},
}


@pytest.fixture
def project(served: Served) -> Served:
    first, second = (trial(n, 1, hparams={"lr": n / 10, "net": {"width": n, "name": "res"}}) for n in (1, 2))
    second.metadata = {"data": {"set": "b", "day": "2025-11-13"}, "tags": ["x"], "n": 3}
    first.metadata = {"data": {"set": "a"}, "tags": ["y"], "n": "3"}
    run = run_of(second)
    served.put(
        [
            experiment(1, owner=served.owner, config={**CONFIG, "hyperparameters": HPARAMS}),
            *trained(first),
            *trained(second),
            _metric(run, second, 50, "mine", 3, {"word": "a", "node1/gpu0": 0.5}),
        ]
    )
    return served


def columns(served: Served, table: str = "") -> dict[str, tuple[str, str]]:
    parameters = {"tableType": table} if table else {}
    answer = served.session.get("/api/v1/projects/1/columns", parameters)["columns"]
    assert len({one["column"] for one in answer}) == len(answer)
    return {
        one["column"]: (one["location"].removeprefix("LOCATION_TYPE_"), one["type"].removeprefix("COLUMN_TYPE_"))
        for one in answer
    }


def test_columns_of_experiments(project: Served) -> None:
    named = columns(project)
    expected = {
        "id": ("EXPERIMENT", "NUMBER"),
        "startTime": ("EXPERIMENT", "DATE"),
        "archived": ("EXPERIMENT", "UNSPECIFIED"),
        "state": ("EXPERIMENT", "TEXT"),
        "validation.loss.min": ("VALIDATIONS", "NUMBER"),
        "training.epoch.last": ("TRAINING", "NUMBER"),
        "mine.word.last": ("CUSTOM_METRIC", "TEXT"),
        "mine.node1/gpu0.mean": ("CUSTOM_METRIC", "NUMBER"),
        "hp.lr": ("HYPERPARAMETERS", "NUMBER"),
        "hp.net.width": ("HYPERPARAMETERS", "NUMBER"),
        "hp.net.name": ("HYPERPARAMETERS", "TEXT"),
        "hp.mixed": ("HYPERPARAMETERS", "UNSPECIFIED"),
        "hp.flag": ("HYPERPARAMETERS", "UNSPECIFIED"),
    }
    assert expected.items() <= named.items() and "mine.word.min" not in named


def test_columns_of_runs(project: Served) -> None:
    named = columns(project, "TABLE_TYPE_RUN")
    expected = {
        "localId": ("RUN", "TEXT"),
        "hp.lr": ("RUN_HYPERPARAMETERS", "NUMBER"),
        "hp.net.name": ("RUN_HYPERPARAMETERS", "TEXT"),
        "metadata.data.set": ("RUN_METADATA", "TEXT"),
        "metadata.data.day": ("RUN_METADATA", "DATE"),
        "metadata.tags": ("RUN_METADATA", "ARRAY"),
        "metadata.n": ("RUN_METADATA", "UNSPECIFIED"),
        "validation.loss.min": ("VALIDATIONS", "NUMBER"),
    }
    assert expected.items() <= named.items()
    with pytest.raises(Refused, match="tableType is one of"):
        columns(project, "TABLE_TYPE_MOON")


@pytest.mark.parametrize("table", ["TABLE_TYPE_EXPERIMENT", "TABLE_TYPE_RUN"])
def test_every_column_can_be_filtered_and_sorted_by(project: Served, table: str) -> None:
    path = "/api/v1/runs" if table == "TABLE_TYPE_RUN" else "/api/v1/experiments-search"
    from tests.domain.test_filters import field, text_of

    for one in project.session.get("/api/v1/projects/1/columns", {"tableType": table})["columns"]:
        condition = field(one["column"], "notEmpty", None, location=one["location"], type=one["type"])
        body = {"filter": text_of(condition, showArchived=True), "sort": f"{one['column']}=desc", "projectId": 1}
        total = project.session.post(path, json=body)["pagination"]["total"]
        assert total > 0 or one["column"] in (
            "tags",
            "forkedFrom",
            "externalExperimentId",
            "externalTrialId",
            "externalRunId",
            "description",
            "experimentDescription",
        ), one["column"]


def test_ranges_of_metrics_are_those_of_best_trials(project: Served) -> None:
    answer = project.session.get("/api/v1/projects/1/experiments/metric-ranges")["ranges"]
    ranges = {one["metricsName"]: (one["min"], one["max"]) for one in answer}
    assert ranges["validation.loss.min"] == (0.5, 0.5) and ranges["validation.loss.last"] == (1.0, 1.0)
    assert ranges["searcherMetricsVal"] == (0.5, 0.5) and "mine.word.last" not in ranges


def test_values_of_metadata(project: Served) -> None:
    def values(key: str) -> list[str]:
        answer: Mapping[str, list[str]] = project.session.get(f"/api/v1/projects/1/metadata/{key}")
        return answer["values"]

    assert values("data.set") == ["a", "b"] and values("tags") == ["x", "y"] and values("n") == ["3"]
    assert values("data") == values("none.of.it") == []


def test_of_a_project_that_is_not_there(served: Served) -> None:
    for path in ("columns", "experiments/metric-ranges", "metadata/x"):
        with pytest.raises(NotFound, match="project 9 not found"):
            served.session.get(f"/api/v1/projects/9/{path}")
        served.session.get(f"/api/v1/projects/1/{path}")  # one that holds nothing


STREAM = "/api/v1/experiments/1/metrics-stream/"


def stream(served: Served, name: str, **parameters: Any) -> list[dict[str, Any]]:
    return list(served.session.stream(STREAM + name, parameters))


def test_steps_of_a_metric(project: Served) -> None:
    assert stream(project, "batches", metricName="loss", metricType="METRIC_TYPE_VALIDATION") == [{"batches": [2, 4]}]
    assert stream(project, "batches", metricName="word", group="mine") == [{"batches": [3]}]
    assert stream(project, "batches", metricName="los", group="validation") == [{"batches": []}]
    with pytest.raises(Refused, match="which group"):
        stream(project, "batches", metricName="loss")


def test_values_of_trials_at_a_step(project: Served) -> None:
    def values(steps: int, **more: Any) -> list[tuple[int, int, float]]:
        (answer,) = stream(
            project, "trials-snapshot", metricName="loss", group="validation", batchesProcessed=steps, **more
        )
        return [(one["trialId"], one["batchesProcessed"], one["metric"]) for one in answer["trials"]]

    assert values(2) == [(1, 2, 1.0), (2, 2, 0.5)]
    assert values(3) == [] and values(3, batchesMargin=1) == [(1, 4, 2.0), (2, 4, 1.0)]
    for wrong in ({"batchesProcessed": 10**30}, {"batchesProcessed": -1}, {"batchesMargin": 10**30}):
        with pytest.raises(Refused):
            stream(project, "trials-snapshot", **{"metricName": "loss", "group": "x", "batchesProcessed": 1, **wrong})


def test_the_course_of_a_metric_in_its_best_trials(project: Served) -> None:
    (answer,) = stream(project, "trials-sample", metricName="loss", group="validation", maxTrials=1)
    (one,) = answer["trials"]
    assert (one["trialId"], one["hparams"]["lr"], answer["promotedTrials"]) == (2, 0.2, [2])
    assert [(point["batches"], point["values"]) for point in one["data"]] == [(2, {"loss": 0.5}), (4, {"loss": 1.0})]
    (answer,) = stream(project, "trials-sample", metricName="loss", group="training", maxDatapoints=3, startBatches=2)
    assert [[point["batches"] for point in one["data"]] for one in answer["trials"]] == [[2, 3, 4]] * 2


def test_a_stream_goes_on_until_the_experiment_has_ended(served: Served) -> None:
    busy = trial(1, state=State.ACTIVE, ended_at=None)
    going, run = experiment(1, state=State.ACTIVE, ended_at=None), run_of(busy)
    served.put([going, busy, run, _metric(run, busy, 1, "validation", 2, {"loss": 1.0})])
    more = [_metric(run, busy, 2, "validation", 4, {"loss": 0.5}), experiment(1, owner="ada")]
    threading.Timer(0.3, lambda: served.put(more)).start()
    common = {"metricName": "loss", "group": "validation", "periodSeconds": 1}
    answers = stream(served, "batches", **common)
    assert answers == [{"batches": [2]}, {"batches": [4]}]
    (answer,) = stream(served, "trials-sample", **common)
    assert [point["batches"] for point in answer["trials"][0]["data"]] == [2, 4]


def test_a_sample_has_what_is_new(served: Served) -> None:
    busy, other = (trial(n, index=n - 1, state=State.ACTIVE, ended_at=None) for n in (1, 2))
    run = run_of(busy)
    first = [_metric(run, busy, n, "validation", n, {"loss": 1.0 / n}) for n in (1, 2)]
    served.put([experiment(1, state=State.ACTIVE, ended_at=None), busy, run, *first])
    later = [_metric(run_of(other), other, 1, "validation", 1, {"loss": 0.1}), other, run_of(other), experiment(1)]
    threading.Timer(0.3, lambda: served.put(later)).start()
    first_answer, second = stream(
        served, "trials-sample", metricName="loss", group="validation", maxTrials=1, periodSeconds=1
    )
    assert first_answer["promotedTrials"] == [1] and first_answer["demotedTrials"] == []
    assert (second["promotedTrials"], second["demotedTrials"]) == ([2], [1])
    assert [one["trialId"] for one in second["trials"]] == [2]


def test_the_published_client_reads_them(published: Published, project: Served) -> None:
    got = published.python(
        "columns = bindings.get_GetProjectColumns(sess, id=1, tableType=bindings.v1TableType.RUN).columns\n"
        "ranges = bindings.get_GetProjectNumericMetricsRange(sess, id=1).ranges\n"
        "values = bindings.get_GetMetadataValues(sess, projectId=1, key='data.set').values\n"
        "kind = bindings.v1MetricType.VALIDATION\n"
        "steps = next(bindings.get_MetricBatches(sess, experimentId=1, metricName='loss', metricType=kind)).batches\n"
        "one = next(bindings.get_TrialsSample(sess, experimentId=1, metricName='loss', metricType=kind)).trials[0]\n"
        "shot = next(bindings.get_TrialsSnapshot(sess, experimentId=1, metricName='loss', metricType=kind,\n"
        "                                        batchesProcessed=2)).trials[0]\n"
        "print(json.dumps([len(columns) > 20, len(ranges) > 5, values, steps, one.trialId, one.data[0].values, shot.metric]))"
    )
    assert got == [True, True, ["a", "b"], [2, 4], 2, {"loss": 0.5}, 1.0]
