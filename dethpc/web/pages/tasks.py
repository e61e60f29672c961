"""Launched tasks (commands, notebooks, shells, TensorBoards and generic tasks): their list, and the page of one."""

from __future__ import annotations

from dethpc.client.nouns import jobs, tasks
from dethpc.client.session import Json
from dethpc.errors import Refused
from dethpc.web import show
from dethpc.web.asked import Answer, Goto, Page, PageRequest

PAGE = 100

KINDS = {
    "command": "TASK_TYPE_COMMAND",
    "notebook": "TASK_TYPE_NOTEBOOK",
    "shell": "TASK_TYPE_SHELL",
    "tensorboard": "TASK_TYPE_TENSORBOARD",
    "generic": "TASK_TYPE_GENERIC",
}
LIVE = {"live": True, "ended": False}
TABS = ("logs", "configuration")

OPEN = "open"
"""The action that shows a link into what a task serves: whoever has it runs code."""

SERVING = ("notebook", "tensorboard")
"""Kinds with pages of their own."""

_STATES = {"STATE_TERMINATING": "STATE_STOPPING", "STATE_WAITING": "STATE_PAUSED"}
"""Those whose names say too little."""


def listing(request: PageRequest) -> Answer:
    """The newest first."""
    offset = request.count("offset", 0, 10**8)
    kinds = [kind for kind in KINDS if kind in request.every("kind")]
    live = request.query.get("show", "")
    rows, total = tasks.launched(
        request.session, types=[KINDS[kind] for kind in kinds], live=LIVE.get(live), offset=offset, limit=PAGE
    )
    shown = {
        "tasks": [_standing(row) for row in rows],
        "total": total,
        "offset": offset,
        "page": PAGE,
        "kinds": KINDS,
        "chosen": kinds,
        "live_choices": tuple(LIVE),
        "shown": live if live in LIVE else "",
    }
    return Page("tasks.html", shown, live="tasks")


def overview(request: PageRequest) -> Answer:
    shown = about(request, "overview")
    shown["allocations"] = tasks.task(request.session, shown["task"]["id"])["allocations"]
    return Page("task/overview.html", shown, live="tasks")


def configuration(request: PageRequest) -> Answer:
    return Page("task/configuration.html", about(request, "configuration"), live="tasks")


def about(request: PageRequest, tab: str) -> Json:
    answer = tasks.launched_task(request.session, request.parts["task"])
    task = _standing(answer["task"])
    return {
        "task": task,
        "config": answer["config"],
        "tab": tab,
        "tabs": TABS,
        "ended": task["state"] == "STATE_TERMINATED",
        "serves": task["kind"] in SERVING and task["state"] == "STATE_RUNNING",
    }


def published(request: PageRequest) -> Answer:
    """Where Determined's client sends a browser to open what it has started."""
    return Goto(f"tasks/{request.parts['task']}")


def id_of(request: PageRequest) -> str:
    return str(tasks.launched_task(request.session, request.parts["task"])["task"]["id"])


def act(request: PageRequest) -> Answer:
    """Kill, open what it serves, or its priority in the pool's queue."""
    task = tasks.launched_task(request.session, request.parts["task"])["task"]
    action = request.form.get("action", "")
    if action == "kill":
        _kill(request, task)
    elif action == OPEN:
        ticket = tasks.ticket(request.session, task["id"])
        return Page("task/open.html", {"task": _standing(task), "url": ticket["url"]})
    elif action == "priority":
        jobs.update(request.session, [{"jobId": task["jobId"], "priority": _priority(request)}])
    else:
        raise Refused(f"there is no action {action!r}; there are kill, open and priority")
    return Goto(request.form.get("back") or f"tasks/{task['id']}")


def _kill(request: PageRequest, task: Json) -> None:
    kind = _kind(task)
    if kind == "generic":
        tasks.kill_generic(request.session, task["id"])
    else:
        tasks.kill(request.session, f"{kind}s", task["id"])


def _priority(request: PageRequest) -> int:
    text = request.form.get("priority", "")
    if not text.isdecimal() or not 1 <= int(text[:12]) <= 99:
        raise Refused(f"{text!r} is not a priority, a whole number from 1 to 99")
    return int(text)


def _kind(task: Json) -> str:
    return str(task["taskType"]).removeprefix("TASK_TYPE_").lower()


def _standing(task: Json) -> Json:
    """With its kind, and its state as pages show it: how it ended, once it has."""
    state = task["state"]
    shown = str(task["taskState"] if state == "STATE_TERMINATED" else _STATES.get(state, state))
    first_end = min(filter(None, (task.get("endsAt"), task.get("idleEndsAt"))), default=None)
    return {
        **task,
        "kind": _kind(task),
        "firstEnd": first_end,
        "shownState": shown,
        "failed": show.plain_state(shown) == "ERROR",
    }
