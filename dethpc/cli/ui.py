"""``det ui``: a link that logs a browser in."""

from __future__ import annotations

import getpass
import os
import socket
from typing import NamedTuple, Optional
from urllib.parse import urlsplit

import click

from dethpc.cli import output
from dethpc.cli.connect import connect, named_master

_UNPRIVILEGED = 8080
"""Where a tunnel begins to a port that only root may listen on."""


@click.command()
@click.option("--no-browser", is_flag=True, help="Print the link without opening a browser.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def ui(no_browser: bool, as_json: bool) -> None:
    """Print a link to the web pages, valid for one login within five minutes, and open a browser if there is one.

    The printed ssh command makes the link work on another machine. If the master listens on the cluster's network, the link to open
    behind the tunnel is printed, too.
    """
    from dethpc.client import users

    session = connect()
    code = users.one_time_code(session)
    page = f"/det/enter?code={code}"
    link, tunnel = f"{session.url}{page}", _tunnel(session.url)
    if as_json:
        output.print_json({"url": link, "ssh": tunnel.command, "ssh_url": f"{tunnel.url}{page}", **_ways()})
        return
    output.echo(link)
    then = "" if tunnel.url == session.url else f"\nand then open there: {tunnel.url}{page}"
    output.say(f"valid once, within five minutes. On your own machine, first run: {tunnel.command}{then}")
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


class _Tunnel(NamedTuple):
    """An ssh command, and the master's address at the end where it is typed."""

    command: str
    url: str


def _tunnel(url: str) -> _Tunnel:
    """To a master on this machine's loopback, under the address that it has here; to another, which the user's own machine does not
    reach by its name, under that machine's loopback."""
    where = urlsplit(url)
    host, port = where.hostname or "localhost", where.port or 80
    at_home = host in ("localhost", "127.0.0.1", "::1")
    local = port if port >= 1024 else _UNPRIVILEGED  # who is not root listens on no other
    inner = "localhost" if at_home else f"[{host}]" if ":" in host else host
    command = f"ssh -N -L {local}:{inner}:{port} {getpass.getuser()}@{socket.getfqdn()}"
    return _Tunnel(command, url if at_home and local == port else f"{where.scheme}://localhost:{local}{where.path}")


def _has_browser() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) and "SSH_CONNECTION" not in os.environ
