"""What axe says of pages that the others' experiments do not bring about: several hyperparameters, lists without a row, labels."""

from __future__ import annotations

from typing import Any

import pytest

from tests.master.conftest import Served, experiment, trained, trial
from tests.web.conftest import log_in
from tests.web.test_browser import chromium, playwright  # noqa: F401

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")

PAGES = [
    "experiments",
    "experiments?archived=1",
    "experiments?name=nothing",
    "experiments?offset=5000",
    "experiments?columns=state,parent,metric",
    "checkpoints?state=ERROR",
    "experiments/1/trials",
    "experiments/1/trials?offset=5000",
    "experiments/1/hyperparameters",
    "experiments/3",
    "trials/2/logs?rank=x",
    "trials/2/profiler",
    "experiments/1/search",
]


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.everything)])
def test_axe_finds_nothing_in_pages_with_and_without_rows(served: Served, chromium: Any, theme: str) -> None:  # noqa: F811
    served.put([experiment(1, labels=["a", "b"]), experiment(2, parent_id=1), experiment(3)])
    for n in range(1, 25):
        hparams = {"lr": (n % 6) / 10, "width": n % 4 * 16}
        served.put(trained(trial(n, 1, hparams=hparams, best_validation=hparams["lr"] + n / 1000)))
    context, violations = chromium.new_context(color_scheme=theme, bypass_csp=True), {}
    page = context.new_page()
    log_in(served, page)
    for path in PAGES:
        page.goto(page.root + path)
        result = axe.Axe().run(page)
        if result.violations_count:
            violations[path] = [f"{v['id']}: {v['nodes'][0]['html'][:120]}" for v in result.response["violations"]]
    context.close()
    assert violations == {}
