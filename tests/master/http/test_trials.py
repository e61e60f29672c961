"""Trials over HTTP: lists, workloads, metrics, logs, and the signals of their attempts."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import requests

from dethpc.client.nouns import checkpoints
from dethpc.domain.attempts.log_policies import Noted
from dethpc.domain.attempts.usage import NodeUse
from dethpc.domain.facts import Attempt, Checkpoint, Metric, Task
from dethpc.domain.states import AttemptState, End, Intent, RunState, State, TaskKind
from dethpc.engine import events
from dethpc.errors import NotFound, Refused
from dethpc.master.http.nouns.metrics import lttb
from dethpc.rundir import logline
from dethpc.rundir.files import write_json
from dethpc.state import queries
from tests.master.conftest import CONFIG, T0, Served, experiment, run_of, trained, trial, uuid_of
from tests.waiting import LONG_ENOUGH, wait_until


def test_order_states_and_pages_of_the_list(served: Served) -> None:
    waiting = trial(4, state=State.ACTIVE, best_validation=None, best_validation_steps=None, ended_at=None)
    served.put([experiment(1), *(row for id in (1, 2, 3) for row in trained(trial(id, restarts=id % 2))), waiting])
    served.put([trial(5, state=State.ACTIVE, restarts=2), run_of(trial(5), state=RunState.RUNNING)])

    def listed(**params: Any) -> list[int]:
        return [item["id"] for item in served.session.get("/api/v1/experiments/1/trials", params=params)["trials"]]

    assert listed() == [1, 2, 3, 4, 5]
    assert listed(sortBy="SORT_BY_BEST_VALIDATION_METRIC") == [5, 3, 2, 1, 4]
    assert listed(sortBy="SORT_BY_BEST_VALIDATION_METRIC", orderBy="ORDER_BY_DESC") == [1, 2, 3, 5, 4]
    assert listed(sortBy="SORT_BY_RESTARTS", orderBy="ORDER_BY_DESC")[:3] == [5, 3, 1]
    for key in "START_TIME END_TIME STATE LATEST_VALIDATION_METRIC BATCHES_PROCESSED DURATION CHECKPOINT_SIZE".split():
        assert sorted(listed(sortBy=f"SORT_BY_{key}")) == [1, 2, 3, 4, 5]
    assert listed(states="STATE_ACTIVE") == [4, 5] and listed(states="STATE_RUNNING") == [5]
    assert listed(states="STATE_QUEUED") == [4]
    assert listed(limit=2, offset=-2) == [4, 5]
    by_id = {item["id"]: item for item in served.session.get("/api/v1/experiments/1/trials")["trials"]}
    assert (by_id[4]["state"], by_id[5]["state"], by_id[1]["state"]) == (
        "STATE_QUEUED",
        "STATE_RUNNING",
        "STATE_COMPLETED",
    )


@pytest.mark.parametrize("smaller", [True, False])
def test_ascending_by_the_searchers_metric_is_the_best_first_whatever_is_better(served: Served, smaller: bool) -> None:
    """As Determined's master has it; those without a value come last either way."""
    values: dict[int, tuple[float | None, float | None]] = {
        1: (0.2, 0.9),
        2: (0.9, 0.1),
        3: (None, None),
        4: (0.5, 0.5),
    }
    served.put([experiment(1, smaller_is_better=smaller)])
    served.put([trial(id, best_validation=best, latest_validation=last) for id, (best, last) in values.items()])

    def listed(key: str, order: str) -> list[int]:
        params = {"sortBy": f"SORT_BY_{key}_VALIDATION_METRIC", "orderBy": f"ORDER_BY_{order}"}
        return [item["id"] for item in served.session.get("/api/v1/experiments/1/trials", params=params)["trials"]]

    best, latest = ([1, 4, 2], [2, 4, 1]) if smaller else ([2, 4, 1], [1, 4, 2])
    assert listed("BEST", "ASC") == [*best, 3] and listed("BEST", "DESC") == [*best[::-1], 3]
    assert listed("LATEST", "ASC") == [*latest, 3] and listed("LATEST", "DESC") == [*latest[::-1], 3]


def test_one_trial_says_what_is_best_and_latest(served: Served) -> None:
    served.put([experiment(1), *trained(trial(2))])
    got = served.session.get("/api/v1/trials/2")["trial"]
    assert got["bestValidation"]["metrics"]["avgMetrics"] == {"loss": 0.5, "accuracy": 0.5}
    assert got["latestValidation"]["totalBatches"] == 4
    assert got["bestCheckpoint"]["uuid"] == uuid_of(2, 2)
    assert (got["checkpointCount"], got["totalCheckpointSize"], got["taskId"]) == (2, "2000", "1.2")
    assert got["summaryMetrics"]["avg_metrics"]["loss"]["count"] == 4


def test_a_trial_names_the_log_policy_that_matched_last(served: Served) -> None:
    served.put([experiment(1), trial(2, search=Noted("CUDA OOM").into({})), trial(3)])
    listed = served.session.get("/api/v1/experiments/1/trials")["trials"]
    assert [item["logPolicyMatched"] for item in listed] == ["CUDA OOM", None]


def test_a_job_of_the_scheduler_leads_to_its_runs_also_when_it_has_ended(served: Served) -> None:
    whose = trial(2, state=State.ACTIVE, reason="as it should be")
    first, second = (run_of(whose, n, scheduler_job_id="28", created_at=T0 + n) for n in (1, 2))
    live = replace(second, state=RunState.RUNNING, nodes=["n0", "n1"])
    served.put([experiment(1), whose, first, live, trial(3), run_of(trial(3), scheduler_job_id="29")])
    got = served.session.get("/api/v1/scheduler-jobs/28")["runs"]
    assert [(one["run"]["id"], one["run"]["state"], one["run"]["nodes"]) for one in got] == [
        ("1.2.1", "ENDED", ["node1"]),
        ("1.2.2", "RUNNING", ["n0", "n1"]),
    ]
    assert [(one["trialId"], one["trialState"], one["experimentId"]) for one in got][1] == (2, "STATE_RUNNING", 1)
    assert got[1]["trialReason"] == "as it should be"
    assert got[1]["experimentName"] == experiment(1).name
    assert got[1]["run"]["directory"] == str(served.daemon.installation.home.run("1.2.2").path)
    assert served.session.get("/api/v1/trials/2")["runs"] == [one["run"] for one in got]
    with pytest.raises(NotFound, match="job 7 is not a job of this installation"):
        served.session.get("/api/v1/scheduler-jobs/7")


def test_a_job_that_trains_no_trial_names_its_task_and_the_experiment_that_this_deletes(served: Served) -> None:
    of = {"id": "gc", "queue_id": "gc", "owner": "ada", "state": State.COMPLETED, "created_at": T0}
    task = Task(**of, kind=TaskKind.CHECKPOINT_GC, experiment_id=1, name="Checkpoint GC (Experiment 1)")
    run = replace(run_of(trial(2)), id="gc.1", experiment_id=None, task_id="gc", scheduler_job_id="40")
    served.put([experiment(1, state=State.DELETED), task, run])
    (got,) = served.session.get("/api/v1/scheduler-jobs/40")["runs"]
    assert (got["taskKind"], got["taskName"]) == ("CHECKPOINT_GC", "Checkpoint GC (Experiment 1)")
    assert (got["trialId"], got["experimentId"], got["run"]["id"]) == (None, 1, "gc.1")


def test_an_element_of_a_job_array_is_found_by_the_number_that_slurm_gives_it_too(served: Served) -> None:
    whose = trial(2, state=State.ACTIVE)
    served.put([experiment(1), whose, run_of(whose, scheduler_job_id="28_3")])
    with mock.patch.object(served.daemon.services.cluster._scheduler, "element", {"31": "28_3", "32": "9_1"}.get):
        for job in ("28_3", "31"):
            assert [each["trialId"] for each in served.session.get(f"/api/v1/scheduler-jobs/{job}")["runs"]] == [2]
        for job in ("32", "33", "28_4"):  # one of another installation's, and none
            with pytest.raises(NotFound, match=f"job {job} is not a job"):
                served.session.get(f"/api/v1/scheduler-jobs/{job}")


def test_a_job_is_none_of_the_runs_of_a_copied_experiment_which_were_those_of_another_scheduler(served: Served) -> None:
    copy, by_hand = (replace(experiment(n), imported_run=of) for n, of in ((2, "a-copys-token"), (3, "3.4.1")))
    copied, own, single = trial(3, experiment_id=2), trial(2), trial(4, experiment_id=3)
    continued = replace(run_of(copied, 2), token_sha256="a token")
    job = {"28": run_of(copied), "28_3": run_of(own), "29": continued, "30": run_of(single)}
    served.put([experiment(1), own, copy, copied, by_hand, single])
    served.put([replace(run, scheduler_job_id=name) for name, run in job.items()])

    def trials(job: str) -> list[int]:
        return [each["trialId"] for each in served.session.get(f"/api/v1/scheduler-jobs/{job}")["runs"]]

    assert (trials("29"), trials("30")) == ([3], [4]), "these were submitted here"
    with pytest.raises(NotFound, match="job 28 is not a job"):
        trials("28")
    with mock.patch.object(served.daemon.services.cluster._scheduler, "element", {"28": "28_3"}.get):
        assert trials("28") == [2], "and they hide nothing"
    with served.daemon.store.read() as connection:
        assert queries.jobs_of_runs(connection, [*job]) == {"28_3", "29", "30"}


def test_what_is_paused_says_which_slots_it_holds_until_its_job_has_ended(served: Served) -> None:
    paused, whole = trial(2, state=State.PAUSED, ended_at=None), replace(experiment(1), state=State.PAUSED)
    run = run_of(paused, state=RunState.RUNNING, intent=Intent.STOP, slots=2)
    served.put([whole, paused, run, trial(3)])

    def told() -> list[tuple[str, Any]]:
        about = served.session.get("/api/v1/experiments/1")["experiment"]
        trials = served.session.get("/api/v1/experiments/1/trials")["trials"]
        return [(one["state"].removeprefix("STATE_"), one["heldSlots"]) for one in (about, *trials)]

    assert told() == [("PAUSED", 2), ("PAUSED", 2), ("COMPLETED", None)], "the state is Determined's"
    served.put([replace(run, state=RunState.ENDED)])
    assert told() == [("PAUSED", None), ("PAUSED", None), ("COMPLETED", None)]


def test_a_run_says_what_its_last_attempt_used_of_what_it_was_given(served: Served) -> None:
    whose = trial(2, state=State.ACTIVE)
    run = replace(run_of(whose, 1, attempt=1), state=RunState.RUNNING, nodes=["n0", "n1"])
    served.put([experiment(1), whose, run, run_of(whose, 2, attempt=-1)])
    for k, seconds in ((0, 50.0), (1, 1000.0)):
        attempt = served.daemon.installation.home.run(run.id).attempt(k)
        attempt.make()
        for node in (0, 1):
            use = NodeUse(seconds, 10.0 * seconds, (node + 1) << 30, cpus=100, memory_given=64 << 30)
            write_json(attempt.usage(node), use.to_json())
    first, second = served.session.get("/api/v1/trials/2")["runs"]
    assert second["usage"] is None, "it has not started"
    about = first["usage"]
    assert (about["seconds"], about["cpus"], about["cpu"], about["gpu"]) == (1000.0, 200, 0.1, None)
    assert (about["memoryBytes"], about["memoryGivenBytes"], about["memory"]) == (2 << 30, 64 << 30, 2 / 64)
    assert [words.partition(":")[0] for words in about["advice"]] == [
        "3% of the memory was used",
        "20.0 of 200 CPUs were busy",
    ]


@pytest.mark.parametrize("levels", [150, 252, 900])
def test_what_lies_too_deep_to_be_shown_is_refused(served: Served, levels: int) -> None:
    served.put([experiment(1), *trained(trial(1))])
    deep = "[" * levels + "]" * levels
    config = f"entrypoint: x\nsearcher: {{name: single, metric: loss}}\ndata: {{a: {deep}}}\n"
    for path, body in (
        ("/api/v1/runs/1/metadata", f'{{"metadata": {{"a": {deep}}}}}'),
        (f"/api/v1/checkpoints/{uuid_of(1, 2)}/metadata", f'{{"checkpoint": {{"metadata": {{"a": {deep}}}}}}}'),
        ("/api/v1/experiments", json.dumps({"config": config})),
        ("/api/v1/commands", f'{{"config": {{"entrypoint": ["ls"], "a": {deep}}}}}'),
    ):
        answer = requests.post(served.url + path, data=body, headers={"Authorization": f"Bearer {served.token}"})
        assert answer.status_code == 400 and "100 levels" in answer.text
    assert len(served.session.get("/api/v1/experiments")["experiments"]) == 1


def test_what_lies_too_deep_and_was_taken_by_an_earlier_release_is_left_out_of_answers(served: Served) -> None:
    deep: Any = json.loads("[" * 400 + "]" * 400)
    config = {**CONFIG, "data": {"a": deep, "secret_key": "hush"}, "hyperparameters": {"lr": 1.0, "deep": deep}}
    trial_, run, attempt, *rows = trained(trial(1, hparams={"lr": 1.0, "deep": deep}))
    checkpoints = [replace(row, metadata={"a": deep}) if isinstance(row, Checkpoint) else row for row in rows]
    metric = Metric(run_of(trial(1)).id, 0, 99, 1, 1, "odd", 4, T0 + 80, {"loss": deep, "x": 1.0})
    served.put([experiment(1, config=config), trial_, run, attempt, *checkpoints, metric])
    for path in (
        "experiments",
        "experiments/1",
        "experiments/1/trials",
        "trials/1",
        "trials/1/workloads",
        "experiments/1/checkpoints",
        f"checkpoints/{uuid_of(1, 2)}",
    ):
        answer = requests.get(f"{served.url}/api/v1/{path}", headers={"Authorization": f"Bearer {served.token}"})
        assert answer.status_code == 200, (path, answer.text[:300])
        assert "hush" not in answer.text
    shown = served.session.get("/api/v1/experiments/1")["experiment"]["config"]
    assert "100 levels" in json.dumps(shown) and shown["hyperparameters"]["lr"] == 1.0


def test_workloads_by_steps(served: Served) -> None:
    served.put([experiment(1), *trained(trial(1))])

    def kinds(**params: Any) -> list[str]:
        found = served.session.get("/api/v1/trials/1/workloads", params=params)["workloads"]
        return ["".join(kind[0] for kind, body in item.items() if body) for item in found]

    assert kinds() == ["t", "t", "v", "c", "t", "t", "v", "c"]
    assert kinds(orderBy="ORDER_BY_DESC", limit=2) == ["c", "v"]
    assert kinds(filter="FILTER_OPTION_VALIDATION") == ["v", "v"]
    assert kinds(filter="FILTER_OPTION_CHECKPOINT") == ["c", "c"]
    assert kinds(filter="FILTER_OPTION_CHECKPOINT_OR_VALIDATION") == ["v", "c", "v", "c"]
    assert kinds(limit=3, offset=6) == ["v", "c"]


def test_time_series_are_thinned_out_but_keep_their_peak(served: Served) -> None:
    run = run_of(trial(1))
    values = [0.0] * 1000
    values[637] = 5.0
    metrics = [
        Metric(run.id, 0, i + 1, 1, 1, "training", i, T0 + i, {"loss": value, "name": "x"})
        for i, value in enumerate(values)
    ]
    served.put([experiment(1), trial(1), run, *metrics])
    params = {"trialIds": 1, "metricNames": "loss", "maxDatapoints": 20, "metricType": "METRIC_TYPE_TRAINING"}
    answer = served.session.get("/api/v1/trials/time-series", params=params)["trials"][0]["metrics"]
    assert [series["group"] for series in answer] == ["training"]
    data = answer[0]["data"]
    assert len(data) == 20 and (data[0]["batches"], data[-1]["batches"]) == (0, 999)
    assert {"batches": 637, "values": {"loss": 5.0}}.items() <= max(data, key=lambda p: p["values"]["loss"]).items()
    whole = served.session.get(
        "/api/v1/trials/time-series", params={"trialIds": 1, "metricIds": "training.loss", "endBatches": 9}
    )
    assert len(whole["trials"][0]["metrics"][0]["data"]) == 10


def test_series_of_several_trials_come_as_they_were_asked_for_and_with_figures_only_where_wanted(
    served: Served,
) -> None:
    metrics = [
        Metric(run_of(trial(n)).id, 0, seq, 1, n, group, 10 * seq, T0 + seq, {"loss": float(n + seq), "other": 0.0})
        for n in (1, 2)
        for seq, group in ((3, "validation"), (1, "training"), (2, "training"))
    ]
    runs = [run_of(trial(n)) for n in (1, 2)]
    served.put([experiment(1), *(trial(n) for n in (1, 2, 3)), *runs, *metrics])
    params = {"trialIds": [2, 3, 1], "metricNames": "loss", "group": "training"}
    found = served.session.get("/api/v1/trials/time-series", params=params)["trials"]
    plain = served.session.get("/api/v1/trials/time-series", params={**params, "figures": False})["trials"]
    for each in (found, plain):
        assert [one["trial"]["id"] for one in each] == [2, 3, 1]
        points = [[point["values"]["loss"] for s in one["metrics"] for point in s["data"]] for one in each]
        assert points == [[3.0, 4.0], [], [2.0, 3.0]]
    assert found[0]["trial"]["summaryMetrics"] and not plain[0]["trial"]["summaryMetrics"]


def test_thinned_series_keep_what_machines_measured_and_the_first_nan(served: Served) -> None:
    run = run_of(trial(1))
    values: list[tuple[str, dict[str, Any]]] = [("cpu", {"node1": {"util": float(i == 70)}}) for i in range(100)]
    values += [("training", {"loss": "NaN" if i in (50, 51) else 1.0}) for i in range(100)]
    metrics = [Metric(run.id, 0, i + 1, 1, 1, group, i, T0 + i, value) for i, (group, value) in enumerate(values)]
    served.put([experiment(1), trial(1), run, *metrics])
    params = {"trialIds": 1, "maxDatapoints": 10}
    cpu, training = served.session.get("/api/v1/trials/time-series", params=params)["trials"][0]["metrics"]
    assert len(cpu["data"]) == 10 and {"node1": {"util": 1.0}} in [point["values"] for point in cpu["data"]]
    assert [point["batches"] for point in training["data"] if point["values"]["loss"] == "NaN"] == [150]


def test_a_name_or_value_that_no_utf8_spells_spoils_no_answer(served: Served) -> None:
    run, values = run_of(trial(1)), {"\ud800": 1.0, "loss": 2.0, "note": "caf\udce9", "é": "ü"}
    metrics = [
        Metric(run.id, 0, i + 1, 1, 1, group, 1, T0 + i, values) for i, group in enumerate(("training", "validation"))
    ]
    served.put([experiment(1), trial(1, hparams={"name\udcff": "x"}), run, *metrics])
    told = {"?": 1.0, "loss": 2.0, "note": "caf?", "é": "ü"}
    series = served.session.get("/api/v1/trials/time-series", params={"trialIds": 1})["trials"][0]["metrics"]
    assert [point["values"] for each in series for point in each["data"]] == [told, told]
    assert served.session.get("/api/v1/experiments/1/trials")["trials"][0]["hparams"] == {"name?": "x"}
    assert served.session.get("/api/v1/trials/1/workloads")["workloads"]


def test_lttb_keeps_the_ends() -> None:
    assert lttb([1.0, 2.0], [0.0, 0.0], 5) == [0, 1]
    assert lttb(list(map(float, range(9))), [0.0] * 9, 2) == [0, 8]
    chosen = lttb(list(map(float, range(100))), [float(i % 7) for i in range(100)], 10)
    assert len(chosen) == 10 and chosen[0] == 0 and chosen[-1] == 99 and chosen == sorted(chosen)


def test_metric_streams_are_in_order_and_whole(served: Served) -> None:
    run = run_of(trial(1))
    served.put([experiment(1), trial(1), run])
    served.put(
        [
            Metric(run.id, 0, i, 1, 1, "training", i, T0 + i, {"loss": i, "batch_metrics": [{"a": i}]})
            for i in range(1, 1301)
        ]
    )
    served.put([Metric(run.id, 0, 1301, 1, 1, "mine", 7, T0, {"x": 1})])
    path = "/api/v1/trials/metrics/"

    def reports(name: str, **params: Any) -> list[dict[str, Any]]:
        stream = served.session.stream(path + name, params={"trialIds": 1, **params})
        return [report for batch in stream for report in batch["metrics"]]

    got = reports("training_metrics")
    assert [report["totalBatches"] for report in got] == list(range(1, 1301))
    assert got[0]["metrics"] == {"avg_metrics": {"loss": 1}, "batch_metrics": [{"a": 1}]}
    assert len({report["id"] for report in got}) == 1300
    assert [report["group"] for report in reports("trial_metrics", group="mine")] == ["mine"]
    assert len(reports("trial_metrics")) == 1301 and reports("validation_metrics") == []


# --- logs


def write(served: Served, run_id: str, *texts: str) -> None:
    attempt = served.daemon.installation.home.run(run_id).attempt(0)
    attempt.make()
    with open(attempt.log(0), "a") as file:
        for text in texts:
            file.write(logline.format(logline.LogLine(time.time(), "INFO", 0, "stdout", text)))


def test_a_followed_log_ends_with_the_trial(served: Served) -> None:
    busy = trial(1, state=State.ACTIVE, ended_at=None)
    run = run_of(busy, state=RunState.RUNNING)
    served.put([experiment(1, state=State.ACTIVE), busy, run])
    write(served, run.id, "first")
    got: list[str] = []

    def follow() -> None:
        got.extend(line["log"] for line in served.session.stream("/api/v1/trials/1/logs", params={"follow": True}))

    follower = threading.Thread(target=follow)
    follower.start()
    wait_until(lambda: got == ["first"])
    write(served, run.id, "second")
    wait_until(lambda: got == ["first", "second"])
    again = replace(run_of(busy, 2), state=RunState.RUNNING)
    served.put([replace(run, state=RunState.ENDED), again])
    write(served, again.id, "after a requeue")
    wait_until(lambda: len(got) == 3)
    write(served, again.id, "last words")
    served.put([replace(again, state=RunState.ENDED), replace(busy, state=State.COMPLETED)])
    follower.join(LONG_ENOUGH)
    assert not follower.is_alive() and got == ["first", "second", "after a requeue", "last words"]


def test_many_quiet_followers_leave_room_for_others(served: Served) -> None:
    busy = trial(1, state=State.ACTIVE)
    served.put([experiment(1, state=State.ACTIVE), busy, run_of(busy, state=RunState.RUNNING)])
    write(served, "1.1.1", "hello")
    streams = [served.session.stream("/api/v1/trials/1/logs", params={"follow": True}) for _ in range(60)]
    assert all(next(stream)["log"] == "hello" for stream in streams)
    assert served.session.get("/api/v1/trials/1")["trial"]["id"] == 1
    for stream in streams:
        stream.close()  # type: ignore[attr-defined]


def test_no_pattern_in_a_log_filter_keeps_the_master_from_others(served: Served) -> None:
    """Python's engine would hold all threads for years."""
    served.put([experiment(1), *trained(trial(1))])
    write(served, "1.1.1", "a" * 60 + "!", "step 12", "a" * 60)

    def found(pattern: str) -> list[str]:
        params = {"searchText": pattern, "enableRegex": True}
        return [line["log"] for line in served.session.stream("/api/v1/trials/1/logs", params=params)]

    assert found("^(a+)+$") == ["a" * 60]
    assert found(r"step \d+") == ["step 12"]


@pytest.mark.parametrize(("slots", "of_rank_0"), [(1, ["said", "unranked"]), (2, ["said"])])
def test_lines_without_a_rank_are_found_by_rank_minus_one(served: Served, slots: int, of_rank_0: list[str]) -> None:
    served.put([experiment(1), *trained(trial(1))])
    write(served, "1.1.1", "said", "unranked")
    run = served.daemon.installation.home.run("1.1.1")
    log = run.attempt(0).log(0)
    said, unranked = log.read_text().splitlines()
    log.write_text(f"{said}\n" + unranked.replace("\t0\t", "\t-\t") + "\n")
    run.spec.write_text(json.dumps({"slots": slots}))

    def found(*ranks: int) -> list[str]:
        params = {"rankIds": list(ranks)}
        return [line["log"] for line in served.session.stream("/api/v1/trials/1/logs", params=params)]

    assert found(-1) == ["unranked"] and found(-1, 0) == ["said", "unranked"] and found(1) == []
    assert found(0) == of_rank_0


def test_log_fields(served: Served) -> None:
    served.put([experiment(1), *trained(trial(1))])
    write(served, "1.1.1", "hello")
    fields = list(served.session.stream("/api/v1/trials/1/logs/fields"))
    assert fields[0]["rankIds"] == [0] and fields[0]["allocationIds"] == ["1.1.1.0"]


def test_the_fields_of_a_log_are_followed_until_the_trial_ends(served: Served) -> None:
    busy = trial(1, state=State.ACTIVE, ended_at=None)
    served.put([experiment(1, state=State.ACTIVE), busy, run_of(busy, state=RunState.RUNNING)])
    write(served, "1.1.1", "hello")
    fields = served.session.stream("/api/v1/trials/1/logs/fields", params={"follow": True})
    assert next(fields)["rankIds"] == [0]
    log = served.daemon.installation.home.run("1.1.1").attempt(0).log(0)
    with open(log, "a") as file:
        file.write(logline.format(logline.LogLine(T0, "INFO", 3, "stdout", "from another")))
    assert next(fields)["rankIds"] == [0, 3]
    served.put([run_of(busy), trial(1)])
    assert list(fields) == []


# --- signals


def started(served: Served) -> str:
    """The first run of the first experiment, as if a node had started it."""
    run_id: str = wait_until(lambda: list(served.daemon.ledger.state.runs))[0]
    served.daemon.services.control.do(events.Prepared(run_id, "", time.time()))
    served.daemon.services.control.do(events.Submitted(run_id, "job", time.time()))
    served.daemon.services.control.do(events.AttemptStarted(run_id, 0, ["node1"], None, 0, time.time()))
    return run_id


def test_a_long_poll_hears_of_a_stop_and_times_out_otherwise(served: Served) -> None:
    YAML = "name: n\nentrypoint: python3 t.py\nsearcher: {name: single, metric: loss}\n"
    made = served.session.post("/api/v1/experiments", json={"config": YAML})["experiment"]
    run_id = started(served)
    path = f"/api/v1/allocations/{run_id}.0/signals/preemption"
    assert served.session.get(path, params={"timeoutSeconds": 0}) == {"preempt": False}
    answers: list[Any] = []
    polls = [
        threading.Thread(target=lambda: answers.append(served.session.get(path, params={"timeoutSeconds": 25})))
        for _ in range(50)
    ]
    for poll in polls:
        poll.start()
    assert served.session.get("/api/v1/me")["user"]["username"] == served.owner
    served.session.post(f"/api/v1/experiments/{made['id']}/pause")
    for poll in polls:
        poll.join(LONG_ENOUGH)
    assert answers == [{"preempt": True}] * 50
    served.session.post(path.replace("preemption", "ack_preemption"), json={"allocationId": "x"})


def test_the_doorbell_says_how_far_and_whether_to_stop(served: Served) -> None:
    run = run_of(trial(1), intent=Intent.STOP, intent_reason="pause")
    served.put([experiment(1), trial(1), run])
    answer = served.session.post(f"/api/v1/runs/{run.id}/attempts/0/events", json={"lines": []})
    assert set(answer) == {"appliedSeq", "stop", "ringAfter"} and answer["appliedSeq"] == 0 and answer["stop"]["reason"]


def test_a_task_is_its_trials_attempts(served: Served) -> None:
    served.put([experiment(1), *trained(trial(1))])
    task = served.session.get("/api/v1/tasks/1.1")["task"]
    assert [allocation["allocationId"] for allocation in task["allocations"]] == ["1.1.1.0"]
    with pytest.raises(Exception, match="not found"):
        served.session.get("/api/v1/tasks/9.1")


def test_a_damaged_journal_line_is_refused(served: Served) -> None:
    YAML = "name: n\nentrypoint: python3 t.py\nsearcher: {name: single, metric: loss}\n"
    served.session.post("/api/v1/experiments", json={"config": YAML})
    run_id = started(served)
    with pytest.raises(Refused):
        served.session.post(f"/api/v1/runs/{run_id}/attempts/0/events", json={"lines": ["garbage"]})


def test_a_shortened_uuid_is_answered_with_where_the_whole_one_is(served: Served) -> None:
    served.put([experiment(1), *trained(trial(2))])
    short = uuid_of(2, 2)[:8]
    with pytest.raises(
        NotFound, match=f"checkpoint {short} not found: give all 36 .* det experiment list-checkpoints ID"
    ):
        checkpoints.get(served.session, short)
    with pytest.raises(NotFound, match="-000000000999 not found$"):
        checkpoints.get(served.session, uuid_of(2, 999))


@pytest.mark.parametrize(
    ("state", "reason", "end"),
    [
        (State.COMPLETED, "trained to the full length, epochs 16: loss 0.1", "COMPLETED"),
        (State.COMPLETED, "rung 1 (epochs 4): loss 0.5 is worse than the cut-off 0.4", "STOPPED"),
        (State.PAUSED, "", "STOPPED"),
    ],
)
def test_the_last_attempt_of_a_trial_that_trained_to_its_end_is_completed(
    served: Served, state: State, reason: str, end: str
) -> None:
    one = trial(1, state=state, reason=reason)
    run = run_of(one, end=End.STOPPED)
    stopped = Attempt(run.id, 0, 1, run.task_id, AttemptState.ENDED, T0 + 2, T0 + 90, end=End.STOPPED, reason=reason)
    served.put([experiment(1), one, run, stopped])
    attempts = served.session.get("/api/v1/trials/1/timeline")["attempts"]
    (shown,) = (each for each in attempts if each["attempt"] is not None)
    assert (shown["end"], shown["reason"]) == (end, reason)
    assert [each["state"] for each in served.session.get("/api/v1/trials/1")["runs"]] == [end]


def test_the_time_before_a_continuation_is_no_part_of_what_is_shown_and_sorted_by(served: Served) -> None:
    served.put([experiment(1, ended_seconds=60.0), *trained(trial(1, ended_seconds=50.0)), *trained(trial(2))])
    assert served.session.get("/api/v1/experiments/1")["experiment"]["duration"] == 40
    query = {"sortBy": "SORT_BY_DURATION", "orderBy": "ORDER_BY_ASC"}
    listed = served.session.get("/api/v1/experiments/1/trials", params=query)["trials"]
    assert [(each["id"], each["wallClockTime"]) for each in listed] == [(1, 38.0), (2, 88.0)]
    flat = served.session.post("/api/v1/runs", {"sort": "duration=desc"})["runs"]
    assert [(each["id"], each["duration"]) for each in flat] == [(2, 88), (1, 38)]
    assert {each["id"]: each["endTime"] for each in listed}[1] == {each["id"]: each["endTime"] for each in listed}[2]
