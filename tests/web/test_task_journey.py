"""A command and a notebook from the pages, in a real Chromium: launched, followed, opened on an address of its own, killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import User, make_home, make_user, sleepers, take_down
from tests.waiting import LONG_ENOUGH, wait_until
from tests.web.test_browser import chromium  # noqa: F401

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

RUN_A_CELL = """
async ([api, code]) => {
  const xsrf = document.cookie.match(/_xsrf=([^;]*)/);
  const headers = xsrf ? {"X-XSRFToken": xsrf[1], "Content-Type": "application/json"} : {"Content-Type": "application/json"};
  const started = await fetch(api + "api/kernels", {method: "POST", headers, body: "{}"});
  const kernel = await started.json();
  if (!kernel.id) return "no kernel: " + started.status + " " + JSON.stringify(kernel);
  const socket = new WebSocket(location.origin.replace("http", "ws") + api + "api/kernels/" + kernel.id + "/channels");
  const request = {
    channel: "shell", parent_header: {}, metadata: {}, buffers: [],
    header: {msg_id: "m1", username: "", session: "s1", msg_type: "execute_request", version: "5.3"},
    content: {code, silent: false, store_history: false, user_expressions: {}, allow_stdin: false},
  };
  return await new Promise((resolve) => {
    socket.onopen = () => socket.send(JSON.stringify(request));
    socket.onerror = () => resolve("the socket failed");
    socket.onmessage = (event) => {
      const message = JSON.parse(event.data);
      if (message.msg_type === "stream") resolve(message.content.text);
      if (message.msg_type === "error") resolve(message.content.evalue);
    };
  });
}
"""


@pytest.fixture
def user(tmp_path: Any) -> Iterator[User]:
    user = make_user(tmp_path, DETHPC_SCHEDULER="local", DETHPC_LOCAL_SLOTS="4")
    make_home(user)
    yield user
    take_down(user)


@pytest.fixture
def owner(user: User, chromium: Any) -> Iterator[Any]:  # noqa: F811
    """A page in which the owner is logged in."""
    user.det("experiment", "list")
    context = chromium.new_context()
    context.set_default_timeout(LONG_ENOUGH * 1000)
    page = context.new_page()
    page.goto(json.loads(user.det("ui", "--json"))["browser_url"])
    page.wait_for_url("**/experiments")
    yield page
    context.close()


def test_a_command_is_launched_followed_and_killed_in_the_browser(user: User, owner: Any) -> None:
    owner.get_by_role("link", name="Tasks").first.click()
    owner.get_by_role("link", name="Launch a command").click()
    owner.fill("[name=program]", "for i in 1 2 3; do echo tick $i; sleep 1; done; exec sleep 98765")
    owner.get_by_role("button", name="Launch").click()
    owner.wait_for_url("**/logs**")
    wait_until(lambda: "tick 3" in owner.inner_text("body"))
    owner.on("dialog", lambda dialog: dialog.accept())
    owner.get_by_role("button", name="Kill").click()
    wait_until(lambda: not sleepers(user))
    wait_until(lambda: user.json("command", "list", "--all")[0]["state"] == "STATE_TERMINATED")


def test_the_log_of_a_task_is_followed_in_its_page(user: User, owner: Any) -> None:
    go = user.folder / "go"
    program = f"echo '<b>first</b>'; until [ -e {go} ]; do sleep 0.1; done; echo second; exit 3"
    task_id = user.det("command", "run", "--detach", program).strip()
    owner.goto(f"{owner.url.rpartition('/')[0]}/tasks/{task_id}/logs")
    owner.wait_for_selector("#log .text:text-is('<b>first</b>')")
    owner.evaluate("window.same = true")
    go.touch()
    owner.wait_for_selector("#log .text:text-is('second')")
    owner.wait_for_selector("[aria-label='Why it failed']")
    lines = owner.eval_on_selector_all("#log .line .text", "all => all.map(one => one.textContent)")
    assert lines.count("<b>first</b>") == lines.count("second") == 1 and lines.index("second") > lines.index(
        "<b>first</b>"
    )
    assert owner.evaluate("window.same"), "nothing was loaded anew"
    assert owner.inner_text("[aria-label='Why it failed']").startswith("exit code 3")


def test_a_notebook_opens_on_an_address_of_its_own_and_runs_a_cell(user: User, owner: Any) -> None:
    task_id = user.det("notebook", "start", "--detach").strip()
    pages = owner.url.rpartition("/")[0]
    wait_until(lambda: user.json("notebook", "describe", task_id)["state"] == "STATE_RUNNING")
    owner.goto(f"{pages}/tasks/{task_id}")
    owner.get_by_role("button", name="Open").click()
    with owner.context.expect_page() as opened:
        owner.get_by_role("link", name="Open notebook").click()
    notebook = opened.value
    notebook.wait_for_url(f"**/proxy/{task_id}/lab**")
    wait_until(lambda: "JupyterLab" in notebook.title())
    assert notebook.url.split("/")[2] != owner.url.split("/")[2]
    assert notebook.evaluate(RUN_A_CELL, [f"/proxy/{task_id}/", "print(6 * 7)"]) == "42\n"
    user.det("notebook", "kill", task_id)
