"""Series of system metrics, as Determined's clients read them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from dethpc.domain.states import RunState, State
from dethpc.errors import NotFound, NotSupportedYet
from tests.master.conftest import Published, Served, _metric, experiment, run_of, trained, trial


def profiled(served: Served, **changes: Any) -> None:
    one = trial(1, **changes)
    run = run_of(one)
    served.put(
        [
            experiment(1),
            *(trained(one) if one.state.terminal else [one, run]),
            _metric(run, one, 90, "cpu", 1, {"node1": {"cpu_util_simple": 10.5}, "node2": {"cpu_util_simple": 20}}),
            _metric(run, one, 91, "cpu", 2, {"node1": {"cpu_util_simple": "NaN"}}),
            _metric(run, one, 92, "gpu", 2, {"node1": {"GPU-7": {"gpu_util": 90}}}),
            _metric(run, one, 93, "mine", 2, {"node1": {"x": 90}}),
        ]
    )


def stream(served: Served, path: str, **parameters: Any) -> list[dict[str, Any]]:
    return list(served.session.stream(f"/api/v1/trials/1/profiler/{path}", parameters))


def values(served: Served, **labels: str) -> dict[tuple[str, str, str], list[Any]]:
    batches = [one["batch"] for one in stream(served, "metrics", **{f"labels.{name}": v for name, v in labels.items()})]
    assert all(len(one["batches"]) == len(one["timestamps"]) == len(one["values"]) for one in batches)
    return {
        (one["labels"]["agentId"], one["labels"]["gpuUuid"], one["labels"]["name"]): one["values"] for one in batches
    }


def test_series_and_their_values(served: Served) -> None:
    profiled(served)
    (answer,) = stream(served, "available_series")
    assert [(one["agentId"], one["gpuUuid"], one["name"]) for one in answer["labels"]] == [
        ("node1", "", "cpu_util_simple"),
        ("node1", "GPU-7", "gpu_util"),
    ]
    assert values(served) == {
        ("node1", "", "cpu_util_simple"): [10.5, "NaN"],
        ("node2", "", "cpu_util_simple"): [20],
        ("node1", "GPU-7", "gpu_util"): [90],
    }
    assert list(values(served, agentId="node2")) == [("node2", "", "cpu_util_simple")]
    assert list(values(served, name="gpu_util", metricType="PROFILER_METRIC_TYPE_SYSTEM")) == [
        ("node1", "GPU-7", "gpu_util")
    ]
    assert values(served, metricType="PROFILER_METRIC_TYPE_TIMING") == {}
    for path in ("metrics", "available_series"):
        with pytest.raises(NotFound):
            list(served.session.stream(f"/api/v1/trials/9/profiler/{path}"))


def test_a_stream_is_followed_until_the_trial_has_ended(served: Served) -> None:
    profiled(served, state=State.ACTIVE, ended_at=None)
    one = trial(1)
    more = [_metric(run_of(one), one, 95, "cpu", 3, {"node1": {"cpu_util_simple": 30}}), one]
    more[0].reported_at += 1000
    threading.Timer(0.3, lambda: served.put([*more, run_of(one, state=RunState.ENDED)])).start()
    batches = [
        item["batch"]["values"] for item in stream(served, "metrics", follow=True, **{"labels.name": "cpu_util_simple"})
    ]
    assert batches == [[10.5, "NaN"], [20], [30]]


def test_series_are_not_posted(served: Served) -> None:
    with pytest.raises(NotSupportedYet, match="profiler.on"):
        served.session.post("/api/v1/trials/profiler/metrics", {"batches": []})


def test_the_published_client_reads_them(published: Published, served: Served) -> None:
    profiled(served)
    got = published.python(
        "labels = next(bindings.get_GetTrialProfilerAvailableSeries(sess, trialId=1)).labels\n"
        "batches = [one.batch for one in bindings.get_GetTrialProfilerMetrics(sess, labels_trialId=1, labels_name='gpu_util')]\n"
        "print(json.dumps([len(labels), labels[0].metricType.value, [one.values for one in batches]]))"
    )
    assert got == [2, "PROFILER_METRIC_TYPE_SYSTEM", [[90]]]
