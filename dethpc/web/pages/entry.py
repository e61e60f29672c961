"""Login, logout, and the page about this installation."""

from __future__ import annotations

import contextlib
from typing import Any
from urllib.parse import urlencode

from dethpc.client.nouns import cluster
from dethpc.errors import ForbiddenException, MasterError, Refused, Unauthorized
from dethpc.web.asked import Answer, Goto, Page, PageRequest, up

FOLLOWED = "followed"
"""In a query: the page was asked for from another site before, without a cookie."""


def home(request: PageRequest) -> Answer:
    return Goto("experiments")


def login(request: PageRequest) -> Answer:
    return Page("login.html", {"next": _inside(request.query.get("next", "")), "wrong": ""})


def log_in(request: PageRequest) -> Answer:
    name, password, where = (request.form.get(field, "") for field in ("username", "password", "next"))
    caller = request.caller
    try:
        entry = caller.sessions.log_in(name, password, caller.peer, caller.program)
    except (Unauthorized, Refused, MasterError) as error:
        return Page("login.html", {"next": _inside(where), "wrong": str(error)}, status=401)
    return _begin(request, entry, _inside(where))


def enter(request: PageRequest) -> Answer:
    """By the one-time code of ``det ui``, of a login under another host name, or of a page that goes on with the next master."""
    caller, where = request.caller, _inside(request.query.get("next", ""))
    try:
        entry = caller.sessions.redeem(request.query.get("code", ""), caller.peer, caller.program)
    except Unauthorized as error:
        if caller.login is not None:
            return Goto("experiments", "That link was used before. You are logged in.")
        return Page("login.html", {"next": where, "wrong": str(error)}, status=401)
    return _begin(request, entry, where)


def _begin(request: PageRequest, entry: Any, where: str) -> Answer:
    """Under the host name of the pages; from another one a link that is good once leads there. A page says where to go on, because
    a redirection of a form to another host is none that the policy of our pages allows."""
    caller = request.caller
    scheme, name, port = caller.here
    if caller.home and caller.home != name:
        query = urlencode({"code": caller.sessions.transfer(entry), "next": where})
        return Page("followed.html", {"again": f"{scheme}://{caller.home}{port}{caller.mount}/enter?{query}"})
    try:
        caller.begun = caller.sessions.begin(entry, name)
    except Unauthorized as error:
        return Page("login.html", {"next": where, "wrong": str(error)}, status=401)
    return Page("entered.html", {"again": up(request.path) + (where or "experiments"), "proof": caller.begun.proof})


def log_out(request: PageRequest) -> Answer:
    request.caller.sessions.end(request.caller.login)
    request.caller.ended = True
    return Goto("login")


def about(request: PageRequest) -> Answer:
    """Open to every user; paths and storage of the site are for admins."""
    shown = {
        "master": cluster.master(request.session),
        "config": {},
        "user": request.session.get("/api/v1/me")["user"],
    }
    with contextlib.suppress(ForbiddenException):
        shown["config"] = cluster.master_config(request.session)
    return Page("about.html", shown)


def _inside(path: str) -> str:
    """A page of ours, or none: nobody is sent elsewhere."""
    return path if path and not path.startswith(("/", "\\")) and "//" not in path and ":" not in path else ""


OPEN = (login, log_in, enter)
"""What needs no login."""
