"""A page that a task serves, in a real Chromium in which the owner is logged in: it tries whatever a page can to get at their
experiments."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.conftest import User, make_home, make_user, take_down
from tests.ports import free_port
from tests.waiting import LONG_ENOUGH, wait_until
from tests.web.test_browser import chromium  # noqa: F401

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

HOSTILE = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = b'''<!doctype html><title>notebook</title><body>here<script>
async function look(url, options) {
  try {
    const response = await fetch(url, options);
    return response.type === "opaque" ? "opaque" : response.status + " " + await response.text();
  } catch (error) { return "refused"; }
}
document.cookie = "dethpc_proxy=mine; path=/";
document.cookie = "dethpc_session_x=mine; domain=localhost";
</script>'''


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Set-Cookie", "dethpc_proxy=theirs; Path=/")
        self.end_headers()
        self.wfile.write(PAGE + b"<pre>" + self.path.encode() + b" " + str(self.headers).encode() + b"</pre>")

    do_POST = do_GET


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Page).serve_forever()
"""


@contextmanager
def opened(user: User, chromium: Any) -> Iterator[tuple[Any, Any]]:  # noqa: F811
    """The owner's page of the master, and that of the task, in two tabs of one browser."""
    user.write("context/serve.py", HOSTILE)
    with free_port() as port:
        environment = {"proxy_ports": [{"proxy_port": port}]}
        experiment = user.create(entrypoint=f"python3 serve.py {port}", environment=environment)
        wait_until(lambda: user.trials(experiment))
        (trial,) = user.trials(experiment)

        def ticket() -> Any:
            return user.session().post(f"/api/v1/tasks/{trial['taskId']}/proxy-tickets", {"port": port})

        wait_until(lambda: answers(ticket))
        context = chromium.new_context()
        context.set_default_timeout(LONG_ENOUGH * 1000)
        try:
            owner = context.new_page()
            owner.goto(json.loads(user.det("ui", "--json"))["browser_url"])
            owner.wait_for_url("**/experiments")
            task = context.new_page()
            task.goto(ticket()["url"])
            wait_until(lambda: "here" in task.inner_text("body"))
            yield owner, task
        finally:
            context.close()
            user.det("experiment", "kill", str(experiment))


def answers(what: Any) -> bool:
    try:
        return bool(what())
    except Exception:  # noqa: BLE001 - the trial is starting
        return False


@pytest.fixture
def user(tmp_path: Any) -> Iterator[User]:
    user = make_user(tmp_path, DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="4")
    make_home(user)
    yield user
    take_down(user)


def test_a_page_of_a_task_gets_at_nothing_of_the_owners(user: User, chromium: Any) -> None:  # noqa: F811
    with opened(user, chromium) as (owner, task):
        master, pages = user.master()["url"], urlsplit(owner.url)
        inside = f"{pages.scheme}://{pages.netloc}"
        cookies = json.dumps({"credentials": "include"})
        for url in (f"{master}/api/v1/experiments", f"{inside}/api/v1/experiments", f"{inside}/det/experiments"):
            assert task.evaluate(f"look({url!r}, {cookies})") == "refused", url
        write = json.dumps({"method": "POST", "credentials": "include", "mode": "no-cors", "body": "{}"})
        assert task.evaluate(f"look({inside + '/api/v1/experiments/1/kill'!r}, {write})") in ("opaque", "refused")
        assert user.experiment(1)["state"] in ("STATE_ACTIVE", "STATE_RUNNING")
        for path in ("/api/v1/experiments", "/det/experiments", "/proxy/x/"):
            text = task.evaluate(f"look({path!r}, {cookies})")
            assert f"<pre>{path}" in text, "at its own origin it finds itself"
            assert "dethpc_proxy" not in text.partition("<pre>")[2], "and not even the cookie that let the browser in"
        assert "mine" not in task.evaluate("document.cookie") or "dethpc_session" not in task.evaluate(
            "document.cookie"
        )
        framed = task.evaluate(
            f"""new Promise(done => {{
                const frame = document.createElement("iframe");
                frame.onload = () => {{ try {{ done(frame.contentDocument.body.innerText) }} catch (e) {{ done("closed") }} }};
                frame.src = {inside + "/det/experiments"!r};
                document.body.append(frame);
            }})"""
        )
        assert framed in ("closed", "") or framed is None
        owner.reload()
        assert "/det/experiments" in owner.url, "and the owner is still logged in"
        task.reload()
        assert "here" in task.inner_text("body"), "nor has it locked the browser out"
