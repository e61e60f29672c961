"""What a person does with a page in a real Chromium: curves that are chosen and pinned, lists that are worked on."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.e2e.conftest import User
from tests.waiting import wait_until
from tests.web.test_browser import Tab, chromium, tab, user  # noqa: F401

ASHA = {
    "name": "adaptive_asha",
    "metric": "validation_loss",
    "max_trials": 4,
    "bracket_rungs": [2],
    "divisor": 2,
    "time_metric": "batches",
    "max_time": 40,
}


def test_any_metric_is_drawn_and_a_link_shows_what_was_pinned(user: User, tab: Tab) -> None:  # noqa: F811
    page = tab.goto("experiments/1")
    page.select_option("[name=metric]", "training.loss")
    page.click("form:has([name=metric]) button")
    page.wait_for_url(re.compile(r"metric=training.loss"))
    page.wait_for_selector("#curves canvas")
    page.check("[data-log-x]")
    page.focus("[data-pin] >> nth=0")
    page.keyboard.press("Enter")
    page.wait_for_selector("#curves .pin a")
    assert re.search(r"[?&]pin=\d+$", page.url) and "metric=training.loss" in page.url
    other = page.context.new_page()
    other.goto(page.url)  # as somebody to whom the link was sent
    other.wait_for_selector("#curves .pointed")
    assert other.locator("#curves .pin").count() == 1
    assert other.inner_text("[data-pin] >> nth=0") == "unpin"
    other.click("#curves .pin button")
    other.wait_for_selector("#curves .uplot:not(.pointed)")
    assert "pin=" not in other.url and other.locator("#curves .pin").count() == 0
    box = other.locator("#curves .u-over").bounding_box()

    def over_a_curve() -> bool:
        for y in range(4, int(box["height"]), 8):
            other.mouse.move(box["x"] + box["width"] / 2, box["y"] + y)
            if other.locator("#curves .pointed").count():
                return True
        return False

    wait_until(over_a_curve)
    other.mouse.down()
    other.mouse.up()
    other.wait_for_selector("#curves .pin")
    assert "pin=" in other.url, "a click on a curve pins it"


def test_rungs_are_drawn_and_axe_finds_nothing_in_them(user: User, chromium: Any) -> None:  # noqa: F811
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    hparams = {"lr": {"type": "double", "minval": 0.1, "maxval": 0.9}, "go": str(user.folder / "go1")}
    number = user.create(name="rungs", hyperparameters=hparams, searcher=ASHA)
    user.wait_state(number, "COMPLETED")
    context = chromium.new_context(bypass_csp=True)
    page = Tab(user, context).goto(f"experiments/{number}/search")
    assert page.locator("svg.rungs polygon.band").count() >= 1 and page.locator("svg.rungs rect.finished").count() == 1
    page.wait_for_selector("td:text('is worse than the cut-off') >> nth=0")
    result = axe.Axe().run(page)
    assert [v["id"] for v in result.response["violations"]] == []
    page = Tab(user, context).goto("experiments/1?pin=1")
    page.wait_for_selector("#curves .pin")
    assert [v["id"] for v in axe.Axe().run(page).response["violations"]] == []
    context.close()


def test_what_ends_experiments_asks_only_when_some_are_chosen(user: User, tab: Tab) -> None:  # noqa: F811
    page, asked = tab.goto("experiments"), list[str]()
    page.on("dialog", lambda dialog: asked.append(dialog.message) or dialog.dismiss())
    assert page.is_disabled("button:text-is('Kill')")
    page.keyboard.press("X")
    assert asked == [] and page.url.endswith("/experiments")
    page.check("#experiment-1 input")
    page.click("button:text-is('Kill')")
    assert asked == ["Kill the chosen experiments? What was not saved is lost."]


def test_columns_are_chosen_in_a_menu_that_closes_as_if_nothing_had_been(user: User, tab: Tab) -> None:  # noqa: F811
    page = tab.goto("experiments")
    summary = ".menu summary"
    for close in (lambda: page.keyboard.press("Escape"), lambda: page.click("h1"), lambda: page.click(summary)):
        page.click(summary)
        page.uncheck(".menu [value=pool]")
        close()
        page.wait_for_selector(".menu:not([open])")
        page.wait_for_selector("[value=pool]:checked", state="attached")  # or the page would wait for somebody to go on
    page.focus(summary)
    page.keyboard.press("Enter")
    page.uncheck(".menu [value=pool]")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"columns=state,progress,"))
    assert "Pool" not in page.inner_text("thead")


def test_labels_are_given_to_chosen_rows_by_keyboard(user: User, tab: Tab) -> None:  # noqa: F811
    page = tab.goto("experiments")
    for key in "js":
        page.keyboard.press(key)
    chosen = int(page.input_value("tr.here input[name=id]"))
    page.fill("[name=labels]", "good, kept")
    page.keyboard.press("Enter")
    page.wait_for_selector(".said:text('add labels: 1 of 1')")
    assert sorted(user.experiment(chosen)["labels"]) == ["good", "kept"]
    page.check(f"#experiment-{chosen} input")
    page.fill("[name=labels]", "good")
    page.click("text=Remove label")
    page.wait_for_selector(".said:text('remove labels: 1 of 1')")
    assert user.experiment(chosen)["labels"] == ["kept"]
