"""Axes of hyperparameters in a real Chromium: which are logarithmic, and what stands at them."""

from __future__ import annotations

import random
from typing import Any

from tests.master.conftest import CONFIG, Served, experiment, served, site, trained, trial  # noqa: F401
from tests.web.test_browser import chromium, playwright  # noqa: F401
from tests.web.test_charts import page, tried  # noqa: F401

KEEP_WORDS = """
window.words = [];
const fill = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const { width } = this.measureText(text), left = { center: x - width / 2, right: x - width }[this.textAlign] ?? x;
  if (this.canvas.parentElement?.id === "parallel") window.words.push({ text, y, left, right: left + width });
  fill.call(this, text, x, y);
};
"""
AGAIN = """async () => {
  window.words = [];
  document.dispatchEvent(new Event("dethpc:theme"));
  await new Promise(requestAnimationFrame);
  return window.words;
}"""
"""What is written at the axes of the parallel coordinates, and where."""


def words(page: Any) -> list[str]:  # noqa: F811
    return [each["text"] for each in page.evaluate(AGAIN)]


def test_long_names_of_many_axes_do_not_lie_over_each_other(page: Any) -> None:  # noqa: F811
    draw, long = random.Random(0), "model.encoder.attention.probability_of_dropout"
    names = [f"{number}.{long}" for number in range(13)]
    page.add_init_script(KEEP_WORDS)
    tried(page, [({name: draw.random() for name in names}, draw.random()) for _ in range(20)])
    written = page.evaluate(AGAIN)
    width = page.locator("#parallel canvas").bounding_box()["width"]
    assert all(each["left"] >= 0 and each["right"] <= width for each in written)
    for y in {each["y"] for each in written}:
        line = sorted((each for each in written if each["y"] == y), key=lambda each: each["left"])
        assert all(one["right"] < other["left"] for one, other in zip(line, line[1:], strict=False)), line
    shown = [each["text"] for each in written]
    assert all(any(text.startswith(name[:10]) for text in shown) for name in names), "each says which it is"
    box = page.locator("#parallel canvas").bounding_box()
    page.mouse.move(box["x"] + 70, box["y"] + 100)
    page.wait_for_selector(f"#parallel canvas[title='{names[0]}']")


def test_an_axis_is_scaled_as_the_configuration_draws_it_or_as_one_says_and_tells(
    page: Any,  # noqa: F811
    served: Served,  # noqa: F811
) -> None:
    draw, log = random.Random(0), {"type": "log", "base": 10, "minval": -2, "maxval": -1}
    space = {"lr": log, "decay": {"type": "double", "minval": 0.0, "maxval": 1.0}}
    served.put([experiment(5, config={**CONFIG, "hyperparameters": space})])
    for n in range(40):
        hparams = {"lr": draw.uniform(0.01, 0.05), "decay": draw.uniform(0.001, 1.0), "free": 10 ** draw.uniform(0, 3)}
        served.put(trained(trial(500 + n, 5, index=n, hparams=hparams, best_validation=hparams["lr"])))
    page.add_init_script(KEEP_WORDS)
    page.goto(f"{page.root}experiments/5/hyperparameters?x=lr&y=decay")
    page.wait_for_selector("#scatter canvas")
    assert {"lr (log)", "decay", "free (log)"} <= set(words(page))
    heat = page.locator("table.heat tfoot th").first
    assert heat.inner_text() == "decay ↑ lr (log) →"
    page.uncheck("#scales label:has-text('lr') input")
    page.check("#scales label:has-text('decay') input")
    assert page.url.endswith("?x=lr&y=decay&linear=lr&log=decay")
    page.wait_for_selector("table.heat tfoot th:text('decay (log) ↑ lr →')")
    assert {"lr", "decay (log)", "free (log)"} <= set(words(page))
    page.get_by_role("button", name="Show").click()  # another map of the same page
    page.wait_for_selector("#scatter canvas")
    assert {"lr", "decay (log)", "free (log)"} <= set(words(page)), "whoever gets the link sees the same"
    page.check("#scales label:has-text('lr') input")
    assert "linear" not in page.url and "log=decay" in page.url, "the address says what is not so anyway"
    assert page.locator("canvas[aria-label='loss over lr (logarithmic)']").count() == 1
