"""``det ui``: a link that logs a browser in."""

from __future__ import annotations

import getpass
import os
import socket
from typing import Optional
from urllib.parse import urlsplit

import click

from dethpc.cli import output
from dethpc.cli.connect import connect, named_master


@click.command()
@click.option("--no-browser", is_flag=True, help="Print the link without opening a browser.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def ui(no_browser: bool, as_json: bool) -> None:
    """Print a link to the web pages, valid for one login within five minutes, and open a browser if there is one.

    The printed ssh command makes the link work on another machine.
    """
    from dethpc.client import users

    session = connect()
    code = users.one_time_code(session)
    where = urlsplit(session.url)
    link = f"{session.url}/det/enter?code={code}"
    tunnel = _tunnel(where.hostname or "localhost", where.port or 80)
    if as_json:
        output.print_json({"url": link, "ssh": tunnel, **_ways()})
        return
    output.echo(link)
    output.say(f"valid once, within five minutes. On your own machine, first run: {tunnel}")
    if not no_browser and _has_browser():
        import webbrowser

        webbrowser.open(link)


def _ways() -> dict[str, Optional[str]]:
    """What a reverse proxy needs besides the address: the user's own master's Unix socket, if it has one on this machine, and the
    SHA-256 of its certificate, if it speaks TLS."""
    from dethpc.rundir.home import Home, home

    held = Home(home()).own_master() if named_master() is None else {}
    here = held.get("host") == socket.gethostname()
    return {"socket": held.get("socket") if here else None, "certificate": held.get("certificate")}


def _tunnel(host: str, port: int) -> str:
    """The link's address is then the same on both machines."""
    inner = host if host not in ("127.0.0.1", "::1") else "localhost"
    return f"ssh -N -L {port}:{inner}:{port} {getpass.getuser()}@{socket.getfqdn()}"


def _has_browser() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) and "SSH_CONNECTION" not in os.environ
