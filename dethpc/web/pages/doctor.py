"""The page of the doctor's findings."""

from __future__ import annotations

from dethpc.client.nouns import cluster
from dethpc.errors import Refused
from dethpc.web.asked import Answer, Goto, Page, PageRequest

LEVELS = ("error", "warning", "note", "ok")


def page(request: PageRequest) -> Answer:
    report = cluster.diagnosis(request.session)
    findings = sorted(report["findings"], key=lambda row: LEVELS.index(row["level"]) if row["level"] in LEVELS else 0)
    counts = {level: sum(row["level"] == level for row in findings) for level in LEVELS}
    return Page("doctor.html", {"found": report, "findings": findings, "counts": counts})


def act(request: PageRequest) -> Answer:
    if request.form.get("action") != "examine":
        raise Refused("the site can be examined, and nothing else")
    cluster.examine(request.session)
    return Goto("doctor", "Examined.")
