"""Where the master is and with which token to speak to it.

A person's side asks the environment, then ``$DETHPC_HOME``. A node's side knows the master's ``master.json`` from its run and
reads it again after each failure, because the master may have moved to another login node.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Mapping, Optional

from dethpc.rundir.home import Home, home
from dethpc.rundir.token import read as read_token

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def canonical(url: str) -> str:
    """``url`` with a scheme and a port (8080 for http, 443 for https) and without a trailing slash, as Determined spells it.

    Raises ValueError when it is not the address of a web server.
    """
    from urllib.parse import urlsplit

    if not url.startswith(("http://", "https://")):
        url = f"http://{url}"
    parts = urlsplit(url)
    if not parts.hostname or parts.username or parts.query or parts.fragment:
        raise ValueError(f"not a master's address: {url!r}; expected something like http://login1:8080")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = parts.port or (443 if parts.scheme == "https" else 8080)
    return f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}"


def master_url(env: Optional[Mapping[str, str]] = None) -> Optional[str]:
    """The master's URL: ``DET_MASTER``, else what ``master.json`` in the home says, else None (none was ever started)."""
    named = (os.environ if env is None else env).get("DET_MASTER")
    return canonical(named) if named else _own_url(env)


def token(url: Optional[str] = None, env: Optional[Mapping[str, str]] = None) -> Optional[str]:
    """The bearer token for the master at ``url`` (default: ``master_url()``), or None.

    ``DET_USER_TOKEN`` wins. The token file in the home is the owner's key to their own master, so it is only offered to the
    master that the home knows of, under this machine's loopback names as well: on a login node other ports of loopback are
    other people's. Then comes ``auth.json``, where Determined's clients keep theirs. Raises RunDirError when the file is damaged.
    """
    env = os.environ if env is None else env
    if env.get("DET_USER_TOKEN"):
        return env["DET_USER_TOKEN"]
    url = canonical(url) if url else master_url(env)
    mine = Home(home(env))
    if (url is None or _same(url, _own_url(env))) and (own := _own_token(mine.token)):
        return OwnerToken(own)
    return _from_auth_json(url, env) if url else None


def auth_json(env: Optional[Mapping[str, str]] = None) -> Path:
    """Where Determined's clients keep their tokens."""
    env = os.environ if env is None else env
    if env.get("DET_DEBUG_CONFIG_PATH"):
        return Path(env["DET_DEBUG_CONFIG_PATH"]) / "auth.json"
    config = Path(env["XDG_CONFIG_HOME"]) if env.get("XDG_CONFIG_HOME") else Path.home() / ".config"
    return config / "determined" / "auth.json"


class OwnerToken(str):
    """The key to the owner's master. A Session gives it only to a server that proves to have it, too."""


class MasterFinder:
    """The master's address as a node knows it. ``url`` is the last one seen; ``refresh`` reads ``master.json`` again."""

    def __init__(self, master_file: Optional[str], url: Optional[str] = None) -> None:
        self._file = Path(master_file) if master_file else None
        self._given = canonical(url) if url else None
        self.url: Optional[str] = None
        self.refresh()

    def refresh(self) -> Optional[str]:
        found = _url_of(_json(self._file)) if self._file else None
        self.url = found or self.url or self._given
        return self.url


def _own_url(env: Optional[Mapping[str, str]]) -> Optional[str]:
    return _url_of(Home(home(env)).own_master())


def _url_of(held: Mapping[str, Any]) -> Optional[str]:
    url = held.get("url")
    try:
        return canonical(url) if isinstance(url, str) and url else None
    except ValueError:
        return None


def _same(url: str, known: Optional[str]) -> bool:
    """Whether ``url`` is the ``known`` master's, perhaps by a loopback name."""
    from urllib.parse import urlsplit

    if known is None or url == known:
        return known is not None
    asked = urlsplit(url)
    return asked.hostname in _LOOPBACK and asked.port == urlsplit(known).port


def _from_auth_json(url: str, env: Mapping[str, str]) -> Optional[str]:
    try:
        known = _json(auth_json(env))["masters"][url]
        found = known["tokens"][known["active_user"]]
    except (KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _own_token(path: Path) -> Optional[str]:
    try:
        return read_token(path)
    except OSError:
        return None
