"""What the web pages cost: on the server, in a browser, and while fifty are open.

A master serves one experiment of 100,000 trials, with 1,500 names of metrics in 1,000,000 reports (--quick: a tenth of them), from
a process of its own. Each page is asked for over one kept connection, with a login's cookie: p95 by the clock. Then a real Chromium
without a graphics card opens the pages, draws 1,000 curves of 1,000 points and moves the pointer over them, and brushes the
parallel coordinates of 10,000 trials: a frame is what lies between two calls of ``requestAnimationFrame``. With --peers,
optuna-dashboard shows the same trials, and MLflow's comparison a hundred of them. A tab is then told of an hour of changes, one a
second, as fast as it takes them. Last, fifty connections listen for changes while the experiment is renamed each second, and ask
for the page and its curves again when they hear of one, as browsers do; what renaming costs while no page is open is not counted.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import random
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks import big_home
from benchmarks.dashboards import INSTALL, READY, mlflow_comparison, optuna_dashboard
from benchmarks.frame import Figure, Row, median, ratio, run
from benchmarks.size import Master

LIMIT = 100  # ms at p95, of a page
USABLE = 1000  # ms in a browser
FRAME = 1000 / 60
BROWSERS = 50
CURVES = POINTS = 1000
DOTS = 10_000
COMPARED = 100

TABS = ("trials", "hyperparameters", "search", "checkpoints", "configuration", "goodput")


class Visitor:
    """A browser's requests, on a connection that is kept."""

    def __init__(self, master: Master, before: Visitor | None = None) -> None:
        where = urlsplit(master.session.url)
        self.root = f"{master.session.url}/det/"
        self.connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=120)
        self.headers: dict[str, str] = before.headers if before is not None else {}
        if before is None:
            made = master.session.post("/api/v1/auth/code")
            named = {"Host": f"{made['host']}:{where.port}"}
            self.connection.request("GET", f"/det/enter?code={made['code']}", headers=named)
            answer = self.connection.getresponse()
            self.headers = {**named, "Cookie": str(answer.getheader("set-cookie")).partition(";")[0]}
            answer.read()

    def get(self, path: str, **headers: str) -> bytes:
        try:
            answer = self._asked(path, headers)
        except http.client.RemoteDisconnected:  # nothing was asked on it for some seconds
            answer = self._asked(path, headers)
        body = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status} {body[:300]!r}")
        return body

    def _asked(self, path: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        self.connection.request("GET", f"/det/{path}", headers={**self.headers, **headers})
        return self.connection.getresponse()


def paths(master: Master) -> list[str]:
    number = master.session.get("/api/v1/experiments?limit=1")["experiments"][0]["id"]
    trial = master.session.get(f"/api/v1/experiments/{number}/trials?limit=1")["trials"][0]["id"]
    at = f"experiments/{number}"
    return [
        "experiments",
        "queue",
        "cluster",
        "sessions",
        "about",
        at,
        *(f"{at}/{tab}" for tab in TABS),
        f"{at}/trials?sort=metric-down&offset=50000",
        f"{at}/series.json?group=validation&name=loss&most=200",
        f"{at}/points.json",
        f"trials/{trial}",
        f"trials/{trial}/logs",
        f"trials/{trial}/checkpoints",
        f"trials/{trial}/series.json",
    ]


def on_the_server(master: Master, rounds: int) -> Iterator[Row]:
    visitor = Visitor(master)
    for path in paths(master):
        spent, busy, size = [], master.busy, 0
        for n in range(rounds + 1):
            begin = time.perf_counter()
            size = len(visitor.get(path))
            if n:
                spent.append((time.perf_counter() - begin) * 1000)
            if sum(spent) > 5000:
                break
        cpu = (master.busy - busy) * 1000 / (len(spent) + 1)
        note = f"p50 {statistics.median(spent):.1f} ms, processor time {cpu:.1f} ms, {size:,} bytes"
        yield Row(f"p95 of /det/{path}", "ms", Figure(_p95(spent)), limit=LIMIT, note=note)


def _p95(values: list[float]) -> float:
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


# --- in a browser


def in_a_browser(master: Master, asked: argparse.Namespace) -> Iterator[Row]:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        return
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(120_000)
        made = master.session.post("/api/v1/auth/code")
        where = urlsplit(master.session.url)
        root = f"{where.scheme}://{made['host']}:{where.port}/det/"
        page.goto(f"{root}enter?code={made['code']}")
        page.wait_for_url(f"{root}experiments")
        number = next(path for path in paths(master) if path.startswith("experiments/"))
        for path, ready in (
            (number, "#curves canvas"),
            (f"{number}/trials", "tbody tr"),
            ("trials/1", "#curves canvas"),
        ):
            yield Row(
                f"usable in a browser: /det/{path}",
                "ms",
                median([_opened(page, root + path, ready) for _ in range(5)]),
                limit=USABLE,
            )
        yield from _curves(page, root + number)
        yield from _parallel(page, f"{root}{number}/hyperparameters", asked.peers)
        # A process of its own: what was drawn before has left its marks in this one.
        other = browser.new_context(storage_state=page.context.storage_state(), viewport=page.viewport_size)
        page.context.close()
        yield from _an_hour(browser, other.new_page(), root + number, 360 if asked.quick else 3600)
        browser.close()


def _opened(page: Any, address: str, ready: str) -> float:
    begin = time.perf_counter()
    page.goto(address)
    page.wait_for_selector(ready)
    return (time.perf_counter() - begin) * 1000


_FRAMES = """async ([selector, many]) => {
  const over = document.querySelector(selector), box = over.getBoundingClientRect(), gaps = [], work = [];
  const moved = (n) => {
    const clientX = box.left + box.width * (0.1 + 0.8 * n / many), clientY = box.top + box.height * (0.3 + 0.4 * Math.sin(n / 9));
    const at = { bubbles: true, clientX, clientY };
    const begin = performance.now();
    over.dispatchEvent(new MouseEvent("mousemove", at));
    work.push(performance.now() - begin);
  };
  over.dispatchEvent(new MouseEvent("mouseenter", { clientX: box.left + 5, clientY: box.top + 5 }));
  let last = await new Promise(requestAnimationFrame);
  for (let n = 0; n < many; n++) {
    moved(n);
    const now = await new Promise(requestAnimationFrame);
    gaps.push(now - last);
    last = now;
  }
  return [gaps, work];
}"""

_DRAW = """async () => {
  const spent = [];
  for (let n = 0; n < 3; n++) {
    const begin = await new Promise(requestAnimationFrame);
    document.dispatchEvent(new Event("dethpc:theme"));
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    spent.push(performance.now() - begin);
  }
  return spent;
}"""

_BRUSH = """async (many) => {
  const board = document.querySelector("#parallel canvas"), box = board.getBoundingClientRect(), gaps = [];
  const clientX = box.left + 70, about = { bubbles: true, pointerId: 1, clientX };
  const at = (kind, y) => new PointerEvent(kind, { ...about, clientY: box.top + y });
  board.setPointerCapture = () => {};
  board.dispatchEvent(at("pointerdown", 60));
  for (let n = 0; n < many; n++) {
    const begin = await new Promise(requestAnimationFrame);
    board.dispatchEvent(at("pointermove", 80 + 6 * n));
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    gaps.push(performance.now() - begin);
  }
  board.dispatchEvent(at("pointerup", 120));
  return gaps;
}"""


def _curves(page: Any, address: str) -> Iterator[Row]:
    draw = random.Random(0)
    steps = list(range(POINTS))
    curves = [
        {
            "id": n,
            "hparams": "",
            "steps": steps,
            "times": steps,
            "epochs": steps,
            "values": [draw.random() * 0.1 + (n + 1) / (step + 50) for step in steps],
        }
        for n in range(CURVES)
    ]
    page.route("**/series.json*", lambda route: route.fulfill(json={"trials": curves}))
    page.goto(address)
    page.wait_for_selector("#curves canvas")
    yield Row(f"{CURVES:,} curves of {POINTS:,} points drawn", "ms", median(page.evaluate(_DRAW)), limit=USABLE)
    gaps, work = page.evaluate(_FRAMES, ["#curves .u-over", 60])
    note = f"p50 {statistics.median(gaps):.1f} ms; {_p95(work):.1f} ms of a script at p95; without a graphics card"
    yield Row(
        "the pointer moves over them: p95 of a frame", "ms", Figure(_p95(gaps)), limit=round(FRAME * 1.1, 1), note=note
    )
    page.unroute("**/series.json*")


def _parallel(page: Any, address: str, python: str) -> Iterator[Row]:
    draw = random.Random(0)
    dots: list[dict[str, Any]] = [
        {"id": n, "hparams": {f"h{k}": draw.random() for k in range(8)}, "metrics": {"loss": draw.random()}}
        for n in range(DOTS)
    ]
    with mlflow_comparison(python, dots[:COMPARED]) as other:
        yield _beside(page, address, dots[:COMPARED], "MLflow, runs compared", other)
    with optuna_dashboard(python, dots) as other:
        yield _beside(page, address, dots, "optuna-dashboard, its first plot", other)
    page.goto(address)
    page.wait_for_selector("#parallel canvas")
    gaps = page.evaluate(_BRUSH, 20)
    yield Row(f"parallel coordinates of {DOTS:,} trials: p95 of a brush's step", "ms", Figure(_p95(gaps)), limit=100)
    page.unroute("**/points.json*")


def _beside(page: Any, address: str, dots: list[dict[str, Any]], peer: str, other: str) -> Row:
    """The page of hyperparameters, which shows ``dots`` from now on, and the one at ``other`` where there is one."""
    columns = {"trials": [dot["id"] for dot in dots], "hparams": [dot["hparams"] for dot in dots]}
    body = json.dumps({"metric": "loss", **columns, "values": [dot["metrics"]["loss"] for dot in dots]})
    page.unroute("**/points.json*")
    page.route("**/points.json*", lambda route: route.fulfill(body=body, content_type="application/json"))
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(3):
        spent[0].append(_opened(page, address, "#scatter canvas"))
        if other:
            page.goto("about:blank")  # or nothing is loaded again where only what follows # differs
            spent[1].append(_opened(page, other, READY))
    name = f"usable in a browser: hyperparameters of {len(dots):,} trials"
    if other:
        return Row(name, "ms", median(spent[0]), {peer: median(spent[1])}, limit=USABLE, ratio=ratio(*spent))
    return Row(name, "ms", median(spent[0]), limit=USABLE, note=f"{peer.partition(',')[0]} {INSTALL}")


_HOUR = """async (many) => {
  const main = document.getElementById("main"), ask = window.fetch;
  let n = 0;
  document.addEventListener("htmx:beforeSwap", window.change = (event) => {
    event.detail.serverResponse = event.detail.serverResponse.replace(/(<h1[^>]*>)[^<]*/, `$1change ${n}`);
  });
  window.fetch = async (...asked) => {
    const answer = await (await ask(...asked)).json();
    for (const trial of answer.trials) trial.values = trial.values.map((value) => value + Math.random());
    return new Response(JSON.stringify(answer));
  };
  for (n = 1; n <= many; n++) {
    const made = new Promise((resolve) => document.addEventListener("htmx:afterSwap", resolve, { once: true }));
    main.dispatchEvent(new Event("changed"));
    document.dispatchEvent(new Event("dethpc:changed"));
    await made;
  }
  document.removeEventListener("htmx:beforeSwap", window.change);
  window.fetch = ask;
  return document.querySelector("h1").textContent.trim();
}"""


def _an_hour(browser: Any, page: Any, address: str, updates: int) -> Iterator[Row]:
    page.goto(address)
    page.wait_for_selector("#curves canvas")
    before = _private(browser)
    for _ in range(10):
        if page.evaluate(_HOUR, updates // 10) != f"change {updates // 10}":
            raise SystemExit("the page does not change when it is told to")
    page.request_gc()
    note = f"{before:.0f} MB before; as fast as the page takes them, another page and other curves each time"
    yield Row(f"memory of a tab after {updates:,} live updates", "MB", Figure(_private(browser)), limit=300, note=note)


def _private(browser: Any) -> float:
    """Megabytes that the tab's own process shares with no other."""
    found = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    sizes = []
    for process in found:
        if process["type"] == "renderer":
            text = Path(f"/proc/{process['id']}/smaps_rollup").read_text()
            sizes.append(sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_")) / 1000)
    return max(sizes)


# --- fifty of them


def fifty(master: Master, seconds: float) -> Iterator[Row]:
    first = Visitor(master)
    number = master.session.get("/api/v1/experiments?limit=1")["experiments"][0]["id"]
    over, heard, page = threading.Event(), [0], f"experiments/{number}"

    def listen() -> None:
        stream, reader = Visitor(master, first), Visitor(master, first)
        stream.connection.request("GET", f"/det/events?of=experiment-{number}", headers=first.headers)
        answer = stream.connection.getresponse()
        while (line := answer.readline()) and not over.is_set():  # the master ends it, too
            if line == b"event: changed\n":
                for path in (page, f"{page}/series.json?group=validation&name=loss"):
                    reader.get(path, **{"HX-Request": "true"})
                heard[0] += 1

    def changes(seconds: float) -> float:
        """The share of a processor that the master takes while the experiment is renamed each second."""
        begin, busy = time.perf_counter(), master.busy
        while time.perf_counter() - begin < seconds:
            master.session.patch(f"/api/v1/experiments/{number}", {"name": f"name {time.time()}"})
            time.sleep(1)
        return 100 * (master.busy - busy) / (time.perf_counter() - begin)

    first.get(page)
    alone = changes(seconds / 2)  # what renaming costs by itself, in time and memory
    before = master.resident
    threads = [threading.Thread(target=listen, daemon=True) for _ in range(BROWSERS)]
    for thread in threads:
        thread.start()
    time.sleep(3)
    quiet = _share(master, seconds / 2)
    changing = changes(seconds)
    over.set()
    yield Row(f"{BROWSERS} open pages, nothing changes: share of a processor", "%", Figure(quiet), limit=5)
    note = (
        f"{heard[0]} times a page showed something new in {seconds:.0f} s; renaming alone, not counted: {alone:.1f} %"
    )
    yield Row(f"{BROWSERS} open pages, a change each second", "%", Figure(changing - alone), limit=5, note=note)
    yield Row(f"memory for {BROWSERS} open pages", "MB", Figure(master.resident - before))


def _share(master: Master, seconds: float) -> float:
    begin, busy = time.perf_counter(), master.busy
    time.sleep(seconds)
    return 100 * (master.busy - busy) / (time.perf_counter() - begin)


def rows(asked: argparse.Namespace) -> Iterator[Row]:
    home = big_home.of_one_experiment(10 if asked.quick else 1)
    Master(home).end()  # the first start of a home writes its change logs
    master = Master(home)
    try:
        if asked.only in ("", "server"):
            yield from on_the_server(master, 8 if asked.quick else 30)
        if asked.only in ("", "browser"):
            yield from in_a_browser(master, asked)
        if asked.only in ("", "fifty"):
            yield from fifty(master, 20 if asked.quick else 80)
    finally:
        master.end()


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", choices=("", "server", "browser", "fifty"), help="one part")
    parser.add_argument(
        "--peers", metavar="PYTHON", default=sys.executable, help="a Python with optuna-dashboard and mlflow"
    )


if __name__ == "__main__":
    run(__doc__, rows, options)
