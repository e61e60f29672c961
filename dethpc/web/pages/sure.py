"""What ends something is asked about first. Scripts of the page do it where they run; this page does it where they do not. And what
needs more than the browser has shown is asked for."""

from __future__ import annotations

from dataclasses import replace

from dethpc.errors import MasterError, Unauthorized
from dethpc.web.access import CONFIRM, May
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


def allowed(asked: Asked, need: May) -> tuple[Asked, Page | None]:
    """A form whose sender has shown enough, or the page that asks for a password or a code instead of doing what it wants."""
    caller, wrong = asked.caller, ""
    secret = asked.form.get(CONFIRM, "")
    asked = replace(asked, form_pairs=tuple(pair for pair in asked.form_pairs if pair[0] != CONFIRM))
    if caller.may >= need:
        return asked, None
    if secret:
        try:
            caller.sessions.confirm(caller.login, secret, caller.peer)
            return replace(asked, session=caller.open(May.RUN)), None
        except (Unauthorized, MasterError) as error:
            wrong = str(error)
    shown = {"fields": asked.form_pairs, "confirm": CONFIRM, "wrong": wrong, "acts": caller.may is May.ACT}
    back = asked.form.get("back") or asked.path.strip("/").removesuffix("/act").removesuffix("/edit")
    return asked, Page("confirm.html", {**shown, "back": back}, status=403)
