"""Getting in and out, and the page about this installation."""

from __future__ import annotations

from dethpc.client import cluster
from dethpc.client.login import hashed
from dethpc.errors import MasterError, Refused, Unauthorized
from dethpc.web.asked import Answer, Asked, Goto, Page

SECONDS = 30 * 24 * 3600
"""How long a browser keeps its login; the master ends it then, too."""

FOLLOWED = "followed"
"""In a query: the page was asked for from another site before, without a cookie."""


def home(asked: Asked) -> Answer:
    return Goto("experiments")


def login(asked: Asked) -> Answer:
    return Page("login.html", {"next": _inside(asked.query.get("next", "")), "wrong": ""})


def log_in(asked: Asked) -> Answer:
    name, password, where = (asked.form.get(field, "") for field in ("username", "password", "next"))
    body = {"username": name, "password": hashed(password), "isHashed": True}
    try:
        asked.extra["token"] = asked.session.post("/api/v1/auth/login", body)["token"]
    except (Unauthorized, Refused, MasterError) as error:
        return Page("login.html", {"next": _inside(where), "wrong": str(error)}, status=401)
    return Goto(_inside(where) or "experiments")


def enter(asked: Asked) -> Answer:
    """By the one-time code of ``det ui``."""
    try:
        answer = asked.session.post("/api/v1/auth/enter", {"code": asked.query.get("code", "")})
    except Unauthorized as error:
        if _is_inside(asked):
            return Goto("experiments", "That link was used before. You are logged in.")
        return Page("login.html", {"next": "", "wrong": str(error)}, status=401)
    asked.extra["token"] = answer["token"]
    return Goto("experiments")


def _is_inside(asked: Asked) -> bool:
    try:
        asked.session.get("/api/v1/me")
    except Unauthorized:
        return False
    return True


def log_out(asked: Asked) -> Answer:
    asked.session.post("/api/v1/auth/logout")
    asked.extra["token"] = ""
    return Goto("login")


def about(asked: Asked) -> Answer:
    shown = {
        "master": cluster.master(asked.session),
        "config": cluster.master_config(asked.session),
        "user": asked.session.get("/api/v1/me")["user"],
    }
    return Page("about.html", shown)


def _inside(path: str) -> str:
    """A page of ours, or none: nobody is sent elsewhere."""
    return path if path and not path.startswith(("/", "\\")) and "//" not in path and ":" not in path else ""


OPEN = (login, log_in, enter)
"""What needs no login."""
