"""The master's address, and the token that a client uses there.

A user's client reads the environment, then ``$DETHPC_HOME``. A run's client gets the path of ``master.json`` from its run and
reads it again after each failure, because the master may have moved to another login node.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from socket import gethostname
from typing import Any, Mapping, Optional, Tuple, Union

from dethpc.client.proof import OwnerToken, boot_id
from dethpc.rundir.files import read_object
from dethpc.rundir.home import Home, home
from dethpc.rundir.process import lives
from dethpc.rundir.token import read as read_token

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def canonical(url: str) -> str:
    """``url`` with a scheme, a port (8080 without a scheme, else 80 for http and 443 for https) and without a trailing slash, as
    Determined spells it.

    Raises ValueError when it is not the address of a web server.
    """
    from urllib.parse import urlsplit

    named = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(named)
        host, port = parts.hostname, parts.port
    except ValueError:  # a port that is none, or a bracket without another
        host = port = None
    if host is None or not _can_be_asked(named) or parts.scheme not in ("http", "https") or port == 0:
        raise ValueError(f"not a master's address: {_shown(url)}; expected something like http://login1:8080")
    at = f"[{host}]" if ":" in host else host
    default = 443 if parts.scheme == "https" else 80 if "://" in url else 8080
    return f"{parts.scheme}://{at}:{port or default}{parts.path.rstrip('/')}"


def _can_be_asked(url: str) -> bool:
    """Whether there is a host alone before the path, which goes into the first line of a request, and nothing behind it."""
    rest = url.partition("://")[2]
    host, _, path = rest.partition("/")
    plain = rest.isprintable() and path.isascii()
    return plain and "@" not in host and not any(character in rest for character in " \\?#")


def _shown(url: str) -> str:
    """In quotes and without a password, of which one can tell only behind a scheme."""
    from dethpc.domain.secrets import hide_passwords

    if "://" in url:
        return repr(hide_passwords(url))
    return repr(hide_passwords(f"://{url}")[3:])


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
    return owner_token(url, env) or (stored_login(url, env=env) if url else None)


def owner_token(url: Optional[str], env: Optional[Mapping[str, str]] = None) -> Optional[OwnerToken]:
    """What the token file says, if the master at ``url`` is its owner's (or there is none to compare). Raises RunDirError."""
    own = _own_token(Home(home(env)).token) if url is None or _same(url, _own_url(env)) else None
    return OwnerToken(own) if own else None


def auth_json(env: Optional[Mapping[str, str]] = None) -> Path:
    """Where Determined's clients keep their tokens."""
    env = os.environ if env is None else env
    if env.get("DET_DEBUG_CONFIG_PATH"):
        return Path(env["DET_DEBUG_CONFIG_PATH"]) / "auth.json"
    config = Path(env["XDG_CONFIG_HOME"]) if env.get("XDG_CONFIG_HOME") else Path.home() / ".config"
    return config / "determined" / "auth.json"


def certificate(url: str, env: Optional[Mapping[str, str]] = None) -> Optional[str]:
    """The SHA-256 of the one certificate that the server at ``url`` may show; None unless it is the home's own master."""
    held = Home(home(env)).own_master()
    return _certificate_of(held) if _same(canonical(url), _url_of(held)) else None


def socket_of(url: str, env: Optional[Mapping[str, str]] = None) -> Optional[str]:
    """The Unix socket on which the server at ``url`` listens for its owner; None unless it is the home's own master, on this
    machine."""
    held, named = Home(home(env)).own_master(), canonical(url)
    speaks_so = named.startswith("https:") == str(_url_of(held)).startswith("https:")
    return local_socket(held) if speaks_so and _same(named, _url_of(held)) else None


def local_socket(held: Mapping[str, Any]) -> Optional[str]:
    """The master's Unix socket that ``held`` names, if the master is on this machine and nobody else can listen there."""
    path = held.get("owner_socket")
    if not isinstance(path, str) or held.get("host") != gethostname() or held.get("boot_id") != (boot_id() or None):
        return None
    return path if is_private(os.path.dirname(path)) else None


def is_private(folder: Union[str, Path]) -> bool:
    """Whether it is a folder of this user's that no other can enter."""
    try:
        status = os.lstat(folder)
    except (OSError, ValueError):
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def was_killed(url: str, env: Optional[Mapping[str, str]] = None) -> bool:
    """Whether the master at ``url`` is the home's own, ran on this host and ended without a word. One that is stopped takes its
    address back."""
    held = Home(home(env)).own_master()
    return (
        bool(held.get("pid"))
        and held.get("host") == gethostname()
        and not lives(held)
        and _same(canonical(url), _url_of(held))
    )


class MasterFinder:
    """The master's address as a node knows it, and the SHA-256 of the certificate that it shows there.

    They are the last ones seen; ``refresh`` reads ``master.json`` again.
    """

    def __init__(self, master_file: Optional[str], url: Optional[str] = None) -> None:
        self._file = Path(master_file) if master_file else None
        #: The address, the certificate and the Unix socket, which belong together.
        self.seen: Tuple[Optional[str], Optional[str], Optional[str]] = (canonical(url) if url else None, None, None)
        self.refresh()

    @property
    def url(self) -> Optional[str]:
        return self.seen[0]

    def refresh(self) -> Optional[str]:
        held = read_object(self._file) if self._file else {}
        if (url := _url_of(held)) is not None:
            self.seen = (url, _certificate_of(held), local_socket(held))
        return self.url


def own_finder(env: Optional[Mapping[str, str]] = None) -> MasterFinder:
    """Where the home's own master is, and where it moves to. A copy of another home has none."""
    own = Home(home(env))
    return MasterFinder(None if own.copied_from() else str(own.master_file))


def _own_url(env: Optional[Mapping[str, str]]) -> Optional[str]:
    return _url_of(Home(home(env)).own_master())


def _url_of(held: Mapping[str, Any]) -> Optional[str]:
    url = held.get("url")
    try:
        return canonical(url) if isinstance(url, str) and url else None
    except ValueError:
        return None


def _certificate_of(held: Mapping[str, Any]) -> Optional[str]:
    certificate = held.get("certificate")
    return certificate if isinstance(certificate, str) and certificate else None


def _same(url: str, master_url: Optional[str]) -> bool:
    """Whether ``url`` is ``master_url``, perhaps by another loopback name."""
    from urllib.parse import urlsplit

    if master_url is None or url == master_url:
        return master_url is not None
    parts = urlsplit(url)
    return parts.hostname in _LOOPBACK and parts.port == urlsplit(master_url).port


def stored_login(url: str, user: Optional[str] = None, env: Optional[Mapping[str, str]] = None) -> Optional[str]:
    """The token of a login that ``auth.json`` has, by default that of the active user."""
    try:
        logins = read_object(auth_json(env))["masters"][canonical(url)]
        token = logins["tokens"][user or logins["active_user"]]
    except (KeyError, TypeError):
        return None
    return token if isinstance(token, str) else None


def _own_token(path: Path) -> Optional[str]:
    try:
        return read_token(path)
    except OSError:
        return None
