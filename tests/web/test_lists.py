"""What is done to lists: labels of many, places in the queue, pages that are not there, names without an end."""

from __future__ import annotations

import html
import re
from urllib.parse import unquote

import pytest

from dethpc.client.nouns import workspaces
from dethpc.errors import Refused
from dethpc.web import listed, show
from dethpc.web.pages import experiments
from tests.master.conftest import Served, experiment
from tests.web.conftest import Visitor


def labels(served: Served, number: int) -> list[str]:
    return list(served.session.get(f"/api/v1/experiments/{number}")["experiment"]["labels"])


def test_labels_are_given_to_many_and_taken_from_many(visitor: Visitor, served: Served) -> None:
    served.session.patch("/api/v1/experiments/1", {"labels": ["kept"]})
    served.session.patch("/api/v1/experiments/2", {"labels": []})
    chosen = [("id", "1"), ("id", "2")]
    got = visitor.post("experiments/act", [("action", "label"), ("labels", "a, b,"), *chosen])
    assert "add labels: 2 of 2" in unquote(got.headers["location"])
    assert sorted(labels(served, 1)) == ["a", "b", "kept"] and sorted(labels(served, 2)) == ["a", "b"]
    visitor.post("experiments/act", [("action", "unlabel"), ("labels", "a,kept"), *chosen])
    assert labels(served, 1) == labels(served, 2) == ["b"]
    nothing = visitor.post("experiments/act", [("action", "label"), ("labels", " "), *chosen])
    assert "Write a label first." in unquote(nothing.headers["location"]) and labels(served, 1) == ["b"]


def test_a_label_with_a_comma_stays_one_where_another_is_added(visitor: Visitor, served: Served) -> None:
    served.session.patch("/api/v1/experiments/1", {"labels": ["x, y", '"z"']})
    found = re.search(r'name="labels" value="([^"]*)"', visitor.get("experiments/1").text)
    assert found is not None
    shown = html.unescape(found[1])
    got = visitor.post("experiments/1/edit", {"labels": f"{shown}, new", "was-labels": shown})
    assert got.status == 303 and sorted(labels(served, 1)) == ['"z"', "new", "x, y"]
    visitor.post("experiments/act", [("action", "unlabel"), ("labels", '"x, y"'), ("id", "1")])
    assert sorted(labels(served, 1)) == ['"z"', "new"]


@pytest.mark.parametrize(
    "texts", [[], ["a"], ["a", "b c"], ["a,b", "c"], ['"a"', 'b"', 'c "d", e', ","], ['5" x', "'"]]
)
def test_what_is_written_into_a_field_is_read_from_it(texts: list[str]) -> None:
    assert listed.read(listed.written(texts)) == texts


def test_a_field_that_a_person_fills_is_read_as_it_is_meant() -> None:
    assert listed.read(' a,b ,, "c, d" , "e') == ["a", "b", "c, d", "e"]
    with pytest.raises(Refused, match="the list cannot be read"):
        listed.read("x" * 1_000_000)


def test_a_job_goes_to_any_place_of_its_queue(visitor: Visitor, served: Served) -> None:
    text = "entrypoint: python3 x.py\nsearcher: {name: single, metric: loss}\nname: %s\n"
    for name in "abc":
        served.session.post("/api/v1/experiments", {"config": text % name, "activate": True})
    jobs = {each["full"]["name"]: each["full"]["jobId"] for each in served.session.get("/api/v1/job-queues-v2")["jobs"]}

    def moved(job: str, **form: str) -> str:
        form = {name: jobs.get(value, value) for name, value in form.items()}
        got = visitor.post("queue/act", {"job": jobs[job], "back": "queue?pool=default", **form})
        assert got.status == 303
        return "".join(re.findall(r">([abc])</a>", visitor.get("queue?pool=default").text))

    assert moved("c", action="ahead", other="b") == "acb"
    assert moved("a", action="behind", other="b") == "cba"
    assert moved("a", action="place", place="2", pool="default") == "cab"
    assert moved("c", action="place", place="3", pool="default") == "abc"
    assert moved("c", action="place", place="1", pool="default") == "cab"
    assert moved("c", action="place", place="4", pool="default") == "cab", "there is no fourth place"


@pytest.mark.parametrize(
    ("page", "left"),
    [("experiments", 2), ("experiments/1/trials", 3), ("experiments/1/search", 3), ("checkpoints", 8)],
)
def test_a_page_behind_the_last_says_how_many_there_are_and_leads_back(visitor: Visitor, page: str, left: int) -> None:
    shown = visitor.get(f"{page}?offset=5000").text
    assert f"there are {left}." in shown and "yet" not in shown.partition("<table")[2].partition("</table>")[0]
    (link,) = re.findall(r'<a href="(\?[^"]*)">The last page', shown)
    assert "The last page" not in visitor.get(page + link.replace("&amp;", "&")).text


def test_columns_are_chosen_and_the_address_keeps_them(visitor: Visitor) -> None:
    def heads(query: str) -> list[str]:
        head = visitor.get(f"experiments{query}").text.partition("<thead>")[2].partition("</thead>")[0]
        return [re.sub(r"<[^>]*>| [↓↑]", "", cell).strip() for cell in re.findall(r"<th .*?</th>", head, re.DOTALL)][3:]

    usual = [experiments.COLUMNS[name] for name in experiments.USUAL]
    assert heads("") == heads("?columns=none,") == usual and "Forked from" not in usual
    assert heads("?columns=best,state,best,x") == ["Best", "State"]
    chosen = visitor.get("experiments?state=ERROR&sort=name-up&column=parent&column=state&column=x")
    assert chosen.status == 303
    link = chosen.headers["location"].removeprefix("./")
    assert link == "experiments?state=ERROR&sort=name-up&columns=state,parent"
    shown = visitor.get(link).text
    row = shown.partition('<tr id="experiment-2"')[2].partition("</tr>")[0]
    assert 'href="./experiments/1">1</a></td>' in row and row.count("<td") == 5
    forms = re.findall(r'<form[^>]* method="get".*?</form>', shown, re.DOTALL)
    assert 'name="columns" value="state,parent"' in forms[0] and 'name="state" value="ERROR"' in forms[1]
    assert 'href="?sort=name-up&amp;columns=state,parent">Clear' in shown, "what clears the filters keeps the columns"
    every = "&".join(f"column={name}" for name in experiments.COLUMNS)
    assert heads("?" + visitor.get(f"experiments?{every}").headers["location"].partition("?")[2]) == list(
        experiments.COLUMNS.values()
    )


def test_a_long_name_is_cut_in_lists_and_whole_on_hover(visitor: Visitor, served: Served) -> None:
    name = "n" * 5000
    served.put([experiment(5, name=name, labels=["l" * 5000])])
    listed = visitor.get("experiments").text
    assert f'title="{name}">{"n" * show.LONGEST}…<' in listed and f">{'l' * show.LONGEST}…<" in listed
    assert f'<h1 class="name" title="{name}">{"n" * show.LONGEST}…<' in visitor.get("experiments/5/trials").text


def test_the_list_is_filtered_by_project_where_there_are_several(visitor: Visitor, served: Served) -> None:
    assert 'name="project"' not in visitor.get("experiments").text
    vision = workspaces.create_workspace(served.session, "Vision <b>")["id"]
    digits = workspaces.create_project(served.session, vision, "Digits")["id"]
    served.session.post("/api/v1/experiments/1/move", {"destinationProjectId": digits})
    page = visitor.get(f"experiments?project={digits}").text
    assert f'<option value="{digits}" selected>Vision &lt;b&gt; / Digits</option>' in page
    assert re.findall(r'<tr id="experiment-(\d+)"', page) == ["1"]
    assert "No experiment fits these filters" in visitor.get("experiments?project=99").text
