"""Logins and access tokens, and how to end them."""

from __future__ import annotations

from dethpc.client.nouns import tokens, users
from dethpc.errors import Refused
from dethpc.web.asked import Answer, Goto, Page, PageRequest


def listing(request: PageRequest) -> Answer:
    return Page("sessions.html", {"tokens": tokens.tokens(request.session), "logins": users.logins(request.session)})


def act(request: PageRequest) -> Answer:
    action = request.form.get("action", "")
    if action == "revoke" and request.form.get("token", "").isdecimal():
        tokens.change(request.session, int(request.form["token"][:18]), revoke=True)
        return Goto("sessions", "The token was revoked.")
    if action == "end" and request.form.get("login", "").isdecimal():
        users.end_login(request.session, int(request.form["login"][:18]))
        return Goto("sessions", "The login was ended.")
    if action == "end-all":
        request.session.post("/api/v1/auth/logout", params={"everywhere": True})
        return Goto("login")
    raise Refused(f"there is no action {action!r}; there are end, revoke and end-all")
