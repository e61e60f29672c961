"""The pages in a real Chromium, before a live master with real experiments."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import User, make_user, take_down
from tests.waiting import LONG_ENOUGH, wait_until

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

TRAIN = """
import pathlib, time
import determined as det
info = det.get_cluster_info()
lr, go = info.trial.hparams["lr"], pathlib.Path(info.trial.hparams["go"])
with det.core.init() as core:
    for step in range(1, 41):
        core.train.report_training_metrics(steps_completed=step, metrics={"loss": lr + 1 / step})
        if step == 20:
            while not go.exists() and not core.preempt.should_preempt():
                time.sleep(0.05)
    core.train.report_validation_metrics(steps_completed=40, metrics={"validation_loss": lr})
    with core.checkpoint.store_path({"steps_completed": 40}) as (path, uuid):
        (path / "weights").write_bytes(b"w" * 1000)
    print("<b>done</b>")
"""
PAGES = (
    [
        "experiments",
        "compare?trials=1,2",
        "compare?experiments=1,2",
        "queue",
        "cluster",
        "sessions",
        "doctor",
        "about",
        "experiments/1",
    ]
    + [
        f"experiments/1/{tab}"
        for tab in ("trials", "hyperparameters", "search", "checkpoints", "code", "configuration", "goodput")
    ]
    + [
        "experiments/1/fork",
        "experiments/1/continue",
        "trials/1",
        "trials/1/logs",
        "trials/1/checkpoints",
        "trials/1/timeline",
        "trials/1/profiler",
        "checkpoints",
        "trials/1/continue",
    ]
)


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """Experiment 1 has ended; experiment 2 waits in its middle until the file ``go2`` is there."""
    user = make_user(tmp_path_factory.mktemp("browser"), DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="4")
    user.write("context/train.py", TRAIN)
    for number, name in ((1, "<i>first</i>"), (2, "second")):
        search = {"name": "grid", "metric": "validation_loss"}
        lr = {"type": "categorical", "vals": [0.1, 0.2, 0.3]}
        hparams = {"lr": lr, "go": str(user.folder / f"go{number}")}
        (user.folder / "go1").touch()
        assert user.create(name=name, hyperparameters=hparams, searcher=search) == number
    user.wait_state(1, "COMPLETED")
    yield user
    (user.folder / "go2").touch()  # whatever was left out: nothing waits on
    take_down(user)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if (path := shutil.which("chromium")) is None:
        pytest.skip("no Chromium on this machine (Debian: apt install chromium)")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Tab:
    """A browser tab that is logged in. What it complains of, and what it loads from elsewhere, is kept."""

    def __init__(self, user: User, context: Any) -> None:
        link = json.loads(user.det("ui", "--json"))["browser_url"]
        self.root = link.partition("/enter")[0] + "/"
        self.page = context.new_page()
        self.page.set_default_timeout(LONG_ENOUGH * 1000)
        self.trouble: list[str] = []
        self.page.on("console", lambda m: self.trouble.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("request", self._requested)
        self.page.goto(link)
        self.page.wait_for_url(self.root + "experiments")  # where the link's own page goes on by itself

    def _requested(self, request: Any) -> None:
        if not request.url.startswith((self.root, "data:")):
            self.trouble.append(f"asks for {request.url}")

    def goto(self, path: str) -> Any:
        self.page.goto(self.root + path)
        return self.page


@pytest.fixture
def tab(user: User, chromium: Any) -> Iterator[Tab]:
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    opened = Tab(user, context)
    yield opened
    context.close()
    assert opened.trouble == []


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.everything)])
def test_every_page_is_readable_for_everybody(user: User, chromium: Any, theme: str) -> None:
    """axe finds nothing: contrast, labels, roles, order of headings."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    context = chromium.new_context(color_scheme=theme, bypass_csp=True)
    tab, found = Tab(user, context), {}
    for path in PAGES:
        page = tab.goto(path)
        result = axe.Axe().run(page)
        if result.violations_count:
            found[path] = [f"{v['id']}: {v['nodes'][0]['html'][:120]}" for v in result.response["violations"]]
    context.close()
    assert found == {}


def test_curves_are_drawn_and_parallel_coordinates_too(tab: Tab) -> None:
    tab.goto("experiments/1").wait_for_selector("#curves canvas")
    tab.goto("trials/1").wait_for_selector("#curves canvas")
    tab.goto("experiments/1/hyperparameters").wait_for_selector("#parallel canvas")


def test_a_page_changes_while_one_looks_and_actions_ask_first(user: User, tab: Tab) -> None:
    page = tab.goto("experiments/2")
    page.wait_for_selector(".head .state.running")
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.click("text=Kill")
    assert page.locator(".head .state.running").count() == 1, "asked, and not meant"
    (user.folder / "go2").touch()
    page.wait_for_selector(".head .state.completed")  # nobody loaded it again


def rename(user: User, name: str) -> None:
    """A commit that concerns experiment 1."""
    user.session().patch("/api/v1/experiments/1", {"name": name})


def test_what_a_person_opened_or_chose_stays_when_the_page_changes(user: User, tab: Tab) -> None:
    page = tab.goto("experiments/1")
    page.wait_for_selector("#curves canvas")
    page.keyboard.press("j")
    page.wait_for_selector("tr.here")
    page.check("[data-log]")
    rename(user, "<i>renamed</i>")
    page.wait_for_selector("h1:text('renamed')")
    assert page.is_visible("[data-png]") and page.is_checked("[data-log]")
    assert page.locator("tr.here").count() == 1
    page = tab.goto("experiments/1/configuration")
    page.click("summary")
    rename(user, "<i>first</i>")
    page.wait_for_selector("h1:text('first')")
    assert page.locator("details[open]").count() == 1


def test_what_was_typed_and_not_saved_is_not_lost(user: User, tab: Tab) -> None:
    page = tab.goto("experiments/1")
    other = page.context.new_page()
    other.goto(page.url)
    page.fill("[name=notes]", "a long thought")
    page.click("h1")  # no field has the focus any more
    rename(user, "<i>other</i>")
    other.wait_for_selector("h1:text('other')")
    other.wait_for_timeout(500)
    assert page.input_value("[name=notes]") == "a long thought"
    page.click("text=Save")
    assert page.input_value("[name=notes]") == "a long thought"
    rename(user, "<i>first</i>")


def test_a_page_that_waits_for_who_has_chosen_rows_says_that_it_is_behind(user: User, tab: Tab) -> None:
    page = tab.goto("experiments")
    box = page.locator("tbody input[type=checkbox]").first
    box.check()
    assert not page.is_visible("#behind")
    place = box.bounding_box()
    rename(user, "<i>other</i>")
    page.wait_for_selector("#behind")
    assert box.bounding_box() == place, "the next row is where it was"
    box.uncheck()
    page.click("h1")  # no field has the focus any more
    page.wait_for_selector("a.name:text('other')")
    assert not page.is_visible("#behind")
    rename(user, "<i>first</i>")


def test_what_is_typed_while_the_page_is_on_its_way_is_not_lost(user: User, tab: Tab) -> None:
    page, held = tab.goto("experiments/1"), list[Any]()
    # The first request alone: another change may ask once more, and nobody would let that one go.
    page.route("**/experiments/1", lambda route: route.continue_() if held else held.append(route))
    rename(user, "<i>other</i>")
    wait_until(lambda: held or page.wait_for_timeout(50))
    was = page.input_value("[name=notes]")
    page.fill("[name=notes]", "another thought")
    page.evaluate("() => { window.come = new Promise((go) => document.addEventListener('htmx:afterOnLoad', go)); }")
    held[0].continue_()
    page.evaluate("come.then(() => null)")
    assert page.input_value("[name=notes]") == "another thought"
    page.unroute("**/experiments/1")
    page.fill("[name=notes]", was)
    page.click("h1")
    page.wait_for_selector("h1:text('other')")  # nobody is in the middle of anything any more
    rename(user, "<i>first</i>")


def test_a_page_is_never_in_the_other_theme_than_was_chosen(tab: Tab) -> None:
    page = tab.goto("experiments")
    page.keyboard.press("t")
    chosen = page.evaluate("document.documentElement.dataset.theme")
    page.add_init_script(
        "new MutationObserver((_, watching) => { if (document.body) {"
        "  window.first = document.documentElement.dataset.theme; watching.disconnect();"
        "} }).observe(document, { childList: true, subtree: true });"
    )
    page.reload()
    assert page.evaluate("first") == chosen, "before anything can be painted"


def test_a_tab_that_nobody_sees_holds_no_connection(user: User, tab: Tab) -> None:
    """A browser opens six to a host. The seventh tab would not load."""
    tab.page.add_init_script(
        "window.opened = []; const Real = EventSource;"
        "window.EventSource = class extends Real { constructor(url) { super(url); opened.push(this); } };"
        "Object.defineProperty(document, 'hidden', { get: () => Boolean(window.unseen) });"
    )
    page = tab.goto("experiments/1")
    page.wait_for_function("() => opened.length === 1 && opened[0].readyState === 1")
    page.evaluate("unseen = true; document.dispatchEvent(new Event('visibilitychange'))")
    assert page.evaluate("opened.every((each) => each.readyState === 2)")
    rename(user, "<i>unseen</i>")
    page.evaluate("unseen = false; document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_selector("h1:text('unseen')")  # what was committed meanwhile
    rename(user, "<i>first</i>")


def test_a_page_says_that_the_login_has_ended(user: User, chromium: Any) -> None:
    context = chromium.new_context()
    tab = Tab(user, context)
    page = tab.goto("experiments/1")
    other = context.new_page()  # the browser alone resolves the name of the pages
    other.goto(tab.root)
    other.evaluate("address => fetch(address, {method: 'POST'}).then(answer => answer.text())", tab.root + "logout")
    other.close()
    wait_until(lambda: rename(user, "<i>first</i>") or page.is_visible("#link a"))
    page.click("#link a")
    page.wait_for_url(re.compile(r"/login\?next="))
    context.close()


def test_a_link_on_another_site_leads_in(user: User, chromium: Any) -> None:
    """Browsers send no strict cookie with it, though the person is logged in."""
    context = chromium.new_context()
    tab = Tab(user, context)
    link = f"<a href='{tab.root}experiments/1?said=forged'>look</a>"
    context.route("http://elsewhere.example/", lambda route: route.fulfill(body=link, content_type="text/html"))
    page = tab.page
    page.goto("http://elsewhere.example/")
    page.click("text=look")
    page.wait_for_url(tab.root + "experiments/1")
    page.wait_for_selector("h1:text('first')")
    context.clear_cookies()
    page.goto("http://elsewhere.example/")
    page.click("text=look")
    page.wait_for_url(re.compile(r"/login\?next="))
    context.close()


def test_the_keyboard_reaches_everything(tab: Tab) -> None:
    page = tab.goto("experiments")
    page.keyboard.press("?")
    page.wait_for_selector("#keys[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("#keys:not([open])", state="attached")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/experiments/\d+$"))
    page.keyboard.press("e")
    page.wait_for_function("() => document.activeElement.name === 'notes'")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.wait_for_url(re.compile(r"/queue$"))
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") in ("dark", "light")


def test_keys_reach_the_page_as_soon_as_the_dialog_of_keys_is_closed(tab: Tab) -> None:
    """It keeps the focus until the next frame."""
    page = tab.goto("experiments")
    page.evaluate(
        """() => {
          const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
          press("?");
          document.getElementById("keys").close();
          press("j");
          press("Enter");
        }"""
    )
    page.wait_for_url(re.compile(r"/experiments/\d+$"))


def test_chosen_rows_are_compared_by_keyboard(tab: Tab) -> None:
    page = tab.goto("experiments/1/trials")
    for key in ("j", "s", "j", "s", "m"):
        page.keyboard.press(key)
    page.wait_for_url(re.compile(r"/compare\?trials=\d+,\d+$"))
    page.wait_for_selector("#curves canvas")
    assert page.locator("tr.differs").count() == 1
    page.keyboard.press("?")
    page.wait_for_selector("#keys[open]")


def test_the_keyboard_goes_on_from_what_was_chosen_by_mouse(tab: Tab) -> None:
    page = tab.goto("experiments/1/trials")
    page.check("tbody tr >> nth=1 >> input")
    page.keyboard.press("j")
    assert page.evaluate("[...document.querySelectorAll('tr[data-row]')].findIndex(r => r.matches('.here'))") == 2
    page.keyboard.press("s")
    assert page.locator("tbody input:checked").count() == 2
    page.keyboard.press("m")
    page.wait_for_url(re.compile(r"/compare\?trials=\d+,\d+$"))
    page = tab.goto("experiments/1/trials")
    second = page.inner_text("tbody tr >> nth=1 >> a")
    page.check("tbody tr >> nth=1 >> input")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(rf"/trials/{second}$"))
    page = tab.goto("experiments")
    page.check("[name=state] >> nth=2")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"state=COMPLETED"))


def test_pictures_of_hyperparameters_change_while_one_looks(user: User, tab: Tab) -> None:
    page = tab.goto("experiments/1/hyperparameters")
    page.wait_for_selector("#scatter canvas")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "points.json" in request.url else None)
    rename(user, "<i>other</i>")
    page.wait_for_selector("h1:text('other')")
    wait_until(lambda: asked or page.wait_for_timeout(50))
    assert page.locator("#parallel canvas").count() == 1
    rename(user, "<i>first</i>")


def test_a_checkpoint_is_downloaded_and_verified(user: User, tab: Tab) -> None:
    page = tab.goto("trials/1/checkpoints")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Verify")
    uuid = page.inner_text("h1")
    with page.expect_download() as download:
        page.keyboard.press("d")
    with tarfile.open(download.value.path()) as archive:
        assert {name for name in archive.getnames() if "weights" in name}
    page.keyboard.press("v")
    page.wait_for_selector(".said:text('are what was saved')")
    (found,) = user.home.glob(f"checkpoints/{uuid}/**/weights")
    found.write_bytes(b"x" * 1000)
    page.keyboard.press("v")
    page.wait_for_selector(".said:text('cannot be read as it was saved')")
    found.write_bytes(b"w" * 1000)
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.keyboard.press("D")
    page.wait_for_selector("text=Verify")
    assert page.locator(".state.completed").count() == 1, "asked, and not meant"


def test_a_configuration_is_checked_while_one_types_and_forked(user: User, tab: Tab) -> None:
    page = tab.goto("experiments/1")
    page.keyboard.press("f")
    page.wait_for_url(re.compile(r"/experiments/1/fork$"))
    text = page.input_value("[data-config]")
    page.fill("[data-config]", text.replace("max_restarts", "max_restart"))
    page.wait_for_selector("#look .problems li")
    page.click("[data-line]")
    chosen = "(t => t.value.slice(t.selectionStart, t.selectionEnd))(document.activeElement)"
    assert page.evaluate(chosen) == "max_restart: 0", "a mistake leads to its line"
    page.fill("[data-config]", text.replace("0.3", "0.4"))
    page.wait_for_selector("#look :text('What it would do')")
    page.check("[name=paused]")
    page.focus("[data-config]")
    page.keyboard.press("Control+Enter")
    page.wait_for_url(re.compile(r"/experiments/3$"))
    assert user.experiment(3)["forkedFrom"] == 1 and user.experiment(3)["state"] == "STATE_PAUSED"


def test_what_users_write_is_text(user: User, tab: Tab) -> None:
    page = tab.goto("experiments")
    assert page.inner_text("#experiment-1 a >> nth=1") == "<i>first</i>"
    page = tab.goto("trials/1/logs")
    wait_until(lambda: "<b>done</b>" in page.inner_text(".log") or bool(page.reload()) and False)


def test_pages_are_readable_without_a_script(user: User, chromium: Any) -> None:
    context = chromium.new_context(java_script_enabled=False)
    tab = Tab(user, context)
    for path in PAGES:
        assert len(tab.goto(path).inner_text("main")) > 20, path
    context.close()


def test_a_phone_scrolls_no_page_sideways(user: User, chromium: Any) -> None:
    context = chromium.new_context(viewport={"width": 390, "height": 800})
    tab = Tab(user, context)
    for path in PAGES:
        wide = tab.goto(path).evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, f"{path} is {wide} pixels wide"
    context.close()


def test_the_first_page_is_small(tab: Tab) -> None:
    """What it loads of scripts, as it is; compressed it is a third of that."""
    page = tab.goto("experiments/1")
    sizes = page.evaluate(
        "Promise.all([...document.scripts].filter(s => s.src)"
        ".map(s => fetch(s.src).then(r => r.arrayBuffer()).then(b => b.byteLength)))"
    )
    assert 0 < sum(sizes) < 350_000


def test_screens_are_whole_files(user: User) -> None:
    assert (Path(__file__).parents[2] / "dethpc/web/static/vendor/LICENCES.txt").stat().st_size > 1000
