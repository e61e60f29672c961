"""Confirmation pages. Destructive actions are confirmed by the page's script, or by this page where scripts do not run.
Actions that need a higher right request a password or code."""

from __future__ import annotations

from dataclasses import replace

from dethpc.errors import MasterError, Unauthorized
from dethpc.web.access import CONFIRM, May
from dethpc.web.asked import Page, PageRequest

ENDS = frozenset({"cancel", "kill", "delete", "end", "end-all", "revoke"})
"""Actions that nothing takes back."""

CONFIRMED = "confirmed"
"""The field of a form that says that somebody was asked."""

MANY = "many"
"""The field of a form whose action is done to what was chosen in a list."""


def question(request: PageRequest) -> Page | None:
    """What to answer a form instead of doing what it wants; None for one whose action may be done."""
    action = request.form.get("action", "")
    if action not in ENDS or CONFIRMED in request.form:
        return None
    some = len(request.form_values("id"))
    if MANY in request.form and not some:
        return None  # nothing was chosen, and the page says so
    shown = {"action": action, "fields": request.form_pairs, "confirmed": CONFIRMED, "some": some}
    back = request.form.get("back") or request.path.strip("/").removesuffix("/act")
    return Page("confirm_action.html", {**shown, "back": back})


def allowed(request: PageRequest, need: May) -> tuple[PageRequest, Page | None]:
    """A form whose sender has shown enough, or the page that asks for a password or a code instead of doing what it wants."""
    caller, wrong = request.caller, ""
    secret = request.form.get(CONFIRM, "")
    request = replace(request, form_pairs=tuple(pair for pair in request.form_pairs if pair[0] != CONFIRM))
    if caller.may >= need:
        return request, None
    if secret:
        try:
            caller.sessions.confirm(caller.login, secret, caller.peer)
            return replace(request, session=caller.open(May.RUN)), None
        except (Unauthorized, MasterError) as error:
            wrong = str(error)
    shown = {"fields": request.form_pairs, "confirm": CONFIRM, "wrong": wrong, "acts": caller.may is May.ACT}
    back = request.form.get("back") or request.path.strip("/").removesuffix("/act").removesuffix("/edit")
    return request, Page("confirm.html", {**shown, "back": back}, status=403)
