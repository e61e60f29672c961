"""Logins and access tokens, and an end to each."""

from __future__ import annotations

from dethpc.client import tokens, users
from dethpc.errors import Refused
from dethpc.web.asked import Answer, Asked, Goto, Page


def listing(asked: Asked) -> Answer:
    return Page("sessions.html", {"tokens": tokens.tokens(asked.session), "logins": users.logins(asked.session)})


def act(asked: Asked) -> Answer:
    action = asked.form.get("action", "")
    if action == "revoke" and asked.form.get("token", "").isdecimal():
        tokens.change(asked.session, int(asked.form["token"][:18]), revoke=True)
        return Goto("sessions", "The token was revoked.")
    if action == "end" and asked.form.get("login", "").isdecimal():
        users.end_login(asked.session, int(asked.form["login"][:18]))
        return Goto("sessions", "The login was ended.")
    if action == "end-all":
        asked.session.post("/api/v1/auth/logout", params={"everywhere": True})
        return Goto("login")
    raise Refused(f"there is no action {action!r}; there are end, revoke and end-all")
