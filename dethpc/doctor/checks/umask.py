"""Who else can read what belongs to the user."""

from __future__ import annotations

from collections.abc import Iterator

from dethpc.doctor.facts import Facts
from dethpc.doctor.finding import Finding, error, ok, warning


def check(facts: Facts) -> Iterator[Finding]:
    login = facts.login
    clean = True
    if login.token_mode is not None and login.token_mode & 0o077:
        clean = False
        yield error(
            f"{login.home}/token may be read by others (mode {login.token_mode:04o}): whoever reads it can act as you",
            "the next master makes it 0600",
            "delete it and det master down: the next master makes a new one",
        )
    if login.home_mode is not None and login.home_mode & 0o077:
        clean = False
        yield warning(
            f"{login.home} is open to others (mode {login.home_mode:04o})", "the next master makes it 0700", "chmod 700"
        )
    if clean:
        yield ok(f"umask {login.umask:04o}", "makes its own files 0600 and folders 0700 whatever the umask is")
