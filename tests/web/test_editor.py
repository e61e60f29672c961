"""The editor of a configuration in a real Chromium."""

from __future__ import annotations

from typing import Any

from tests.master.conftest import served, site  # noqa: F401
from tests.web.test_browser import chromium, playwright  # noqa: F401
from tests.web.test_charts import page  # noqa: F401


def test_who_goes_back_from_a_refusal_finds_what_was_typed(page: Any) -> None:  # noqa: F811
    typed = "name: mine\nsearcher: {name: rnadom}\n"
    page.goto(f"{page.root}experiments/1/fork")
    page.fill("[data-config]", typed)
    page.get_by_role("button", name="Create").click()
    page.wait_for_selector("#look h2:has-text('mistake')")
    page.goto(f"{page.root}experiments/1/configuration")
    page.go_back()  # to the refusal: the browser does not ask whether to send it again
    page.wait_for_selector("#look h2:has-text('mistake')")
    assert page.input_value("[data-config]") == typed
    page.once("dialog", lambda dialog: dialog.accept())
    page.go_back()  # to where it was typed
    page.wait_for_selector("#look h2:has-text('mistake')")
    assert page.input_value("[data-config]") == typed
