"""Each page looks as its picture in docs/pictures shows it: a layout that breaks, or a theme that is lost, fails here.

Pictures are compared small and in grey, so that another font, another time in a table or a line more of a log is no difference.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dethpc.web import app
from tests.e2e.conftest import User
from tests.web import pictures
from tests.web.test_browser import Tab, chromium, playwright  # noqa: F401

DIFFERS = 0.06
"""Of the parts of a picture: more are another layout."""

SHARE = """async (pictures) => {
  const small = [];
  for (const data of pictures) {
    const image = new Image();
    image.src = `data:image/webp;base64,${data}`;
    await image.decode();
    const canvas = new OffscreenCanvas(64, 40), pen = canvas.getContext("2d");
    pen.imageSmoothingQuality = "high";
    pen.drawImage(image, 0, 0, 64, 40);
    small.push(pen.getImageData(0, 0, 64, 40).data);
  }
  const grey = (data, i) => 0.3 * data[i] + 0.59 * data[i + 1] + 0.11 * data[i + 2];
  let differ = 0;
  for (let i = 0; i < small[0].length; i += 4) differ += Math.abs(grey(small[0], i) - grey(small[1], i)) > 16;
  return differ / (small[0].length / 4);
}"""


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    with pictures.demo(tmp_path_factory.mktemp("pictures")) as user:
        yield user


@pytest.fixture(scope="module")
def differs(chromium: Any) -> Iterator[Any]:  # noqa: F811
    """The share of two pictures in which they differ."""
    page = chromium.new_page()

    def share(one: bytes, other: bytes) -> float:
        return float(page.evaluate(SHARE, [base64.b64encode(each).decode() for each in (one, other)]))

    yield share
    page.close()


def opened(user: User, chromium: Any, theme: str, **more: Any) -> Tab:  # noqa: F811
    size = {"width": pictures.WIDTH, "height": pictures.HEIGHT}
    return Tab(user, chromium.new_context(viewport=size, color_scheme=theme, **more))


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.everything)])
def test_each_page_looks_as_its_picture_shows_it(user: User, chromium: Any, differs: Any, theme: str) -> None:  # noqa: F811
    tab, found = opened(user, chromium, theme), {}
    for name in pictures.PAGES:
        kept = (pictures.FOLDER / f"{name}-{theme}.webp").read_bytes()
        share = differs(kept, pictures.take(tab.page, tab.root, name))
        print(f"{name}: {share:.4f}")
        if share > DIFFERS:
            found[name] = share
    tab.page.context.close()
    assert found == {}, "look at the pages; python -m tests.web.pictures takes the pictures again"
    assert tab.trouble == []


@pytest.mark.parametrize(
    "broken",
    [
        "* { all: revert !important; }",
        ".facts { display: block !important; }",
        ":root { color-scheme: dark !important; }",
    ],
)
def test_a_broken_layout_is_seen(user: User, chromium: Any, differs: Any, broken: str) -> None:  # noqa: F811
    tab = opened(user, chromium, "light", bypass_csp=True)
    text = (
        f"addEventListener('DOMContentLoaded', () => {{ const s = document.createElement('style');"
        f" s.textContent = `{broken}`; document.head.append(s); }})"
    )
    tab.page.add_init_script(text)
    kept = (pictures.FOLDER / "experiment-light.webp").read_bytes()
    share = differs(kept, pictures.take(tab.page, tab.root, "experiment"))
    print(f"{broken}: {share:.4f}")
    tab.page.context.close()
    assert share > DIFFERS


def test_rows_are_chosen_by_keyboard_and_the_list_of_keys_says_so(user: User, chromium: Any) -> None:  # noqa: F811
    tab = opened(user, chromium, "light")
    page = tab.goto("experiments")
    for key in ("j", "j", "s"):
        page.keyboard.press(key)
    chosen = page.eval_on_selector_all("tbody input:checked", "all => all.map(one => one.value)")
    assert chosen == ["3"], "the second row"
    listed = set(page.eval_on_selector_all("#keys kbd", "all => all.map(one => one.textContent)"))
    script = (Path(app.__file__).parent / "static/app.js").read_text()
    assert set(re.findall(r'event\.key === "([^"]+)"', script)) <= listed
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_url(re.compile("/sessions$"))
    page.context.close()


def test_a_page_on_paper_is_light_and_whole(user: User, chromium: Any) -> None:  # noqa: F811
    tab = opened(user, chromium, "dark")
    page = tab.goto("trials/1/logs")
    page.emulate_media(media="print")
    assert page.is_hidden(".bar") and page.is_hidden(".filters") and page.is_visible("#log .line >> nth=0")
    assert page.eval_on_selector("body", "body => getComputedStyle(body).backgroundColor") == "rgb(255, 255, 255)"
    ink = page.eval_on_selector("h1", "h1 => getComputedStyle(h1).color")
    assert max(int(part) for part in re.findall(r"\d+", ink)[:3]) < 80, "dark on white"
    assert page.eval_on_selector("#log", "log => getComputedStyle(log).maxHeight") == "none"
    page.context.close()


def test_the_docs_show_each_page_in_both_themes_and_the_pictures_are_small() -> None:
    text = (pictures.FOLDER.parent / "webui.md").read_text()
    shown = set(re.findall(r"\(pictures/([\w-]+\.webp)\)", text))
    there = {file.name for file in pictures.FOLDER.iterdir()}
    assert shown == there == {f"{name}-{theme}.webp" for name in pictures.PAGES for theme in pictures.THEMES}
    assert sum(file.stat().st_size for file in pictures.FOLDER.iterdir()) < 3_000_000
    assert isinstance(pictures.FOLDER, Path)
