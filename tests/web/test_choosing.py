"""Rows that are chosen in a list, and what is done to them, in a real Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.master.conftest import Served, experiment, trained, trial
from tests.web.conftest import Visitor, entered
from tests.web.test_browser import chromium, playwright  # noqa: F401


@pytest.fixture
def page(served: Served, chromium: Any) -> Iterator[Any]:  # noqa: F811
    served.put([experiment(1), experiment(2), experiment(3), *trained(trial(1))])
    with entered(served, chromium) as page:
        yield page


def chosen(page: Any) -> list[str]:
    ids: list[str] = page.eval_on_selector_all("tbody input:checked", "all => all.map(box => box.value)")
    return ids


def test_what_was_chosen_is_still_chosen_after_an_action(page: Any, served: Served) -> None:
    for number in (1, 3):
        served.session.post(f"/api/v1/experiments/{number}/archive")
    page.goto(f"{page.root}experiments?archived=1&sort=id-up")
    for number in (1, 3):
        page.check(f"#experiment-{number} input")
    page.fill("[name=labels]", "good")
    page.click("[data-key=l]")
    page.wait_for_selector(".said:text('add labels: 2 of 2')")
    assert chosen(page) == ["1", "3"] and "archived=1&sort=id-up" in page.url
    served.session.patch("/api/v1/experiments/1", {"name": "another"})
    page.wait_for_selector("#experiment-1 a:text('another')")  # the page goes on meanwhile
    assert chosen(page) == ["1", "3"]
    page.uncheck("#experiment-1 input")
    page.fill("[name=labels]", "better")
    page.click("[data-key=l]")
    page.wait_for_selector("#experiment-3 .label:text('better')")
    assert chosen(page) == ["3"] and page.locator("#experiment-1 .label").all_inner_texts() == ["good"]
    page.uncheck("#experiment-3 input")
    page.reload()
    assert chosen(page) == [], "what one chose no longer is not chosen by the address"


@pytest.mark.parametrize("path", ["experiments", "experiments/1/trials"])
def test_actions_wait_until_a_row_is_chosen(page: Any, served: Served, path: str) -> None:
    page.goto(f"{page.root}{path}")
    every, usable = page.locator("[data-many] button"), page.locator("[data-many] button:enabled")
    assert every.count() > 0 and usable.count() == 0
    page.check("[data-all]")
    assert usable.count() == every.count()
    page.uncheck("tbody input >> nth=0")
    assert not page.is_checked("[data-all]")
    for box in page.locator("tbody input:checked").all()[::-1]:
        box.uncheck()
    assert usable.count() == 0
    page.click("h1")
    served.session.patch("/api/v1/experiments/1", {"name": "another"})
    page.wait_for_selector(":text('another')")
    assert usable.count() == 0, "nor after the page has changed"


@pytest.mark.parametrize("path, field", [("experiments", "[name=name]"), ("experiments/1", "[name=notes]")])
def test_a_page_goes_on_while_one_is_in_a_field_and_has_not_typed(
    page: Any, served: Served, path: str, field: str
) -> None:
    page.goto(f"{page.root}{path}")
    page.focus(field)
    served.session.patch("/api/v1/experiments/1", {"name": "another", "labels": ["new"]})
    page.wait_for_selector("main :text('another')")
    page.keyboard.type("ab")
    assert page.input_value(field) == "ab", "the field is the same, and has the focus"
    served.session.patch("/api/v1/experiments/1", {"name": "a third"})
    page.wait_for_selector("#behind")
    assert page.input_value(field) == "ab"
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    page.wait_for_selector("main :text('a third')")


def test_actions_are_there_without_a_script(visitor: Visitor) -> None:
    shown = visitor.get("experiments").text
    assert 'value="archive"' in shown and "disabled" not in shown
