"""A command's session: with the master that was named, else with the user's own, which is started when none runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Optional, TypeVar

import click

from dethpc import errors
from dethpc.cli.group import Settings

if TYPE_CHECKING:
    from dethpc.client import Session

T = TypeVar("T")

_BETWEEN_STARTS = 10.0  # seconds between two attempts to start a master, for one that fails fails again
_MET = f"{__name__}: a master answered"  # in the meta of click's context
_NONE = "no master is running; start one with: det master up"


def connect(*, start: bool = True) -> Session:
    """A session with the master. ``start``: start the user's own when none is named and none runs. One that a command has met is
    started again only where it was killed: who types ``det master down`` beside a list that is watched means it.

    Raises MasterUnreachable.
    """
    settings, context = _settings(), click.get_current_context()
    session = _session(settings)
    if settings.master:
        assert session is not None
        return session
    from dethpc.cli import master_process
    from dethpc.client import address

    answering = session and master_process.reached(session.url)
    if not answering:
        if not start or (_MET in context.meta and not (session and address.was_killed(session.url))):
            raise errors.MasterUnreachable(_NONE)
        master_process.up()
        session = answering = _session(settings)
        assert answering is not None
    context.meta[_MET] = True
    # What answers takes this process for the owner, where somebody else may be meant.
    return session if settings.user and session else answering


def address() -> str:
    """Of the master, for who logs in: that user, whom ``-u`` may name, has no token yet. Raises MasterUnreachable."""
    url = _url(_settings())
    if url is None:
        raise errors.MasterUnreachable(_NONE)
    return url


_SOON = 1.0  # seconds


def of_cluster(ask: Callable[[Session], T]) -> T:
    """What ``ask`` finds out about the cluster. Where that took long, the master may have said no more than it knew: it is told."""
    session, began = connect(), time.monotonic()
    answer = ask(session)
    if time.monotonic() - began > _SOON:
        from dethpc.cli import output

        message = (getattr(session, "about", None) or {}).get("notice")
        if not message and (notice := session.get("/api/v1/master").get("notice")):
            output.say(f"note: {notice}")
    return answer


def reconnect(session: Session) -> Callable[[], Session]:
    """A function that returns the session, or a new one when the master has moved meanwhile. The user's own is started again where
    it was killed. The function raises MasterUnreachable."""
    settings, tried = _settings(), -_BETWEEN_STARTS

    def again() -> Session:
        nonlocal session, tried
        if not settings.master and time.monotonic() - tried >= _BETWEEN_STARTS:
            from dethpc.cli import master_process
            from dethpc.client import address

            if address.was_killed(session.url):
                tried = time.monotonic()
                master_process.up()
        other = _session(settings)
        if other is None:
            raise errors.MasterUnreachable(_NONE)
        if other.url != session.url:
            session = other
        return session

    return again


def named_master() -> Optional[str]:
    """The address that was given; None: the user's own master is meant."""
    return _settings().master


def named_user() -> Optional[str]:
    """Whom ``-u`` or DET_USER names."""
    return _settings().user


def _settings() -> Settings:
    settings = click.get_current_context().find_object(Settings)
    return settings or Settings()


def _session(settings: Settings) -> Optional[Session]:
    """None when no master is known."""
    from dethpc.client import Session
    from dethpc.client.login import token_at

    url = _url(settings)
    return Session(url, token_at(url, settings.user), certain=not settings.master) if url else None


def _url(settings: Settings) -> Optional[str]:
    from dethpc.client import master_url
    from dethpc.client.address import canonical

    try:
        return canonical(settings.master) if settings.master else master_url(home_only())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'-m' / '--master' / DET_MASTER") from None


def home_only() -> dict[str, str]:
    """The environment without DET_MASTER, which has had its say as the option's default."""
    import os

    return {name: value for name, value in os.environ.items() if name != "DET_MASTER"}
