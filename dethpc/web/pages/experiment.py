"""The page of one experiment and its tabs."""

from __future__ import annotations

from typing import Any

from dethpc.client.nouns import experiments
from dethpc.domain.ids import OWNER_ID
from dethpc.domain.trial_config import SearcherConfig
from dethpc.errors import NotFound, Refused
from dethpc.web import listed, show
from dethpc.web.asked import Answer, Goto, Page, PageRequest
from dethpc.web.pages import search

TABS = ("trials", "hyperparameters", "search", "checkpoints", "code", "configuration", "goodput")
PAGE = 50
SORTS = {
    "id": "SORT_BY_ID",
    "metric": "SORT_BY_BEST_VALIDATION_METRIC",
    "latest": "SORT_BY_LATEST_VALIDATION_METRIC",
    "steps": "SORT_BY_BATCHES_PROCESSED",
    "started": "SORT_BY_START_TIME",
    "ended": "SORT_BY_END_TIME",
    "state": "SORT_BY_STATE",
    "restarts": "SORT_BY_RESTARTS",
}
SORTABLE = 5000
"""Trials up to which checkpoints are shown by their metric, the best first: each has to be looked at for that."""


def overview(request: PageRequest) -> Answer:
    shown = about(request)
    experiment = shown["experiment"]
    if not shown["ended"]:
        shown["waiting"] = experiments.waiting(request.session, experiment["id"])
        shown["search"] = experiments.search(request.session, experiment["id"], limit=1)
    shown["best"] = list(experiments.trials(request.session, experiment["id"], sort_by=SORTS["metric"], limit=5))
    shown["curves"], shown["owner_id"] = _curves(request, experiment), OWNER_ID
    return Page("experiment/overview.html", shown, live=f"experiment-{experiment['id']}")


MOST_METRICS = 2000
"""Names that the curves can be chosen from; those of training and validation come first."""


def _curves(request: PageRequest, experiment: dict[str, Any]) -> dict[str, Any]:
    """Which metric is drawn, of how many trials, what else there is by group, and which trials are pinned."""
    names = experiments.metric_names(request.session, experiment["id"])
    names.sort(key=lambda pair: (pair[0] not in ("validation", "training"), pair[0] != "validation", pair))
    groups: dict[str, list[str]] = {}
    for group, name in names[:MOST_METRICS]:
        groups.setdefault(group, []).append(name)
    metric = request.query.get("metric", "")
    searched = ("validation", experiment["searcherMetric"])
    usual = searched if searched in names or not names else names[0]
    group, name = next((pair for pair in names if ".".join(pair) == metric), usual)
    most = next((many for many in MANY if request.query.get("most") == str(many)), MANY[0])
    return {
        "group": group,
        "name": name,
        "groups": groups,
        "most": most,
        "many": MANY,
        "pins": pins(request),
        "unreported": bool(names) and searched not in names,
    }


MANY = (20, 50, 100, 200)
"""Of how many trials, the best, curves may be drawn."""

MOST_PINS = 20


def pins(request: PageRequest) -> list[int]:
    """Trials whose curves stay highlighted: ``pin=3,5`` in the address."""
    texts = request.query.get("pin", "").split(",")
    return list(dict.fromkeys(int(text) for text in texts if text.isdecimal() and len(text) < 16))[:MOST_PINS]


def tab(request: PageRequest) -> Answer:
    name = request.parts["tab"]
    if name not in _TABS:
        raise NotFound(f"an experiment has no page {name!r}")
    shown = about(request)
    shown.update(_TABS[name](request, shown["experiment"]))
    return Page(f"experiment/{name}.html", shown, live=f"experiment-{shown['experiment']['id']}")


def act(request: PageRequest) -> Answer:
    number, action = request.number("experiment"), request.form.get("action", "")
    if action == "delete":
        experiments.delete(request.session, number)
        return Goto("experiments", f"Experiment {number} is being deleted.")
    if action not in experiments.ACTIONS:
        raise Refused(f"there is no action {action!r}; there are {', '.join(experiments.ACTIONS)} and delete")
    experiments.act(request.session, number, action)
    return Goto(request.form.get("back") or f"experiments/{number}")


def edit(request: PageRequest) -> Answer:
    """Name, description, notes and labels: those that were changed in the form, since another page may have changed the others."""
    number = request.number("experiment")
    form = {name: text.replace("\r\n", "\n") for name, text in request.form.items()}
    given: dict[str, Any] = {
        name: form[name]
        for name in ("name", "description", "notes", "labels")
        if name in form and form[name] != form.get(f"was-{name}")
    }
    if "labels" in given:
        given["labels"] = listed.read(given["labels"])
    if given:
        experiments.patch(request.session, number, **given)
    return Goto(f"experiments/{number}", "Saved." if given else "Nothing was changed.")


def goes_on(experiment: dict[str, Any]) -> bool:
    """Whether an experiment may be continued: it has ended, and something of it is left to do, or may be said to be."""
    state, searcher = show.plain_state(experiment["state"]), experiment["searcherType"]
    return (
        searcher == "single"
        if state == "COMPLETED"
        else state in show.ENDED and searcher in ("single", "random", "grid")
    )


def about(request: PageRequest, tab: str = "") -> dict[str, Any]:
    """What every page of the experiment shows; ``tab``: which one this is, if its path does not say."""
    answer = experiments.get(request.session, request.number("experiment"))
    row = answer["experiment"]
    state = show.plain_state(row["state"])
    failures = (
        experiments.trials(request.session, row["id"], states=["STATE_ERROR"], limit=1) if state == "ERROR" else ()
    )
    return {
        "experiment": row,
        "failed": next(iter(failures), None),
        "config": answer["config"],
        "larger_is_better": not SearcherConfig.of(answer["config"] or {}).smaller_is_better,
        "tabs": TABS,
        "tab": tab or request.parts.get("tab", "overview"),
        "ended": state in show.ENDED,
        "goes_on": goes_on(row),
        "paused": state == "PAUSED",
    }


def _trials(request: PageRequest, experiment: dict[str, Any]) -> dict[str, Any]:
    sort, _, way = request.query.get("sort", "").partition("-")
    offset = request.count("offset", 0, 10**8)
    # Without a wish the best come first, whatever is better for the metric.
    sort = sort if sort in SORTS else "metric"
    page = experiments.trial_page(
        request.session,
        experiment["id"],
        sort_by=SORTS[sort],
        descending=way == "down",
        offset=offset,
        limit=PAGE,
        states=[f"STATE_{state}" for state in request.every("state")],
    )
    return {
        "trials": page["trials"],
        "total": page["pagination"]["total"],
        "offset": offset,
        "page": PAGE,
        "sort": sort,
        "descending": way == "down",
    }


def _hyperparameters(request: PageRequest, experiment: dict[str, Any]) -> dict[str, Any]:
    x, y = request.query.get("x", ""), request.query.get("y", "")
    chosen = {name: request.every(name)[:MOST_SCALED] for name in ("log", "linear")}
    answer = experiments.hyperparameters(request.session, experiment["id"], x, y, **chosen)
    by = "best" if request.query.get("by") == "best" else "mean"
    drawn = min(answer["of"], experiments.MOST_POINTS)
    return {"found": answer, "drawn": drawn, "heat": _levels(answer["map"], by), "by": by, "scales": chosen}


MOST_SCALED = 50
"""Axes whose scale the address says."""


LEVELS = 10
"""Of colour in a heat map."""


def _levels(heat: dict[str, Any] | None, by: str) -> dict[str, Any] | None:
    """The map, with a level for each cell: 0 for the least value, ``LEVELS`` - 1 for the largest. ``by``: best or mean."""
    if heat is None or not heat["columns"] or not heat["rows"]:
        return None
    values = [cell[by] for row in heat["cells"] for cell in row if cell]
    if not values:
        return None
    low, span = min(values), max(values) - min(values)
    rows = [
        (name, [cell and {**cell, "level": int((cell[by] - low) / (span or 1.0) * (LEVELS - 1) + 0.5)} for cell in row])
        for name, row in zip(heat["rows"], heat["cells"], strict=True)
    ]
    return {**heat, "rows": rows}


def _checkpoints(request: PageRequest, experiment: dict[str, Any]) -> dict[str, Any]:
    many = (experiment.get("numTrials") or 0) > SORTABLE
    rows = experiments.checkpoints(request.session, experiment["id"], **({"newest": 100} if many else {"best": 100}))
    return {"checkpoints": rows, "newest": many}


def _configuration(request: PageRequest, experiment: dict[str, Any]) -> dict[str, Any]:
    return {}


def _goodput(request: PageRequest, experiment: dict[str, Any]) -> dict[str, Any]:
    return {"goodput": experiments.goodput(request.session, experiment["id"], trials=False)}


_TABS = {
    "trials": _trials,
    "hyperparameters": _hyperparameters,
    "search": search.tab,
    "checkpoints": _checkpoints,
    "configuration": _configuration,
    "goodput": _goodput,
}
