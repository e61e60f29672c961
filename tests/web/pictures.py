"""Pictures of every page in both themes: ``python -m tests.web.pictures`` takes those in docs/pictures again, of a demo.

A new page gets its line in ``PAGES``, and docs/webui.md shows it. The demo draws nothing by chance, so that two runs look alike but
for times: the test beside this compares what a page looks like with its picture there.
"""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.conftest import User, make_user, take_down

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
THEMES = ("light", "dark")
WIDTH, HEIGHT = 1280, 800


class Picture(NamedTuple):
    path: str
    ready: str = "main"  # what is there when the page is
    link: str = ""  # in the page of the path, which leads to this one


PAGES = {
    "experiments": Picture("experiments"),
    "experiment": Picture("experiments/1", "#curves canvas"),
    "trials": Picture("experiments/1/trials"),
    "hyperparameters": Picture("experiments/1/hyperparameters", "#scatter canvas"),
    "search": Picture("experiments/4/search", "svg.rungs"),
    "code": Picture("experiments/1/code?path=train.py"),
    "configuration": Picture("experiments/1/configuration"),
    "fork": Picture("experiments/1/fork", "form textarea"),
    "goodput": Picture("experiments/1/goodput"),
    "trial": Picture("trials/1", "#curves canvas"),
    "logs": Picture("trials/1/logs", "#log .line"),
    "time": Picture("trials/1/timeline"),
    "checkpoints": Picture("trials/1/checkpoints"),
    "compare": Picture("compare?trials=1,2,3", "#curves canvas"),
    "all-checkpoints": Picture("checkpoints"),
    "tasks": Picture("tasks"),
    "task": Picture("tasks", ".facts", link="tbody a.name >> nth=1"),
    "queue": Picture("queue"),
    "cluster": Picture("cluster"),
    "webhooks": Picture("webhooks"),
    "webhook": Picture("webhooks/1"),
    "access": Picture("sessions"),
    "about": Picture("about"),
}

TRAIN = """
import logging, math
import determined as det
trial = det.get_cluster_info().trial
lr, width, wave = trial.hparams["lr"], trial.hparams["width"], trial.trial_seed % 7
logging.getLogger().setLevel(logging.INFO)
with det.core.init() as core:
    for step in range(1, 41):
        loss = 0.3 * abs(math.log10(lr) + 2) + 2 / (step * width / 16) + 0.05 * math.sin(step * lr * 90)
        core.train.report_training_metrics(steps_completed=step, metrics={"loss": loss, "accuracy": 1 / (1 + loss)})
        if step % 10 == 0:
            logging.info("step %d: loss %.4f", step, loss)
            core.train.report_validation_metrics(steps_completed=step, metrics={"validation_loss": loss * 1.1})
    if lr > 0.05:
        logging.warning("the learning rate is high")
    with core.checkpoint.store_path({"steps_completed": 40}) as (path, uuid):
        (path / "weights").write_bytes(b"w" * 100_000)
    if trial.hparams.get("breaks"):
        raise ValueError("the data set is not there")
"""


@contextmanager
def demo(folder: Path) -> Iterator[User]:
    """A user with a grid of twelve trials that has ended, one that failed, one of one trial, a search with rungs, webhooks, and
    commands."""
    user = make_user(folder, DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="4")
    user.write("context/train.py", TRAIN)
    grid = {
        "lr": {"type": "categorical", "vals": [0.001, 0.003, 0.01, 0.1]},
        "width": {"type": "categorical", "vals": [16, 32, 64]},
    }
    fixed = {"lr": 0.01, "width": 32}
    single = {"name": "single", "metric": "validation_loss"}
    try:
        user.create(name="digits, a grid", hyperparameters=grid, searcher={"name": "grid", "metric": "validation_loss"})
        user.wait_state(1, "COMPLETED")
        user.create(name="broken data", hyperparameters={**fixed, "breaks": True}, searcher=single, max_restarts=0)
        user.wait_state(2, "ERROR")
        user.create(name="baseline", hyperparameters=fixed, searcher=single)
        user.wait_state(3, "COMPLETED")
        halving = {"name": "adaptive_asha", "metric": "validation_loss", "max_trials": 12, "max_concurrent_trials": 4}
        space = {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}, "width": 32}
        user.create(
            name="rungs",
            hyperparameters=space,
            searcher={**halving, "time_metric": "batches", "max_time": 40, "mode": "standard"},
            reproducibility={"experiment_seed": 7},
        )
        user.wait_state(4, "COMPLETED")
        user.det("webhook", "create", "mail", "mailto:ada@example.org", "--on", "COMPLETED", "--on", "ERROR")
        user.det(
            "webhook", "create", "channel", "https://chat.example.org/hook", "--slack", "--metric", "accuracy>=0.9"
        )
        user.det("command", "run", "--config", "description=prepare the data", "echo done")
        user.det("command", "run", "python3 -c 'import missing'", code=1)
        yield user
    finally:
        take_down(user)


def take(page: Any, root: str, name: str) -> bytes:
    """What the page looks like, as WebP."""
    page.goto(root + PAGES[name].path)
    if PAGES[name].link:
        page.click(PAGES[name].link)
    page.wait_for_selector(PAGES[name].ready)
    page.evaluate("document.fonts.ready.then(() => new Promise(requestAnimationFrame)).then(() => null)")
    shown = page.context.new_cdp_session(page).send("Page.captureScreenshot", {"format": "webp", "quality": 60})
    return base64.b64decode(shown["data"])


def main(folder: Path = FOLDER) -> None:
    from playwright.sync_api import sync_playwright

    from tests.web.test_browser import Tab

    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.webp"):
        old.unlink()
    with tempfile.TemporaryDirectory() as made, demo(Path(made)) as user, sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for theme in THEMES:
            tab = Tab(user, browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=theme))
            for name in PAGES:
                (folder / f"{name}-{theme}.webp").write_bytes(take(tab.page, tab.root, name))
        browser.close()
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{2 * len(PAGES)} pictures of {size / 1e6:.2f} MB in {folder}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
