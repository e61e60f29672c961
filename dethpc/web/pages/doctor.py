"""What the doctor found."""

from __future__ import annotations

from dethpc.client import cluster
from dethpc.errors import Refused
from dethpc.web.asked import Answer, Asked, Goto, Page

LEVELS = ("error", "warning", "note", "ok")


def page(asked: Asked) -> Answer:
    found = cluster.diagnosis(asked.session)
    findings = sorted(found["findings"], key=lambda each: LEVELS.index(each["level"]) if each["level"] in LEVELS else 0)
    counts = {level: sum(each["level"] == level for each in findings) for level in LEVELS}
    return Page("doctor.html", {"found": found, "findings": findings, "counts": counts})


def act(asked: Asked) -> Answer:
    if asked.form.get("action") != "examine":
        raise Refused("the site can be examined, and nothing else")
    cluster.examine(asked.session)
    return Goto("doctor", "Examined.")
