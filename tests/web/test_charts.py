"""Curves and parallel coordinates in a real Chromium: few, a crowd of them, and values that are no numbers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.master.conftest import Served, experiment, served, site, trained, trial  # noqa: F401
from tests.waiting import wait_until
from tests.web.conftest import entered
from tests.web.test_browser import chromium, playwright  # noqa: F401

INK = """(share) => {
  const canvas = document.querySelector("#curves canvas:not(.layer)"), over = document.querySelector("#curves .u-over");
  const left = over.offsetLeft + share * over.clientWidth;
  const data = canvas.getContext("2d").getImageData(left - 6, over.offsetTop, 12, over.clientHeight).data;
  let strong = 0;  // the grid is grey
  for (let i = 0; i < data.length; i += 4)
    strong += data[i + 3] > 100 && Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]) > 40;
  return strong;
}"""
"""How many pixels have a curve's colour about a place in the plot, from 0 to 1 of its width."""


@pytest.fixture
def page(served: Served, chromium: Any) -> Iterator[Any]:  # noqa: F811
    served.put([experiment(1), *(row for number in (1, 2) for row in trained(trial(number)))])
    with entered(served, chromium) as page:
        yield page


def shown(page: Any, curves: list[list[Any]], query: str = "") -> None:
    steps = list(range(len(curves[0])))
    common = {"hparams": "", "steps": steps, "times": steps, "epochs": steps}
    trials = [{"id": number, **common, "values": values} for number, values in enumerate(curves, 1)]
    page.route("**/series.json*", lambda route: route.fulfill(json={"trials": trials}))
    page.goto(f"{page.root}experiments/1{query}")
    page.wait_for_selector("#curves canvas")


@pytest.mark.parametrize("many", [1, 60])
def test_a_value_that_is_no_number_is_a_gap_with_a_cross_at_its_edge(page: Any, many: int) -> None:
    shown(page, [[0.0, 5.0, "NaN", "NaN", "NaN", 5.0, 10.0]] * many)
    assert page.evaluate(INK, 0.5 / 6) > 5
    assert page.evaluate(INK, 2 / 6) > 5, "a cross"
    assert page.evaluate(INK, 2.5 / 6) == 0, "no line over the gap"
    assert page.evaluate(INK, 5.5 / 6) > 5, "and the line goes on"


LAYER = INK.replace("canvas:not(.layer)", ".layer").replace(
    "left - 6, over.offsetTop", "share * over.clientWidth - 6, 0"
)


def test_a_pinned_curve_keeps_its_gaps(page: Any) -> None:
    shown(page, [[0.0, 5.0, "NaN", "NaN", "NaN", 5.0, 10.0]], "?pin=1")
    page.wait_for_selector("#curves .pin")
    assert page.evaluate(LAYER, 0.5 / 6) > 5 and page.evaluate(LAYER, 5.5 / 6) > 5
    assert page.evaluate(LAYER, 3 / 6) == 0, "no line over the gap"


SAVED = """async () => {
  const kept = new Promise((resolve) => { HTMLAnchorElement.prototype.click = function () { resolve(this.href); }; });
  document.querySelector("[data-png]").click();
  const image = new Image();
  image.src = await kept;
  await image.decode();
  const made = document.createElement("canvas"), over = document.querySelector("#curves .u-over");
  made.width = image.width;
  made.height = image.height;
  const pen = made.getContext("2d");
  pen.drawImage(image, 0, 0);
  const data = pen.getImageData(over.offsetLeft + 20, over.offsetTop, 40, over.clientHeight).data;
  let full = 0;
  for (let i = 0; i < data.length; i += 4) full += data[i + 3] > 200 && Math.max(data[i], data[i + 1], data[i + 2]) > 80;
  return full;
}"""
"""How many pixels of the downloaded picture have a strong colour at the plot's left edge, beside the first line of the grid."""


def test_a_downloaded_picture_has_the_pinned_curves(page: Any) -> None:
    shown(page, [[1.0, 1.2, 1.0], [2.0, 2.2, 2.0]])
    without = page.evaluate(SAVED)
    shown(page, [[1.0, 1.2, 1.0], [2.0, 2.2, 2.0]], "?pin=1")
    page.wait_for_selector("#curves .pointed")
    assert 0 < page.evaluate(SAVED) < 0.9 * without, "the pinned one alone is as strong as it is; the other is faint"


def test_a_trial_keeps_its_colour_whatever_its_rank_is(page: Any) -> None:
    def colour(*ids: int) -> str:
        common = {"hparams": "", "steps": [0, 1], "times": [0, 1], "epochs": [0, 1], "values": [0, 1]}
        curves = {"trials": [{"id": id, **common} for id in ids]}
        page.route("**/series.json*", lambda route: route.fulfill(json=curves))
        page.goto(f"{page.root}experiments/1?pin=17")
        return str(page.get_attribute("#curves .pin .dot", "class"))

    assert colour(17, 4, 8) == colour(4, 8, 17)


def test_no_two_trials_have_one_colour_while_another_is_free(page: Any) -> None:
    common = {"hparams": "", "steps": [0, 1], "times": [0, 1], "epochs": [0, 1], "values": [0, 1]}

    def colours(*ids: int) -> dict[int, str]:
        page.route("**/series.json*", lambda route: route.fulfill(json={"trials": [{"id": n, **common} for n in ids]}))
        page.evaluate("document.dispatchEvent(new Event('dethpc:changed'))")
        page.wait_for_function(
            "ids => [...document.querySelectorAll('#curves .pin a')].map(a => a.textContent.slice(6)).join() === ids",
            arg=",".join(map(str, ids)),
        )
        return dict(zip(ids, page.eval_on_selector_all("#curves .pin .dot", "all => all.map(dot => dot.className)")))

    shown(page, [[0.0, 1.0]], f"?pin={','.join(map(str, range(1, 60)))}")
    first = colours(31, 1, 11, 21)
    assert len(set(first.values())) == 4
    more = colours(5, 31, 2, 1, 11, 21, 41)
    assert len(set(more.values())) == 7 and more.items() >= first.items(), "who is there keeps what it has"
    assert len(set(colours(*range(1, 11)).values())) == 10
    assert sorted(Counter(colours(*range(1, 21)).values()).values()) == [2] * 10


def test_a_value_that_a_logarithmic_axis_has_no_place_for_is_a_gap(page: Any) -> None:
    shown(page, [[1.0, 5.0, -1.0, -1.0, 0.0, 5.0, 10.0]])
    page.check("[data-log]")
    assert page.evaluate(INK, 0.5 / 6) > 5 and page.evaluate(INK, 5.5 / 6) > 5
    assert page.evaluate(INK, 2.5 / 6) == 0


def test_the_part_that_is_looked_at_stays_when_more_comes(page: Any) -> None:
    shown(page, [[float(n) for n in range(11)]])
    box = page.locator("#curves .u-over").bounding_box()
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 50, steps=5)
    page.mouse.up()
    page.mouse.move(0, 0)
    assert page.evaluate(INK, 0.05) > 5, "the part fills the plot"
    look = "document.querySelector('#curves canvas:not(.layer)').toDataURL()"
    before = page.evaluate(look)
    steps = list(range(11))
    one = {"id": 1, "hparams": "", "steps": steps, "times": steps, "epochs": steps, "values": [n * n for n in steps]}
    page.route("**/series.json*", lambda route: route.fulfill(json={"trials": [one]}))
    page.evaluate("document.dispatchEvent(new Event('dethpc:changed'))")
    page.wait_for_function(f"(before) => {look} !== before", arg=before)
    page.mouse.move(box["x"] + 3, box["y"] + 50)
    page.wait_for_selector(".tip:text('steps 2 ')")


def test_an_answer_that_comes_late_does_not_replace_a_later_one(page: Any) -> None:
    shown(page, [[0.0, 1.0]], "?pin=1,2,3")

    def trials(number: int) -> dict[str, Any]:
        common = {"hparams": "", "steps": [0, 1], "times": [0, 1], "epochs": [0, 1], "values": [0, number]}
        return {"trials": [{"id": number, **common}]}

    held: list[Any] = []
    page.route("**/series.json*", lambda route: route.fulfill(json=trials(3)) if held else held.append(route))
    changed = "document.dispatchEvent(new Event('dethpc:changed'))"
    page.evaluate(changed)
    wait_until(lambda: held or page.wait_for_timeout(50))
    page.evaluate(changed)
    page.wait_for_selector(".pin a:text('trial 3')")
    with page.expect_response("**/series.json*") as late:
        held[0].fulfill(json=trials(2))
    late.value.finished()
    page.evaluate("new Promise(requestAnimationFrame).then(() => new Promise(requestAnimationFrame)).then(() => null)")
    assert page.inner_text(".pin a") == "trial 3"


def test_a_metric_without_a_number_says_so(page: Any) -> None:
    steps = [0, 1]
    text = {"id": 1, "hparams": "", "steps": steps, "times": steps, "epochs": steps, "values": [None, None]}
    page.route("**/series.json*", lambda route: route.fulfill(json={"trials": [text]}))
    page.goto(f"{page.root}experiments/1")
    page.wait_for_selector("#curves .empty")


def test_curves_without_epochs_say_what_they_lack(page: Any) -> None:
    steps = [0, 1]
    common = {"hparams": "", "steps": steps, "times": steps, "values": [1, 2]}
    trials = [{"id": 1, **common, "epochs": [None, None]}, {"id": 2, **common, "epochs": [None, None]}]
    page.route("**/series.json*", lambda route: route.fulfill(json={"trials": trials}))
    page.goto(f"{page.root}experiments/1")
    page.wait_for_selector("#curves canvas")
    page.select_option("[data-x]", "epochs")
    assert page.inner_text("#curves .empty").startswith("Nothing is drawn: over epochs, each report needs a metric")
    assert page.locator("#curves canvas").count() == 0
    page.select_option("[data-x]", "steps")
    page.wait_for_selector("#curves canvas")
    trials[0]["epochs"] = [0.5, 1]
    page.reload()
    page.wait_for_selector("#curves canvas")
    page.select_option("[data-x]", "epochs")
    page.wait_for_selector("#curves .faint:text('1 of 2 curves are left out')")
    assert page.locator("#curves canvas").count() == 2, "and the other is drawn"


def test_a_value_that_was_not_reported_is_no_gap(page: Any) -> None:
    shown(page, [[0.0, 5.0, None, 5.0, 10.0]])
    assert page.evaluate(INK, 2 / 4) > 5


@pytest.mark.parametrize("many", [10, 400])
def test_the_pointer_finds_the_curve_that_one_sees_there(page: Any, many: int) -> None:
    shown(page, [[float(number)] * 5 for number in range(many)])
    box = page.locator("#curves .u-over").bounding_box()
    said = []
    for share in (0.3, 0.5, 0.7):
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + (1 - share) * box["height"])
        page.wait_for_selector(".tip:text('trial')" if not said else f".tip:not(:text('{said[-1]} '))")
        said.append(page.inner_text(".tip").partition(" ·")[0])
    numbers = [int(name.removeprefix("trial ")) for name in said]
    first, middle, last = numbers
    assert 0 < first < middle < last and abs((last - first) / 0.4 - many * 1.1) < 0.15 * many, numbers


def tried(page: Any, trials: list[tuple[dict[str, Any], float]], query: str = "") -> None:
    """Shows these: hyperparameters and metric of each."""
    hparams, values = zip(*trials, strict=True)
    found = {"metric": "loss", "trials": list(range(len(trials))), "hparams": hparams, "values": values}
    page.route("**/points.json*", lambda route: route.fulfill(json=found))
    page.goto(f"{page.root}experiments/1/hyperparameters{query}")
    page.wait_for_selector("#parallel canvas")


COUNTED = """
window.frames_of = [0];
new MutationObserver((all) => {
  for (const each of all) if (each.target.id === "scatter") frames_of[frames_of.length - 1] += each.addedNodes.length;
}).observe(document, { childList: true, subtree: true });
const tick = () => { frames_of.push(0); requestAnimationFrame(tick); };
requestAnimationFrame(tick);
"""
"""How many scatter plots came in each frame."""


def test_scatter_plots_come_one_in_a_frame_and_a_brush_replaces_them_so(page: Any) -> None:
    page.add_init_script(COUNTED)
    draw = random.Random(0)
    tried(page, [({name: draw.random() for name in "abcdef"}, draw.random()) for _ in range(3000)])
    page.wait_for_selector("#scatter div:nth-child(6) canvas")
    drawn = page.evaluate("frames_of.splice(0, frames_of.length, 0)")
    assert sum(drawn) == 6 and max(drawn) <= 2, drawn
    page.evaluate("window.last = document.querySelector('#scatter div:nth-child(6) canvas')")
    box = page.locator("#parallel canvas").bounding_box()
    page.mouse.move(box["x"] + 70, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 70, box["y"] + 200)
    page.mouse.up()
    page.wait_for_selector("#scatter div:nth-child(6) canvas")
    wait_until(lambda: page.evaluate("!window.last.isConnected") or page.wait_for_timeout(50))
    again = page.evaluate("frames_of")
    assert sum(again) == 6 and max(again) <= 2, again
    assert page.locator("#scatter canvas").count() == 6


CONTRAST = """async () => {
  const script = document.querySelector("script[src$='hyperparameters.js']").src;
  const { ramp, resolved } = await import(script.replace("hyperparameters", "colour"));
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (...layers) => {  // relative luminance (WCAG 2) of what lies over each other: [colour, alpha]
    for (const [colour, alpha] of layers) { pen.globalAlpha = alpha; pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); }
    const part = (value) => value <= 10 ? value / 3294 : ((value / 255 + 0.055) / 1.055) ** 2.4;
    const [red, green, blue] = pen.getImageData(0, 0, 1, 1).data;
    return 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
  };
  const ground = [resolved("--surface"), 1], behind = light(ground) + 0.05;
  const contrast = (...layer) => {
    const own = light(ground, layer) + 0.05;
    return Math.max(own / behind, behind / own);
  };
  return {
    ramp: ramp(24).map((colour) => contrast(colour, 0.8)),
    curves: [...Array(10).keys()].map((n) => contrast(resolved(`--c${n}`), 1)),
  };
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lines_of_the_best_and_the_worst_are_seen_in_both_themes(page: Any, theme: str) -> None:
    page.emulate_media(color_scheme="light")
    tried(page, [({"a": 0.1}, 0.1), ({"a": 0.2}, 0.2)])
    look = "document.querySelector('#parallel canvas').toDataURL()"
    before = page.evaluate(look)
    page.emulate_media(color_scheme=theme)
    if theme == "dark":
        page.wait_for_function(f"(before) => {look} !== before", arg=before)  # drawn again when the system changes
    found = page.evaluate(CONTRAST)
    print({name: [round(value, 2) for value in values] for name, values in found.items()})
    assert min(found["ramp"]) >= 3 and min(found["curves"]) >= 3


def test_a_crowd_that_was_brushed_looks_the_same_whichever_way_one_came_there(page: Any) -> None:
    draw = random.Random(0)
    tried(page, [({"a": draw.random(), "b": draw.random()}, draw.random()) for n in range(1500)])
    box = page.locator("#parallel canvas").bounding_box()

    def look(*heights: int) -> str:
        page.mouse.move(box["x"] + 70, box["y"] + 60)
        page.mouse.down()
        for height in heights:
            page.mouse.move(box["x"] + 70, box["y"] + height)
            page.evaluate("new Promise(requestAnimationFrame).then(() => null)")
        page.mouse.up()
        return str(page.evaluate("document.querySelector('#parallel canvas').toDataURL()"))

    everything = look(60)
    straight = look(120)
    assert straight != everything
    assert look(300, 80, 250, 120) == straight
    assert look(310, 60) == everything
