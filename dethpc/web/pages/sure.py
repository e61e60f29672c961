"""What ends something is asked about first. Scripts of the page do it where they run; this page does it where they do not."""

from __future__ import annotations

from dethpc.web.asked import Asked, Page

ENDS = frozenset({"cancel", "kill", "delete", "end", "end-all", "revoke"})
"""Actions that nothing takes back."""

SURE = "sure"
"""The field of a form that says that somebody was asked."""

MANY = "many"
"""The field of a form whose action is done to what was chosen in a list."""


def question(asked: Asked) -> Page | None:
    """What to answer a form instead of doing what it wants; None for one whose action may be done."""
    action = asked.form.get("action", "")
    if action not in ENDS or SURE in asked.form:
        return None
    some = len(asked.each("id"))
    if MANY in asked.form and not some:
        return None  # nothing was chosen, and the page says so
    shown = {"action": action, "fields": asked.form_pairs, "sure": SURE, "some": some}
    return Page("sure.html", {**shown, "back": asked.form.get("back") or asked.path.strip("/").removesuffix("/act")})
