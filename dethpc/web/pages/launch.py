"""Forms that launch a command, or a TensorBoard of an experiment or of trials."""

from __future__ import annotations

from typing import Any

from dethpc.client.nouns import cluster, roles, tasks, workspaces
from dethpc.client.session import Json, Session
from dethpc.errors import ConfigError, DethpcError, MasterUnreachable, Problem, Refused, Unauthorized
from dethpc.web.asked import Answer, Goto, Page, PageRequest

LAUNCH = "launch"


def command(request: PageRequest) -> Answer:
    """As ``det command run --detach`` without files and without the environment of a shell."""
    problems: list[Problem] = []
    refused = ""
    if request.form.get("action") == LAUNCH:
        try:
            return _launched(request)
        except ConfigError as error:
            problems = error.problems
        except (Unauthorized, MasterUnreachable):
            raise
        except DethpcError as error:
            refused = str(error)
    pools = cluster.resource_pools(request.session)
    usual = next((pool["name"] for pool in pools if pool.get("defaultComputePool")), "")
    spaces = _workspaces(request.session)
    shown: dict[str, object] = {
        "entered": {"slots": "1", "pool": usual, "workspace": str(spaces[0]["id"]) if spaces else "", **request.form},
        "pools": [pool["name"] for pool in pools],
        "workspaces": spaces,
        "problems": problems,
        "refused": refused,
    }
    return Page("task/launch.html", shown, status=422 if problems or refused else 200)


def _workspaces(session: Session) -> list[Json]:
    """Those in which the user may launch something, the one that tasks are in by default first."""
    own = roles.workspaces_with(session, "CREATE_EXPERIMENT")
    rows = workspaces.workspaces(session, archived=False)
    return sorted((row for row in rows if own is None or row["id"] in own), key=lambda row: not row["immutable"])


def _launched(request: PageRequest) -> Goto:
    form = {name: value.strip() for name, value in request.form.items()}
    slots = form.get("slots", "")
    if not form.get("program"):
        raise Refused("the program is empty: write a line of the shell, such as nvidia-smi")
    if not slots.isdecimal() or len(slots) > 6:
        raise Refused(f"{slots!r} is not a number of slots: 0 or more")
    config: dict[str, Any] = {
        "entrypoint": form["program"],
        "resources": {"slots": int(slots), "resource_pool": form.get("pool", "")},
    }
    config |= {name: form[name] for name in ("description", "work_dir") if form.get(name)}
    place = {"workspaceId": int(form["workspace"])} if form.get("workspace", "").isdecimal() else {}
    answer = tasks.launch(request.session, "commands", config, [], environment=None, **place)
    notes = [*(answer.get("warnings") or []), *(answer.get("notes") or [])]
    return Goto(f"tasks/{answer['command']['id']}/logs", " ".join(["Launched the command.", *notes])[:1500])


def tensorboard(request: PageRequest) -> Answer:
    """Of what the form names, as ``det tensorboard start --detach``."""
    chosen = {"experimentIds": request.form_values("experiment"), "trialIds": request.form_values("trial")}
    if not any(chosen.values()):
        raise Refused("a TensorBoard needs an experiment or trials to show")
    ids = {name: [int(text) for text in texts if text.isdecimal()] for name, texts in chosen.items() if texts}
    answer = tasks.launch(request.session, "tensorboards", {}, [], environment=None, **ids)
    return Goto(f"tasks/{answer['tensorboard']['id']}", "Launched a TensorBoard: open it once it runs.")
