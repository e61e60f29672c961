"""``det ui``: a link that logs a browser in."""

from __future__ import annotations

import getpass
import html
import os
import socket
from pathlib import Path
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

    The printed ssh command makes the link work on another machine. If the master runs on another host, the link to open behind the
    tunnel is printed, too. The link's host name is random and new with each master: no other server on this machine gets what
    the browser keeps for it.
    """
    from dethpc.client.nouns import users

    session = connect()
    entry = users.one_time_code(session)
    page = f"/det/enter?code={entry['code']}"
    link, tunnel = f"{_pages(session.url, entry)}{page}", _tunnel(session.url, entry["host"])
    if as_json:
        ways = {
            "url": f"{session.url}{page}",
            "browser_url": link,
            "ssh": tunnel.command,
            "ssh_url": f"{tunnel.url}{page}",
        }
        output.print_json({**ways, **_ways()})
        return
    output.echo(link)
    then = "" if f"{tunnel.url}{page}" == link else f"\nand then open there: {tunnel.url}{page}"
    output.say(f"valid once, within five minutes. On your own machine, first run: {tunnel.command}{then}")
    if not no_browser and _has_browser():
        import webbrowser

        webbrowser.open(_redirection(link).as_uri())


def _redirection(link: str) -> Path:
    """A page of this user alone that leads to ``link``: every user of the machine reads the browser's command line."""
    from dethpc.rundir.home import Home, home

    file, target = Home(home()).root / "ui.html", html.escape(link)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as to:
        to.write(
            '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
            f'<meta http-equiv="refresh" content="0; url={target}"><title>dethpc</title><a href="{target}">Go on</a>\n'
        )
    temporary.replace(file)
    return file


def _ways() -> dict[str, Optional[str]]:
    """What a reverse proxy needs besides the address: the user's own master's Unix socket, if it has one on this machine, and the
    SHA-256 of its certificate, if it speaks TLS."""
    from dethpc.rundir.home import Home, home

    held = Home(home()).own_master() if named_master() is None else {}
    return {"socket": held.get("socket") if _is_here(held) else None, "certificate": held.get("certificate")}


def _is_here(held: dict[str, str]) -> bool:
    return held.get("host") == socket.gethostname()


class _Tunnel(NamedTuple):
    """An ssh command, and the pages' address at the end where it is typed."""

    command: str
    url: str


def _pages(url: str, entry: dict[str, str]) -> str:
    """The pages' address in a browser on this machine. A master on another one is reached by its own name, or by the one that the
    site has given the pages."""
    from dethpc.rundir.home import Home, home

    where = urlsplit(url)
    here = _is_loopback(where.hostname) or (named_master() is None and _is_here(Home(home()).own_master()))
    host = entry["siteHost"] if not _is_loopback(where.hostname) else ""
    return _under(url, host or entry["host"], where.port) if host or here else url


def _own_name() -> str:
    """This machine's name for others. A resolver that knows it as localhost alone knows no name for others."""
    name = socket.getfqdn()
    return socket.gethostname() if name.partition(".")[0] == "localhost" else name


def _tunnel(url: str, host: str) -> _Tunnel:
    """To a master on this machine's loopback, under the port that it has here; to another, which the user's own machine does not
    reach by its name, under that machine's loopback."""
    where = urlsplit(url)
    name, port = where.hostname or "localhost", where.port or (443 if where.scheme == "https" else 80)
    local = port if port >= 1024 else _UNPRIVILEGED  # who is not root listens on no other
    inner = "127.0.0.1" if _is_loopback(name) else f"[{name}]" if ":" in name else name
    command = f"ssh -N -L {local}:{inner}:{port} {getpass.getuser()}@{_own_name()}"
    return _Tunnel(command, _under(url, host, local))


def _under(url: str, host: str, port: Optional[int]) -> str:
    where = urlsplit(url)
    return f"{where.scheme}://{host}{f':{port}' if port else ''}{where.path}"


def _is_loopback(name: Optional[str]) -> bool:
    return name in ("localhost", "127.0.0.1", "::1")


def _has_browser() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) and "SSH_CONNECTION" not in os.environ
