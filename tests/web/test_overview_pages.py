"""What the pages of an experiment and a trial say at the first look, for metrics that are minimised and maximised."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from dethpc.domain.states import State
from dethpc.rundir import logline
from dethpc.rundir.logline import LogLine
from tests.master.conftest import CONFIG, T0, Served, experiment, run_of, trained, trial
from tests.web.conftest import Visitor, log_in
from tests.web.test_browser import chromium  # noqa: F401

SEARCHED = {True: CONFIG, False: {**CONFIG, "searcher": {**CONFIG["searcher"], "smaller_is_better": False}}}


def order(text: str) -> list[int]:
    """The trials of the page's table."""
    table = text[text.rindex("<table>") :]
    return [int(found) for found in re.findall(r'<td class="n"><a href="[^"]*trials/(\d+)">', table)]


@pytest.mark.parametrize("smaller", [True, False])
def test_the_best_trials_stand_first_whatever_is_better(visitor: Visitor, served: Served, smaller: bool) -> None:
    fact = experiment(7, smaller_is_better=smaller, config=SEARCHED[smaller])
    values: dict[int, float | None] = {70 + index: index / 10 for index in range(1, 9)} | {79: None}
    served.put([fact, *(trial(id, 7, index=id - 71, best_validation=value) for id, value in values.items())])
    best = sorted((id for id in values if values[id] is not None), reverse=not smaller)
    assert order(visitor.get("experiments/7").text) == best[:5]
    shown = visitor.get("experiments/7/trials").text
    assert order(shown) == [*best, 79]
    assert f'aria-sort="{"ascending" if smaller else "descending"}"' in shown
    assert order(visitor.get("experiments/7/trials?sort=metric-down").text) == [*best[::-1], 79]
    assert "sort=metric-up" in visitor.get("experiments/7/trials?sort=id-up").text, "a click shows the best first"


def test_why_it_failed_leads_to_the_trial_its_log_and_a_fork(visitor: Visitor, served: Served) -> None:
    why = "exit code 1: KeyError: &#39;label&#39;"
    wrong = {"state": State.ERROR, "reason": "exit code 1: KeyError: 'label'", "best_validation": None}
    served.put([experiment(7, state=State.ERROR, reason=wrong["reason"])])
    served.put([trial(71, 7, index=0, **wrong), trial(72, 7, index=1, **wrong)])
    shown = visitor.get("experiments/7").text
    note = shown[shown.index('class="note bad"') :].partition("</section>")[0]
    assert why in note and 'trials/71">Trial 71<' in note
    assert "trials/71/logs?jump=error" in note and "experiments/7/fork" in note
    assert 'id="curves"' not in shown and "Best trials" not in shown, "nothing was reported"
    shown = visitor.get("trials/72").text
    note = shown[shown.index('class="note bad"') :].partition("</section>")[0]
    assert why in note and "trials/72/logs?jump=error" in note and "experiments/7/fork" in note


def test_a_metric_that_never_came_is_said_and_another_is_drawn(visitor: Visitor, served: Served) -> None:
    config = {**CONFIG, "searcher": {**CONFIG["searcher"], "metric": "val_loss"}}
    served.put([experiment(7, metric="val_loss", config=config)])
    served.put(trained(trial(71, 7, index=0, best_validation=None)))
    shown = visitor.get("experiments/7").text
    assert "No trial has reported val_loss, the searcher's metric, so none of them is the best." in shown
    drawn = re.findall(r"series.json\?group=(\w+)&amp;name=(\w+)", shown)
    chosen = re.findall(r'<option value="([\w.]+)" selected>', shown)
    assert drawn == [tuple(chosen[0].split("."))] and f"<h2>{drawn[0][1]}" in shown
    assert "No trial has reported" not in visitor.get("experiments/1").text


def test_what_has_never_run_has_no_start_and_no_duration(visitor: Visitor, served: Served) -> None:
    queued = {"state": State.ACTIVE, "started_at": None, "ended_at": None, "best_validation": None}
    served.put([experiment(7, state=State.ACTIVE, ended_at=None), trial(71, 7, index=0, **queued)])
    row = visitor.get("experiments/7/trials").text
    cells = re.findall(r"<td[^>]*>(.*?)</td>", row[row.index('id="trial-71"') :].partition("</tr>")[0])
    assert cells[-3:-1] == ["–", "–"]
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", visitor.get("trials/71").text))
    assert facts["Started"] == facts["Duration"] == "–"
    assert served.session.get("/api/v1/trials/71")["trial"]["wallClockTime"] == 0


def test_a_trial_is_named_by_its_experiment_and_leads_to_those_beside_it(visitor: Visitor, served: Served) -> None:
    served.put([experiment(7, name="wide & deep")])
    served.put([row for index, id in enumerate((71, 80, 75)) for row in trained(trial(id, 7, index=index))])
    shown = visitor.get("trials/80").text
    crumbs = shown[shown.index('class="crumbs"') :].partition("</nav>")[0]
    assert 'experiments/7" title="wide &amp; deep">wide &amp; deep</a>' in crumbs
    assert "<dt>Best loss</dt>" in shown and "Best metric" not in shown

    def beside(page: str) -> list[tuple[str, str]]:
        return re.findall(r'href="[^"]*(trials/[^"]+)" rel="(\w+)"', visitor.get(page).text)

    assert beside("trials/80") == [("trials/71", "prev"), ("trials/75", "next")], "in the order of their creation"
    assert beside("trials/71/logs") == [("trials/80/logs", "next")], "to the same of their pages"
    assert beside("trials/75/timeline") == [("trials/80/timeline", "prev")]
    served.put([experiment(8), *trained(trial(81, 8, index=0))])
    assert beside("trials/81") == [] and "Trials before and after" not in visitor.get("trials/81").text


@pytest.fixture
def page(served: Served, chromium: Any) -> Iterator[Any]:  # noqa: F811
    served.put([experiment(1), *trained(trial(1))])
    log = served.daemon.installation.home.run(run_of(trial(1)).id).attempt(0).log(0)
    log.parent.mkdir(parents=True, exist_ok=True)
    lines = [LogLine(T0 + n, "INFO", None, "stdout", f"line {n}") for n in range(400)]
    log.write_text("".join(map(logline.format, lines)))
    context = chromium.new_context()
    page = context.new_page()
    log_in(served, page)
    yield page
    context.close()


@pytest.mark.parametrize("path", ["experiments", "experiments/1/trials", "experiments/1", "queue"])
def test_what_a_page_says_is_printed_and_no_control_is(page: Any, served: Served, path: str) -> None:
    text = "entrypoint: python3 x.py\nsearcher: {name: single, metric: loss}\nname: queued\n"
    served.session.post("/api/v1/experiments", {"config": text, "activate": True})
    notes = "\n".join(f"line {n}" for n in range(12))
    served.session.patch("/api/v1/experiments/1", {"notes": notes})
    page.goto(f"{page.root}{path}")
    page.emulate_media(media="print")
    for row in page.locator("tbody tr[data-row]").all():
        assert row.is_visible()
    assert page.locator("tbody tr[data-row]").count() > 0
    controls = page.locator(":is(button, summary, select, input[type=checkbox], [data-pin])")
    assert [control.inner_text() for control in controls.all() if control.is_visible()] == []
    if path == "experiments/1":
        assert page.eval_on_selector("[name=notes]", "notes => notes.scrollHeight <= notes.clientHeight"), "to its end"
        assert page.eval_on_selector("[name=notes]", "notes => getComputedStyle(notes).borderTopWidth") == "0px"


@pytest.mark.parametrize(
    "path, button, address",
    [
        ("trials/1/logs", ".filters button", "trials/1/logs?level=ERROR&rank=1"),
        ("experiments?sort=name-up", ".filters button", "experiments?state=ERROR&sort=name-up"),
    ],
)
def test_an_address_has_no_empty_fields(page: Any, path: str, button: str, address: str) -> None:
    page.goto(f"{page.root}{path}")
    if "logs" in path:
        assert page.get_attribute("[data-first-error]", "href") == "?jump=error"
        page.select_option("[name=level]", "ERROR")
        page.fill("[name=rank]", "1")
    else:
        page.check("[name=state][value=ERROR]")
    page.click(button)
    page.wait_for_url(page.root + address)


@pytest.mark.parametrize("width, height", [(1440, 900), (1280, 720), (720, 450)])
def test_the_newest_line_of_a_log_is_in_sight_and_the_page_has_one_scrollbar(
    page: Any, width: int, height: int
) -> None:
    """720 pixels are the window of 1440 at 200 %."""
    page.set_viewport_size({"width": width, "height": height})
    page.goto(f"{page.root}trials/1/logs")
    page.wait_for_function("() => document.querySelector('.line:last-child')?.textContent.includes('line 399')")
    page.wait_for_function(
        "() => document.querySelector('.line:last-child').getBoundingClientRect().bottom <= innerHeight"
    )
    if height > 600:
        assert page.evaluate("document.documentElement.scrollHeight") <= height
        assert page.evaluate("document.querySelector('#log').clientHeight") > height / 3


def test_every_page_says_that_the_master_cannot_write_while_that_lasts(visitor: Visitor, served: Served) -> None:
    served.daemon.installation.trouble = (
        "cannot write (/home/me/.dethpc: No space left on device): states are as last written"
    )
    said = (
        "The master answers, and cannot write (/home/me/.dethpc: No space left on device): states are as last written."
    )
    for page in ("experiments", "queue", "about"):
        assert visitor.get(page).text.count(said) == 1, page
    served.daemon.installation.trouble = ""
    assert "cannot write" not in visitor.get("experiments").text
