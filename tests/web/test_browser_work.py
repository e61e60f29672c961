"""Work on the queue, and a phone, in a real Chromium."""

from __future__ import annotations

from typing import Any

from tests.e2e.conftest import User
from tests.web.test_browser import Tab, chromium, tab, user  # noqa: F401

DRAGGED = """() => {
  const [over, row] = document.querySelectorAll("tr[data-job]"), dataTransfer = new DataTransfer();
  const { x, y } = over.getBoundingClientRect();
  const tell = (place, kind) => place.dispatchEvent(
    new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer, clientX: x + 40, clientY: y + 3 }));
  tell(row.querySelector(".handle"), "dragstart");
  tell(over, "dragover");
  tell(over, "drop");
}"""
"""The second row is let go above the first, with the events that a browser sends."""


def test_a_job_is_dragged_to_another_place_and_moved_by_keyboard(user: User, tab: Tab) -> None:  # noqa: F811
    hparams = {"lr": 0.1, "go": str(user.folder / "never")}
    number = user.create(
        name="third", hyperparameters=hparams, searcher={"name": "single", "metric": "validation_loss"}
    )
    page = tab.goto("queue")

    def stand(*names: str) -> None:
        page.wait_for_function(
            "names => [...document.querySelectorAll('tr[data-job] a')].map(a => a.textContent).join() === names",
            arg=",".join(names),
        )

    stand("second", "third")
    page.evaluate(DRAGGED)
    page.wait_for_selector(".said:text('was changed')")
    stand("third", "second")
    page.focus("tr[data-job] >> nth=0 >> summary")
    page.keyboard.press("Enter")
    page.focus("details[open] [name=place]")
    page.keyboard.press("Control+A")
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    stand("second", "third")
    user.det("experiment", "kill", str(number))


def test_the_queue_goes_on_below_an_open_manage_job(user: User, tab: Tab) -> None:  # noqa: F811
    page = tab.goto("queue")
    page.click("tr[data-job] summary")
    page.fill("details[open] [name=priority]", "7")
    user.session().patch("/api/v1/experiments/2", {"name": "another"})
    page.wait_for_selector("tr[data-job] a:text('another')")
    assert page.input_value("details[open] [name=priority]") == "7"
    assert page.evaluate("document.activeElement.name") == "priority"
    user.session().patch("/api/v1/experiments/2", {"name": "second"})
    page.wait_for_selector("tr[data-job] a:text('second')")


def test_on_a_phone_the_menu_is_whole_and_rows_are_low(user: User, chromium: Any) -> None:  # noqa: F811
    user.session().patch("/api/v1/experiments/1", {"name": "a long name of an experiment " * 12})
    context = chromium.new_context(viewport={"width": 390, "height": 800})
    page = Tab(user, context).goto("experiments")
    ends = page.eval_on_selector_all(
        "header a, header button:not([data-keys])", "all => all.map(each => each.getBoundingClientRect().right)"
    )
    assert len(ends) > 6 and max(ends) <= 390
    lines = "all => all.map(each => each.getBoundingClientRect().height)"
    assert max(page.eval_on_selector_all("tbody tr", lines)) < 120
    user.session().patch("/api/v1/experiments/2", {"name": "a long name of an experiment " * 12})
    page.goto(page.url.replace("experiments", "queue"))
    assert max(page.eval_on_selector_all("tbody tr", lines)) < 120
    page.goto(page.url.replace("queue", "experiments/2/trials"))
    assert page.locator("h1").bounding_box()["height"] < 70
    user.session().patch("/api/v1/experiments/1", {"name": "<i>first</i>"})
    user.session().patch("/api/v1/experiments/2", {"name": "second"})
    context.close()


def test_on_a_phone_an_empty_list_says_so_where_one_sees_it(user: User, chromium: Any) -> None:  # noqa: F811
    context = chromium.new_context(viewport={"width": 390, "height": 800})
    opened = Tab(user, context)
    for path in ("experiments?name=nothing", "experiments?offset=5000", "checkpoints?state=ERROR"):
        page = opened.goto(path)
        ends = "cell => { const r = document.createRange(); r.selectNodeContents(cell); return r.getBoundingClientRect().right; }"
        assert page.eval_on_selector("td.empty", ends) <= 390, path
    context.close()
