"""The page of one trial and its tabs."""

from __future__ import annotations

from typing import Any

from dethpc.client.nouns import experiments, trials
from dethpc.errors import Refused
from dethpc.web import show
from dethpc.web.asked import Answer, Goto, Page, PageRequest

TABS = ("logs", "timeline", "profiler", "checkpoints")

SYSTEM = ("cpu", "memory", "disk", "network", "gpu", "profiling")
"""Groups of metrics that are about machines and not about training."""


def overview(request: PageRequest) -> Answer:
    shown = about(request, "overview")
    if not shown["ended"]:
        shown["waiting"] = trials.waiting(request.session, shown["trial"]["id"])
    return Page("trial/overview.html", shown, live=f"experiment-{shown['trial']['experimentId']}")


def checkpoints(request: PageRequest) -> Answer:
    shown = about(request, "checkpoints")
    shown["checkpoints"] = trials.checkpoints(request.session, shown["trial"]["id"])
    return Page("trial/checkpoints.html", shown, live=f"experiment-{shown['trial']['experimentId']}")


def timeline(request: PageRequest) -> Answer:
    """When it waited, trained and lost its training, attempt by attempt."""
    shown = about(request, "timeline")
    answer = trials.timeline(request.session, shown["trial"]["id"])
    spans = [span for attempt in answer["attempts"] for span in attempt["spans"]]
    first = min((_seconds(span["startTime"]) for span in spans), default=0.0)
    last = max((_seconds(span["endTime"]) for span in spans), default=1.0)
    scale = WIDTH / max(last - first, 1e-3)
    for attempt in answer["attempts"]:
        sums = dict.fromkeys(KINDS, 0.0)
        for span in attempt["spans"]:
            begin, end = _seconds(span["startTime"]), _seconds(span["endTime"])
            sums[span["kind"]] += end - begin
            span.update(x=round((begin - first) * scale, 2), width=round(max((end - begin) * scale, 1.0), 2))
            span["seconds"] = end - begin
        attempt["sums"] = sums
    total = {kind: sum(attempt["sums"][kind] for attempt in answer["attempts"]) for kind in KINDS}
    shown.update(attempts=answer["attempts"], more=answer["more"], total=total, kinds=KINDS, width=WIDTH)
    shown["saving"] = sum(attempt["saving"] for attempt in answer["attempts"])
    return Page("trial/timeline.html", shown, live=f"experiment-{shown['trial']['experimentId']}")


KINDS = ("waiting", "starting", "training", "lost", "ending")
WIDTH = 1000
"""Of the picture, in units of its own."""


def _seconds(text: str) -> float:
    at = show.moment(text)
    return at.timestamp() if at else 0.0


def profiler(request: PageRequest) -> Answer:
    """What its machines did meanwhile, where the training reports it (``profiling: {enabled: true}``)."""
    shown = about(request, "profiler")
    groups = [group for group in (shown["trial"].get("summaryMetrics") or {}) if group in SYSTEM]
    shown["groups"] = sorted(groups)
    summary = shown["trial"]["summaryMetrics"] or {}
    shown["rows"] = [(f"{group}.{name}", one) for group in shown["groups"] for name, one in summary[group].items()][
        :300
    ]
    shown["runs"] = [run for run in shown["runs"] if run.get("usage")]
    return Page("trial/profiler.html", shown, live=f"experiment-{shown['trial']['experimentId']}")


def act(request: PageRequest) -> Answer:
    number = request.number("trial")
    if request.form.get("action") != "kill":
        raise Refused("a trial can be killed, and nothing else")
    trials.kill(request.session, number)
    return Goto(f"trials/{number}")


def about(request: PageRequest, tab: str) -> dict[str, Any]:
    answer = trials.with_runs(request.session, request.number("trial"))
    trial = answer["trial"]
    return {
        "trial": trial,
        "experiment": experiments.get(request.session, trial["experimentId"])["experiment"],
        "runs": answer["runs"],
        "previous": answer["previousTrialId"],
        "next": answer["nextTrialId"],
        "tab": tab,
        "tabs": TABS,
        "ended": show.plain_state(trial["state"]) in show.ENDED,
    }
