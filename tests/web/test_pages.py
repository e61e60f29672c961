"""Every page of the WebUI as a server answers it: what it says, without a script, and what it never lets through."""

from __future__ import annotations

import contextlib
import html
import json
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, unquote

import anyio
import anyio.to_thread
import pytest

from dethpc.client.nouns import experiments
from dethpc.doctor import Finding, Level, report
from dethpc.doctor.facts import Facts
from dethpc.domain.facts import Attempt, Metric
from dethpc.domain.states import AttemptState, State
from dethpc.master.http.page_sessions import Grant
from dethpc.rundir import logline
from dethpc.rundir.logline import LogLine
from dethpc.web import app, show
from dethpc.web.asked import Goto, up
from dethpc.web.pages import ROUTES, checkpoints, code, compare, experiment, series
from tests.master.conftest import CONFIG, T0, Served, run_of, trained, trial, uuid_of
from tests.master.conftest import experiment as experiment_row
from tests.web.conftest import HOSTILE, Visitor

PAGES = [
    "experiments",
    "experiments?archived=1",
    "experiments?state=COMPLETED&name=digits&label=x&sort=name-up",
    "experiments/1",
    *(f"experiments/1/{tab}" for tab in experiment.TABS),
    "experiments/2",
    *(f"experiments/2/{tab}" for tab in experiment.TABS),
    "experiments/1/trials?sort=steps-down",
    "experiments/1/hyperparameters?x=lr&y=none&by=best",
    "experiments/2/code?changes=1",
    *(f"{page}/fork" for page in ("experiments/1", "experiments/2")),
    "experiments/2/fork?all=1",
    *(f"{page}/continue" for page in ("experiments/1", "experiments/2", "trials/1", "trials/4")),
    f"experiments/2/code?path={quote(HOSTILE)}",
    "experiments/2/code?path=look.ipynb",
    "experiments/2/code?path=binary",
    "trials/1",
    "trials/1/logs",
    "trials/1/logs?text=x&level=ERROR&rank=0&stdtype=stdout",
    "trials/1/logs?jump=error",
    "trials/1/checkpoints",
    *(f"trials/{number}/{tab}" for number in (1, 4) for tab in ("timeline", "profiler")),
    "tasks",
    "tasks/new",
    "tasks?kind=command&kind=shell&show=ended",
    "tasks?kind=none&show=none&offset=500",
    *(f"tasks/broken{tab}" for tab in ("", "/logs", "/logs?jump=error", "/configuration")),
    "checkpoints",
    "checkpoints?offset=1",
    "trials/4",
    f"checkpoints/{uuid_of(1, 2)}",
    "compare",
    "compare?trials=1,2,4",
    "compare?experiments=1,2",
    "compare?experiments=1,2&all=1&name=lr",
    "queue",
    "cluster",
    "sessions",
    "webhooks",
    "webhooks/new",
    "doctor",
    "about",
]


def test_every_page_is_whole_and_shows_markup_as_text(visitor: Visitor) -> None:
    for page in PAGES:
        got = visitor.get(page)
        assert got.status == 200, (page, got.text)
        assert got.text.rstrip().endswith("</html>"), page
        assert "<script>alert" not in got.text and "<b>&" not in got.text, page
        scripts = re.findall(r"<script\b[^>]*>(.*?)</script>", got.text, re.DOTALL)
        assert not any(scripts), f"no script stands in a page: {page}"
        assert not re.search(r"\son[a-z]+=|\sstyle=", re.sub(r'"[^"]*"', '""', got.text)), page


def test_what_a_script_imports_is_asked_for_with_the_page(visitor: Visitor) -> None:
    """Over a tunnel each round trip is seen: a module that is found in another one comes that much later."""
    for page in (
        "experiments",
        "experiments/1",
        "experiments/1/hyperparameters",
        "trials/1",
        "trials/1/logs",
        "tasks/broken/logs",
        "queue",
    ):
        head = visitor.get(page).text.partition("<body")[0]
        imported = set()
        for name in re.findall(r'<script type="module" src="[^"]*/(\w+\.js)"', head):
            script = (Path(app.__file__).parent / "static" / name).read_text()
            imported |= set(re.findall(r'^import .* from "\./([^"]+)"', script, re.MULTILINE))
        assert set(re.findall(r'rel="modulepreload" href="[^"]*/([^"/]+)"', head)) == imported, page


def test_the_menu_marks_where_one_is(visitor: Visitor) -> None:
    def marked(page: str) -> list[tuple[str, str]]:
        return re.findall(r'aria-current="(\w+)">(\w+)</a>', visitor.get(page).text.partition("<main")[0])

    assert marked("experiments") == [("page", "Experiments")]
    for page in ("experiments/1", "experiments/1/trials", "trials/1/logs", "compare", "compare?trials=1,2"):
        assert marked(page) == [("true", "Experiments")], page
    assert marked("tasks") == [("page", "Tasks")] and marked("tasks/broken/logs") == [("true", "Tasks")]
    assert marked("checkpoints") == [("page", "Checkpoints")]
    assert marked(f"checkpoints/{uuid_of(1, 2)}") == [("true", "Checkpoints")]
    assert marked("doctor") == [("page", "Doctor")] and marked("sessions") == [("page", "Access")]


def test_text_of_users_stands_where_it_belongs(visitor: Visitor) -> None:
    shown = visitor.get("experiments/2").text
    escaped = HOSTILE.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&#34;")
    assert shown.count(escaped.replace("'", "&#39;")) >= 5


def test_links_of_a_page_lead_to_pages(visitor: Visitor) -> None:
    """Nothing in the menu leads nowhere, nor anything else that is a link."""
    for page in (
        "experiments",
        "experiments/1",
        "trials/1",
        "queue",
        "tasks",
        "tasks/broken",
        "experiments/1/checkpoints",
        "experiments/2/code",
    ):
        folder = page.rpartition("/")[0]
        for link in set(re.findall(r'<a [^>]*href="([^"#]+)"', visitor.get(page).text)):
            link = link.replace("&amp;", "&")
            if link.endswith("/docs"):
                continue
            target = f"{page}{link}" if link.startswith("?") else f"{folder}/{link}" if folder else link
            while re.search(r"[^/.]+/\.\./", target):
                target = re.sub(r"[^/.]+/\.\./", "", target, count=1)
            got = visitor.get(target.removeprefix("./"))
            assert got.status in (200, 303), (page, link, got.status)


def test_the_list_filters_sorts_and_pages(visitor: Visitor) -> None:
    def numbers(query: str) -> list[int]:
        return [
            int(found) for found in re.findall(r'<tr id="experiment-(\d+)"', visitor.get(f"experiments{query}").text)
        ]

    assert numbers("") == [2, 1]
    assert numbers("?sort=id-up") == [1, 2]
    assert numbers("?state=ERROR") == [2]
    assert numbers("?name=digits") == [1]
    assert numbers("?offset=1") == [1]
    assert numbers("?label=none") == []
    assert "No experiment fits these filters" in visitor.get("experiments?label=none").text


def test_a_hyperparameter_that_turns_the_direction_of_writing_turns_no_other() -> None:
    shown = show.values({"a": "\u202eabc", "b": 1})
    assert "<bdi class='key'>a</bdi><bdi>\u202eabc</bdi>" in shown and "<bdi class='key'>b</bdi><bdi>1</bdi>" in shown


@pytest.mark.parametrize(("name", "looks"), [("USER_ERROR", "error"), ("TIMEOUT", "canceled"), ("DELETED", "canceled")])
def test_what_has_ended_does_not_look_as_if_it_went_on(name: str, looks: str) -> None:
    text = show.state(f"STATE_{name}")
    assert f'class="state {looks}"' in text and "…" not in text and name.replace("_", " ").lower() in text


def test_many_are_archived_at_once_and_what_cannot_be_done_is_said(visitor: Visitor, served: Served) -> None:
    got = visitor.post("experiments/act", [("action", "archive"), ("id", "1"), ("id", "2"), ("id", "77")])
    assert got.status == 303
    said = visitor.get(got.headers["location"].removeprefix("../")).text
    assert "archive: 2 of 3" in said and "experiment 77 not found" in said
    assert all(served.session.get(f"/api/v1/experiments/{n}")["experiment"]["archived"] for n in (1, 2))


def test_what_ends_something_is_asked_about_also_without_scripts(visitor: Visitor, served: Served) -> None:
    fields = [("action", "delete"), ("id", "1"), ("id", "2"), ("note", HOSTILE)]
    asked = visitor.post("experiments/act", fields)
    assert asked.status == 200 and "Delete 2 experiments?" in asked.text and HOSTILE not in asked.text
    assert [served.session.get(f"/api/v1/experiments/{n}")["experiment"]["id"] for n in (1, 2)] == [1, 2]
    again = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', asked.text)
    assert [(name, html.unescape(value)) for name, value in again] == [*fields, ("confirmed", "1")]
    assert "delete: " in unquote(visitor.post("experiments/act", again).headers["location"])


def test_nobody_is_asked_about_what_was_not_chosen(visitor: Visitor) -> None:
    assert '<input type="hidden" name="many" value="1">' in visitor.get("experiments").text
    got = visitor.post("experiments/act", {"many": "1", "action": "kill", "back": "experiments"})
    assert got.status == 303 and "Choose experiments first." in unquote(got.headers["location"])


def test_an_experiment_is_edited(visitor: Visitor, served: Served) -> None:
    form = {"name": "new", "description": "d", "notes": HOSTILE, "labels": "a, b,"}
    got = visitor.post("experiments/1/edit", form)
    assert got.status == 303 and "Saved." in unquote(got.headers["location"])
    same = visitor.post("experiments/1/edit", {**form, **{f"was-{name}": text for name, text in form.items()}})
    assert "Nothing was changed." in unquote(same.headers["location"])
    found = served.session.get("/api/v1/experiments/1")["experiment"]
    assert (found["name"], found["notes"], sorted(found["labels"])) == ("new", HOSTILE, ["a", "b"])


def test_what_was_not_changed_in_a_form_is_left_as_another_page_made_it(visitor: Visitor, served: Served) -> None:
    shown = visitor.get("experiments/1").text
    assert 'name="was-notes"' in shown and 'name="was-labels"' in shown
    served.session.patch("/api/v1/experiments/1", {"notes": "of another page", "labels": ["x, y"]})
    old = {"name": "old", "notes": "", "labels": "x, y"}
    form = {**old, **{f"was-{name}": text for name, text in old.items()}, "name": "new"}
    assert visitor.post("experiments/1/edit", form).status == 303
    found = served.session.get("/api/v1/experiments/1")["experiment"]
    assert (found["name"], found["notes"], found["labels"]) == ("new", "of another page", ["x, y"])


def test_what_the_master_refuses_is_said_on_the_page(visitor: Visitor) -> None:
    got = visitor.post("experiments/1/act", {"action": "pause", "back": "experiments/1"})
    assert got.status == 303 and "said=" in got.headers["location"]
    for path, form in {
        "experiments/1/edit": {"name": ""},
        "queue/act": {},
        "trials/1/act": {},
        "sessions/act": {},
    }.items():
        got = visitor.post(path, form)
        told = visitor.get(got.headers["location"].lstrip("./"))
        assert told.status == 200 and "Refused: " in told.text, path


def test_a_job_is_managed_from_the_queue(visitor: Visitor, served: Served) -> None:
    text = "entrypoint: python3 x.py\nsearcher: {name: single, metric: loss}\nname: %s\n"
    for name in ("first", "second"):
        served.session.post("/api/v1/experiments", {"config": text % name, "activate": True})

    def order() -> list[str]:
        return re.findall(r">(first|second)</a>", visitor.get("queue?pool=default").text)

    def job(name: str) -> str:
        jobs = served.session.get("/api/v1/job-queues-v2")["jobs"]
        return str(next(each["full"]["jobId"] for each in jobs if each["full"]["name"] == name))

    forms = re.findall(r"<form.*?</form>", visitor.get("queue").text.partition("<main")[2], re.DOTALL)
    assert {form.count("<button name=") for form in forms if "queue/act" in form} == {1}, (
        "Enter in a field does its own"
    )
    assert order() == ["first", "second"]
    got = visitor.post("queue/act", {"job": job("second"), "action": "top", "first": job("first")})
    assert got.status == 303 and order() == ["second", "first"]
    assert visitor.post("queue/act", {"job": job("first"), "action": "priority", "priority": "7"}).status == 303
    jobs = served.session.get("/api/v1/job-queues-v2")["jobs"]
    assert {each["full"]["name"]: each["full"]["priority"] for each in jobs}["first"] == 7
    refused = visitor.post("queue/act", {"job": job("first"), "action": "priority", "priority": "x"})
    assert "whole+number" in refused.headers["location"].replace("%20", "+")


def test_what_waits_says_for_what_on_each_page_of_it(visitor: Visitor, served: Served) -> None:
    """In the words that the API has, which are those of the command line."""
    text = "entrypoint: python3 x.py\nsearcher: {name: single, metric: loss}\n"
    made = served.session.post("/api/v1/experiments", {"config": text, "activate": True})["experiment"]["id"]
    trials = [each["id"] for each in served.session.get(f"/api/v1/experiments/{made}/trials")["trials"]]
    told = {each: served.session.get(f"/api/v1/trials/{each}/waiting")["waiting"] for each in trials}
    ((trial, why),) = ((each, waiting["text"]) for each, waiting in told.items() if waiting)
    for page in (f"experiments/{made}", f"trials/{trial}", "queue"):
        assert why in html.unescape(visitor.get(page).text), page


def test_trials_stand_side_by_side_with_what_differs_marked(visitor: Visitor) -> None:
    got = visitor.get("experiments/1/trials")
    assert 'action="../../compare"' in got.text and 'name="trial" value="2"' in got.text
    assert visitor.get("compare?trial=2&trial=1&trial=x").headers["location"].endswith("compare?trials=2,1")
    shown = visitor.get("compare?trials=1,2").text
    (row,) = re.findall(r'<tr class="differs">.*?</tr>', shown, re.DOTALL)
    assert "lr" in row and "0.01" in row and "0.02" in row
    assert re.search(r"validation\.loss</th><td[^>]*>2</td><td[^>]*>1</td>", shown), "final metrics"
    assert "compare/series.json?trials=1,2&amp;group=validation&amp;name=loss" in shown
    curves = json.loads(visitor.get("compare/series.json?trials=2,1&group=validation&name=loss").text)["trials"]
    assert {curve["id"]: (curve["at"], curve["values"]) for curve in curves} == {2: (0, [0.5, 1.0]), 1: (1, [1.0, 2.0])}
    assert "name=accuracy" in visitor.get("compare?trials=1,2&metric=validation.accuracy").text
    some = visitor.get("compare?trials=1,99,x").text
    assert "1 trial side by side" in some and "There is no trial 99." in some and "it is no number: x." in some
    assert visitor.get("compare?trials=98,99").status == 404
    assert "Trials are compared on a page of their own" in visitor.get("compare?trials=1&experiments=1").text
    assert "on a page of their own" not in visitor.get("compare?experiments=1").text


def test_a_metric_that_was_not_finite_once_can_still_be_compared() -> None:
    summary = {"loss": {"type": "string", "last": 0.5}, "gone": {"type": "string", "last": "NaN"}}
    words = {"phase": {"type": "string", "last": "warm-up"}, "on": {"type": "boolean", "last": True}}
    named = compare._names({"summaryMetrics": {"validation_metrics": {**summary, **words}}})
    assert list(named) == [("validation", "loss"), ("validation", "gone")]


def test_hyperparameters_say_how_much_they_matter_and_where_it_is_best(
    visitor: Visitor, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.put([experiment_row(5)])
    for number in range(24):
        hparams = {"lr": (number % 6) / 10, "net": {"kind": HOSTILE if number % 2 else "b"}, "same": 1}
        row = trial(100 + number, 5, index=number, hparams=hparams, best_validation=hparams["lr"] + number / 1000)
        served.put(trained(row))
    shown = visitor.get("experiments/5/hyperparameters").text
    names = re.findall(r'<td class="wide">(.*?)</td><td class="n">(\d+)%', shown)
    assert [name for name, _ in names] == ["lr", "net.kind"] and int(names[0][1]) > 90 and "↑ a larger metric" in shown
    heat = re.findall(r'class="n heat(\d)" title="(\d+) trials', shown)
    assert sum(int(trials) for _, trials in heat) == 24 and {"0", "9"} <= {level for level, _ in heat}
    assert "<script>alert" not in shown
    assert "lr ↑ net.kind →" in visitor.get("experiments/5/hyperparameters?x=net.kind&y=lr").text
    assert "No trial has both" in visitor.get("experiments/5/hyperparameters?x=lr&y=none").text
    assert "best are drawn" not in shown
    monkeypatch.setattr(experiments, "MOST_POINTS", 10)
    assert len(json.loads(visitor.get("experiments/5/points.json").text)["trials"]) == 10
    shown = visitor.get("experiments/5/hyperparameters").text
    assert shown.count("Of 24 trials that have a metric, the 10 best are drawn.") == 2, "above either kind of picture"


def test_the_time_of_a_trial_is_drawn_attempt_by_attempt(visitor: Visitor) -> None:
    shown = visitor.get("trials/1/timeline").text
    assert "<code>1.1.1.0</code>" in shown
    assert re.search(r'<rect class="starting" x="[\d.]+" y="0" width="[\d.]+"', shown)
    assert "waiting" in shown and "1m28s" in shown


def test_system_metrics_have_a_page_of_their_own(visitor: Visitor, served: Served) -> None:
    assert "No system metrics yet" in visitor.get("trials/1/profiler").text
    row = next(row for row in trained(trial(1)) if isinstance(row, Metric))
    served.put([replace(row, seq=99, group="cpu", metrics={"node1": {"cpu_util_simple": 37.5}})])
    groups = json.loads(visitor.get("trials/1/series.json?system=1").text)["groups"]
    assert [group["group"] for group in groups] == ["cpu"]
    assert {g["group"] for g in json.loads(visitor.get("trials/1/series.json").text)["groups"]} == {
        "training",
        "validation",
    }


def test_checkpoints_of_all_experiments_are_listed_the_newest_first(visitor: Visitor) -> None:
    def uuids(query: str = "") -> list[str]:
        return re.findall(r'href="[^"]*checkpoints/([\w-]+)"><code>', visitor.get(f"checkpoints{query}").text)

    every = uuids()
    assert len(every) == 8 and every[0] == uuid_of(4, 4) and every[-1] == uuid_of(1, 2)
    assert uuids("?offset=6") == every[6:]


def test_a_checkpoint_is_listed_with_its_experiment_and_the_name_of_its_metric(
    visitor: Visitor, served: Served
) -> None:
    other = {**CONFIG, "searcher": {**CONFIG["searcher"], "metric": "accuracy"}}
    served.put(
        [experiment_row(5, name="first <name>", metric="accuracy", config=other), *trained(trial(50, 5, index=0))]
    )
    served.session.patch("/api/v1/experiments/5", {"name": "wide & deep"})

    def rows(page: str) -> list[list[str]]:
        lines = re.findall(r"<tr data-row>(.*?)</tr>", visitor.get(page).text, re.DOTALL)
        return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in lines]

    newest, *_, oldest = rows("checkpoints")
    assert newest[0].endswith("<code>00000050</code></a>"), "the full UUID is in its link"
    assert re.search(r'experiments/5" title="wide &amp; deep">wide &amp; deep</a>', newest[1])
    assert newest[5] == '0.96 <span class="faint">accuracy</span>'
    assert "digits 1</a>" in oldest[1] and oldest[5] == '1 <span class="faint">loss</span>'
    for page in ("experiments/5/checkpoints", "trials/50/checkpoints"):
        assert 'title="accuracy">accuracy</th>' in visitor.get(page).text, page
        assert rows(page)[0][4] in ("0.96", "0.98"), "the head names it"


def test_checkpoints_are_listed_by_state_and_the_next_page_keeps_to_it(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "PAGE", 3)
    shown = visitor.get("checkpoints?state=COMPLETED").text
    assert 'value="COMPLETED" checked' in shown and 'value="DELETED" checked' not in shown
    assert shown.count("<tr data-row>") == 3 and "?state=COMPLETED&amp;offset=3" in shown
    none = visitor.get("checkpoints?state=PARTIALLY_DELETED").text
    assert "No checkpoint is in such a state." in none and "<tr data-row>" not in none
    assert visitor.get("checkpoints?state=NONE").text.count("<tr data-row>") == 3, "what is no state filters nothing"


def test_a_checkpoint_is_compared_with_its_storage_and_deleted(visitor: Visitor, served: Served) -> None:
    page = f"checkpoints/{uuid_of(1, 2)}"
    assert f"{uuid_of(1, 2)}/archive" in visitor.get(page).text
    got = visitor.post(f"{page}/act", {"action": "verify"})
    assert got.status == 303 and "said=" in got.headers["location"]
    assert visitor.post(f"{page}/act", {"action": "none"}).status == 303
    assert visitor.get(f"checkpoints/{uuid_of(9, 9)}/archive").status == 404


def test_looking_at_the_doctors_page_asks_nobody(
    visitor: Visitor, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asks(*_: object, **__: object) -> Facts:
        raise AssertionError("it asks")

    with monkeypatch.context() as closed:
        closed.setattr("dethpc.doctor.read.read", asks)
        assert "Nobody has examined this site yet" in visitor.get("doctor").text
    assert visitor.post("doctor/act", {"action": "examine"}).status == 303
    shown = visitor.get("doctor").text
    assert "Nobody has" not in shown and "slurm" in shown and "What somebody could change" in shown
    report.keep(served.daemon.installation.home, [Finding(Level.ERROR, HOSTILE, check="quota")])
    shown = visitor.get("doctor").text
    assert "quota" in shown and "<script>alert" not in shown and "&lt;script&gt;" in shown
    served.daemon.installation.home.doctor_report.write_text("no JSON")
    assert "Nobody has examined this site yet" in visitor.get("doctor").text


def test_experiments_stand_side_by_side(visitor: Visitor) -> None:
    got = visitor.post("experiments/act", [("action", "compare"), ("id", "1"), ("id", "2")])
    assert got.status == 303 and got.headers["location"].endswith("compare?experiments=1,2")
    assert visitor.post("experiments/act", {"action": "compare"}).headers["location"].endswith("first.")
    shown = visitor.get("compare?experiments=1,2").text
    assert "2 experiments side by side" in shown and "searcher.max_trials" not in shown
    assert re.search(r"rows are equal in all: <a href=\"[^\"]*experiments=1,2&amp;all=1\">show</a>", shown)
    everything = visitor.get("compare?experiments=1,2&all=1").text
    assert "searcher.max_trials" in everything and "equal in all" not in everything
    assert "searcher.max_trials" in visitor.get("compare?experiments=1").text, "nothing to compare it with"


def test_files_of_an_experiment_are_text_with_numbered_lines(visitor: Visitor) -> None:
    shown = visitor.get("experiments/2/code").text
    assert 'id="L1">x = 1' in shown and "look.ipynb" in shown, "what the entrypoint runs is shown first"
    assert "It is no text" in visitor.get("experiments/2/code?path=binary").text
    assert "code/file?path=look.ipynb" in visitor.get("experiments/2/code?path=look.ipynb").text
    kept = visitor.get("experiments/2/code/file?path=train.py")
    assert kept.text.startswith("x = 1\n") and kept.headers["content-type"] == "application/octet-stream"
    assert kept.headers["content-disposition"] == "attachment; filename*=UTF-8''train.py"
    changes = visitor.get("experiments/2/code?changes=1").text
    assert "<code>look.ipynb</code>" in changes and '<span class="row added">+&lt;script' in changes
    assert visitor.get("experiments/1/code?path=none").status == 404


def test_a_large_file_is_shown_in_part(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "MOST_BYTES", 3)
    shown = visitor.get("experiments/1/code").text
    assert 'id="L1">x =' in shown and "This is its beginning" in shown


def test_what_is_not_there_is_said(visitor: Visitor) -> None:
    for path in (
        "experiments/99",
        "trials/99",
        "experiments/1/nothing",
        "checkpoints/none",
        "tasks/none",
        "nothing/at/all",
    ):
        got = visitor.get(path)
        assert got.status == 404 and "</html>" in got.text, path


def test_a_curve_tells_what_is_no_number_from_what_was_not_reported() -> None:
    values = ({"a": 1.0}, {"a": "NaN", "b": True}, {}, {"a": "-Infinity", "b": "text"})
    data = [{"batches": n, "values": each} for n, each in enumerate(values)]
    columns = series._columns({"group": "training", "data": data})
    assert columns["metrics"] == {"a": [1.0, "NaN", None, "-Infinity"], "b": [None] * 4}


def test_the_count_of_trials_is_of_those_that_the_filter_lets_through(visitor: Visitor, served: Served) -> None:
    served.put(trained(trial(9, 1, index=3, state=State.ERROR)))
    assert "1–4 of 4<" in visitor.get("experiments/1/trials").text
    assert "1–1 of 1<" in visitor.get("experiments/1/trials?state=ERROR").text
    assert "1–3 of 3<" in visitor.get("experiments/1/trials?state=COMPLETED").text


def test_what_is_said_is_in_an_address_without_a_stray_mark(visitor: Visitor) -> None:
    form = {"action": "archive", "id": "1", "back": "experiments?"}
    back = visitor.post("experiments/act", form).headers["location"]
    assert back.endswith("experiments?chosen=1&said=archive%3A%201%20of%201")
    assert Goto("a?b=1", "said").relative_to("/x") == "./a?b=1&said=said" and Goto("a").relative_to("/x") == "./a"


def test_series_are_columns_of_numbers(visitor: Visitor) -> None:
    groups = json.loads(visitor.get("trials/1/series.json").text)["groups"]
    assert {group["group"] for group in groups} == {"training", "validation"}
    (training,) = [group for group in groups if group["group"] == "training"]
    assert training["steps"] == [1, 2, 3, 4] and training["metrics"] == {"loss": [8.0, 4.0, 8 / 3, 2.0]}
    assert training["epochs"] == [1, 2, 3, 4]  # an axis, and therefore no curve
    curves = json.loads(visitor.get("experiments/1/series.json?group=validation&name=loss").text)["trials"]
    assert all("lr=0.0" in curve["hparams"] for curve in curves)
    assert [curve["id"] for curve in curves] == [1, 2, 3] or len(curves) == 3
    few = json.loads(visitor.get("experiments/1/series.json?group=validation&name=loss&most=2").text)["trials"]
    assert few == curves[:2]
    points = json.loads(visitor.get("experiments/1/points.json").text)
    assert dict(zip(points["trials"], points["hparams"], strict=True)) == {n: {"lr": n / 100} for n in (1, 2, 3)}
    assert points["metric"] == "loss" and points["values"] == sorted(points["values"]) and len(points["values"]) == 3


@pytest.mark.parametrize(
    "query", ["?offset=-1", "?offset=99999999999999", "?sort=none", "?state=none", "?name=%00", "?" + "a=1&" * 3000]
)
def test_a_query_that_nobody_meant_breaks_nothing(visitor: Visitor, query: str) -> None:
    assert visitor.get(f"experiments{query}").status in (200, 400)


def test_links_work_under_any_prefix() -> None:
    assert up("/experiments") == "./" and up("/experiments/1") == "../" and up("/experiments/1/trials") == "../../"


def test_each_route_is_named_once() -> None:
    named = [(method, path) for method, path, _ in ROUTES]
    assert len(named) == len(set(named))


@pytest.mark.parametrize("rank, told", [("0", False), ("", False), ("x", True), ("-1", True), ("<b>", True)])
def test_a_rank_that_filters_no_log_is_told(visitor: Visitor, rank: str, told: bool) -> None:
    shown = visitor.get(f"trials/1/logs?rank={quote(rank)}").text
    assert (f"Rank {html.escape(rank)} filters nothing: a rank is a whole number" in shown) is told


def test_the_ranks_and_nodes_that_a_trial_has_are_suggested(visitor: Visitor, served: Served) -> None:
    def suggested(path: str, what: str) -> list[str]:
        (found,) = re.findall(rf'<datalist id="{what}">(.*?)</datalist>', visitor.get(path).text)
        return re.findall(r'<option value="([^"]*)">', found)

    assert suggested("trials/1/logs", "ranks") == [], "its only process needs none"
    wide = trial(9, 1, index=3)
    run = run_of(wide, slots=4, nodes=["node1", "node2"])
    served.put([wide, run, Attempt(run.id, 0, 1, run.task_id, AttemptState.ENDED, T0 + 2, T0 + 90, nodes=run.nodes)])
    assert suggested("trials/9/logs", "ranks") == ["0", "1", "2", "3"]
    assert suggested("trials/9/logs", "nodes") == ["node1", "node2"]
    log = served.daemon.installation.home.run(run.id).attempt(0).log(0)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(logline.format(LogLine(T0 + 3, "INFO", 7, "stdout", "of more processes than slots")))
    assert suggested("trials/9/logs", "ranks") == ["0", "1", "2", "3", "7"]
    shown = visitor.get("trials/9/logs?rank=7").text
    assert re.search(r'<input name="rank"[^>]* list="ranks" value="7"', shown) and "more processes" in shown


def test_the_log_of_a_trial_that_is_not_there_is_no_file(visitor: Visitor) -> None:
    """It was one that broke off."""
    assert visitor.get("trials/999/logs/text").status == 404


def test_a_download_takes_no_thread_that_its_answer_needs(
    visitor: Visitor, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks the master for what it sends. As many downloads as the master has threads would wait for each other."""
    allows = Grant.allows

    def with_one_thread(self: Grant, method: str, path: str) -> bool:
        with contextlib.suppress(anyio.NoEventLoopError):  # a thread asks, not the loop
            anyio.to_thread.current_default_thread_limiter().total_tokens = 1
        return allows(self, method, path)

    monkeypatch.setattr(Grant, "allows", with_one_thread)
    assert visitor.get("trials/1/logs/text").status == 200
