"""The list of experiments, and actions on several of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dethpc.client.nouns import experiments, workspaces
from dethpc.errors import DethpcError, Refused
from dethpc.web import listed
from dethpc.web.asked import Answer, Goto, Page, PageRequest, pairs

PAGE = 50
MOST_PROJECTS = 500  # to choose from
STATES = ("ACTIVE", "PAUSED", "COMPLETED", "CANCELED", "ERROR")
SORTS = {
    "id": "SORT_BY_ID",
    "name": "SORT_BY_NAME",
    "state": "SORT_BY_STATE",
    "started": "SORT_BY_START_TIME",
    "ended": "SORT_BY_END_TIME",
    "trials": "SORT_BY_NUM_TRIALS",
    "progress": "SORT_BY_PROGRESS",
    "pool": "SORT_BY_RESOURCE_POOL",
    "user": "SORT_BY_USER",
}
"""Columns by which the list can be sorted, as the page and the wire call them."""

COLUMNS = {
    "state": "State",
    "progress": "Progress",
    "trials": "Trials",
    "best": "Best",
    "metric": "Metric",
    "search": "Search",
    "pool": "Pool",
    "user": "User",
    "started": "Started",
    "ended": "Ended",
    "duration": "Duration",
    "checkpoints": "Checkpoints",
    "parent": "Forked from",
}
"""What the list can show beside ids and names: ``columns=state,best`` in the address, in this order."""

USUAL = [name for name in COLUMNS if name not in ("metric", "user", "ended", "parent")]
"""Columns where the address names none; with that of users where there are several."""

_ACTS = {"label": "add labels", "unlabel": "remove labels"}


def listing(request: PageRequest) -> Answer:
    if boxes := request.every("column"):
        chosen = ",".join(name for name in COLUMNS if name in boxes)
        return Goto("experiments" + request.changed(column=None, columns=chosen or None, said=None))
    sort, _, way = request.query.get("sort", "").partition("-")
    descending = way != "up"
    offset = request.count("offset", 0, 10**8)
    states = [f"STATE_{state}" for state in request.every("state") if state in STATES]
    archived, name = bool(request.query.get("archived")), request.query.get("name") or None
    project, projects = request.count("project", 0, 10**8), workspaces.projects(request.session, limit=MOST_PROJECTS)
    page = experiments.listing(
        request.session,
        experiments.Filter(archived, False, states, name, request.every("label"), project=project),
        sort_by=SORTS.get(sort, "SORT_BY_ID"),
        newest_first=descending,
        offset=offset,
        limit=PAGE,
    )
    named = dict.fromkeys(request.query.get("columns", "").split(","))
    several = len({row["userId"] for row in page["experiments"]}) > 1
    usual = [name for name in COLUMNS if name in USUAL or (several and name == "user")]
    shown: dict[str, Any] = {
        "every_column": COLUMNS,
        "columns": [name for name in named if name in COLUMNS] or usual,
        "sorts": SORTS,
        "experiments": page["experiments"],
        "total": page["pagination"]["total"],
        "offset": offset,
        "page": PAGE,
        "sort": sort if sort in SORTS else "id",
        "descending": descending,
        "states": STATES,
        "chosen": request.query.get("chosen", "").split(","),
        "projects": projects if len(projects) > 1 else [],
        "project": project,
        "filtered": bool(request.every("state") or request.query.get("name") or request.every("label") or project),
    }
    return Page("experiments.html", shown, live="experiments")


def act(request: PageRequest) -> Answer:
    """One action on each experiment that was chosen. What cannot be done to one does not keep it from the others."""
    action, back = request.form.get("action", ""), request.form.get("back") or "experiments"
    chosen = [int(text) for text in request.form_values("id") if text.isdecimal() and len(text) < 19]
    if action == "compare" and chosen:
        return Goto(f"compare?experiments={','.join(map(str, chosen))}")
    if action not in (*experiments.ACTIONS, "delete", "compare", "label", "unlabel"):
        raise Refused(
            f"there is no action {action!r}; there are {', '.join(experiments.ACTIONS)}, label, unlabel and delete"
        )
    if action != "delete":
        back = _choosing(request, back, chosen)
    labels = listed.read(request.form.get("labels", ""))
    if action in ("label", "unlabel") and not labels:
        return Goto(back, "Write a label first.")
    done, failed = 0, []
    for number in chosen:
        try:
            if action == "delete":
                experiments.delete(request.session, number)
            elif action == "label":
                experiments.relabel(request.session, number, add=labels)
            elif action == "unlabel":
                experiments.relabel(request.session, number, remove=labels)
            else:
                experiments.act(request.session, number, action)
            done += 1
        except DethpcError as error:
            failed.append(f"{number}: {error}")
    outcome = f"{_ACTS.get(action, action)}: {done} of {len(chosen)}" + (f". {'; '.join(failed[:3])}" if failed else "")
    return Goto(back, outcome if chosen else "Choose experiments first.")


def _choosing(request: PageRequest, back: str, chosen: list[int]) -> str:
    """The page to go back to, with the same experiments chosen in it."""
    page, _, query = back.partition("?")
    return page + replace(request, pairs=pairs(query)).changed(chosen=",".join(map(str, chosen)) or None)
