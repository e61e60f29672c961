"""A log that goes on while somebody reads it, in a real Chromium before a live master: of a training that reports nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import User, make_user, take_down
from tests.waiting import wait_until
from tests.web.test_browser import Tab, chromium, playwright, tab  # noqa: F401

SAYS = """
import os, pathlib, time
import determined as det
folder = pathlib.Path(det.get_cluster_info().trial.hparams["folder"])
said = 0
with det.core.init() as core:
    while not (folder / "end").exists() and not core.preempt.should_preempt():
        wanted = sorted(folder.glob("say-*"))
        for file in wanted[said:]:
            print(file.read_text(), flush=True)
        said = len(wanted)
        time.sleep(0.05)
"""


class Silent:
    """A trial that prints what it is told, and reports nothing."""

    def __init__(self, user: User) -> None:
        self.folder, self._said = user.folder / "told", 0
        self.folder.mkdir()
        user.write("context/train.py", SAYS)
        hparams = {"folder": str(self.folder)}
        user.create(name="silent", hyperparameters=hparams, searcher={"name": "single", "metric": "x"})

    def say(self, text: str) -> None:
        self._said += 1
        new = self.folder / "new"  # the training looks for say-*: it meets no file that is still written
        new.write_text(text)
        new.rename(self.folder / f"say-{self._said:04d}")


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    user = make_user(tmp_path_factory.mktemp("log"), DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="1")
    yield user
    take_down(user)


@pytest.fixture(scope="module")
def silent(user: User) -> Iterator[Silent]:
    silent = Silent(user)
    silent.say("the first line")
    wait_until(lambda: "the first line" in user.det("trial", "logs", "1"))
    yield silent
    (silent.folder / "end").touch()


def lines(page: Any) -> list[str]:
    found: list[str] = page.eval_on_selector_all("#log .line .text", "all => all.map(one => one.textContent)")
    return found


def at_end(page: Any) -> bool:
    return bool(page.eval_on_selector("#log", "log => log.scrollHeight - log.scrollTop - log.clientHeight < 40"))


def scroll(page: Any, top: int) -> None:
    """Until the page has heard of it: a line that comes before would lead back to the end."""
    told = "(log, top) => new Promise((go) => { log.addEventListener('scroll', () => go()); log.scrollTop = top; })"
    page.eval_on_selector("#log", told, top)


def test_lines_come_by_themselves_from_a_training_that_reports_nothing(silent: Silent, tab: Tab) -> None:  # noqa: F811
    page = tab.goto("trials/1/logs")
    silent.say("<i>news</i>")
    page.wait_for_selector("#log .text:text-is('<i>news</i>')")
    assert len(lines(page)) == len(set(lines(page))), "no line comes twice"
    assert lines(page).index("the first line") < lines(page).index("<i>news</i>")


def test_who_has_scrolled_up_keeps_the_place_and_goes_to_the_end_with_one_click(silent: Silent, tab: Tab) -> None:  # noqa: F811
    page = tab.goto("trials/1/logs")
    silent.say("\n".join(f"many {n}" for n in range(300)))
    page.wait_for_selector("#log .text:text-is('many 299')")
    wait_until(lambda: at_end(page))
    scroll(page, 300)
    silent.say("far below")
    page.wait_for_selector("#log-new:not([hidden])")
    assert page.inner_text("#log-new") == "1 new line ↓"
    assert page.eval_on_selector("#log", "log => log.scrollTop") == 300
    page.click("#log-new")
    wait_until(lambda: at_end(page))
    assert page.is_hidden("#log-new")


def test_a_filter_holds_for_what_comes(silent: Silent, tab: Tab) -> None:  # noqa: F811
    page = tab.goto("trials/1/logs?text=wanted")
    silent.say("other words")
    silent.say("a wanted word")
    page.wait_for_selector("#log .text:text-is('a wanted word')")
    assert all("wanted" in line for line in lines(page))


def test_the_page_around_a_log_changes_and_the_log_stays(user: User, silent: Silent, tab: Tab) -> None:  # noqa: F811
    page = tab.goto("trials/1/logs")
    silent.say("before the change")
    page.wait_for_selector("#log .text:text-is('before the change')")
    page.eval_on_selector("#log", "log => { log.dataset.mark = 'same'; }")
    scroll(page, 100)
    made = page.evaluate("document.getElementById('main').dataset.since")
    with page.expect_response(lambda answer: answer.url.endswith("/trials/1/logs")):
        user.session().patch("/api/v1/experiments/1", {"name": "other"})
    page.wait_for_timeout(200)
    assert made and page.get_attribute("#log", "data-mark") == "same"
    assert page.eval_on_selector("#log", "log => log.scrollTop") == 100
    assert "before the change" in lines(page)


def test_the_first_error_is_jumped_to_with_what_was_said_before_it(silent: Silent, tab: Tab) -> None:  # noqa: F811
    silent.say("quite well\nERROR: it broke\nand went on")
    page = tab.goto("trials/1/logs")
    page.wait_for_selector("#log .text:text-is('and went on')")
    page.keyboard.press("e")
    page.wait_for_selector(".line.first")
    assert page.inner_text(".line.first .text") == "ERROR: it broke"
    shown = lines(page)
    assert shown.index("quite well") + 1 == shown.index("ERROR: it broke") == shown.index("and went on") - 1
    page.click("[data-to-end]")
    page.wait_for_selector("#log[data-tail]")


def test_a_long_log_is_read_backwards_and_stays_small_in_the_browser(silent: Silent, tab: Tab) -> None:  # noqa: F811
    """100,000 lines: as much as the end of them is in the page, and the others come when one scrolls to them."""
    page = tab.goto("trials/1/logs")
    silent.say("\n".join(f"line {n:06d} of a long log" for n in range(100_000)))
    page.wait_for_selector("#log .text:text-is('line 099999 of a long log')", state="attached")
    assert len(lines(page)) <= 6000
    page = tab.goto("trials/1/logs")
    assert len(lines(page)) <= 1000 + 1 and lines(page)[-1] == "line 099999 of a long log"
    wait_until(lambda: at_end(page))
    page.eval_on_selector("#log", "log => { log.scrollTop = 0; }")
    wait_until(lambda: page.evaluate("document.querySelectorAll('#log .line').length > 1500"))
    numbers = [int(line.split()[1]) for line in lines(page) if line.startswith("line ")]
    assert numbers == list(range(100_000 - len(numbers), 100_000)), "none is missing, none is twice, all in order"
    assert page.eval_on_selector("#log", "log => log.scrollTop") > 1000, "what one looked at is still there"


def test_a_page_says_that_the_trial_has_ended_and_follows_no_more(silent: Silent, tab: Tab) -> None:  # noqa: F811
    page = tab.goto("trials/1/logs")
    wait_until(lambda: page.evaluate("document.getElementById('log-state').textContent.includes('come by themselves')"))
    (silent.folder / "end").touch()
    wait_until(lambda: page.evaluate("document.getElementById('log-state').textContent.includes('has ended')"))
    page.wait_for_selector(".head .state.completed")
