"""TLS of the server, with a certificate whose files may be replaced while the master runs."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import ssl
from pathlib import Path

from dethpc.config.site import Master
from dethpc.errors import Refused
from dethpc.master.certificate import certificate_of
from dethpc.rundir.certificate import sha256
from dethpc.rundir.home import Home

log = logging.getLogger(__name__)

PLAIN = (
    "master.tls is off and this master listens beyond this machine: what reads the network's packets reads what det, jobs and "
    "the published client send, tokens included; leave master.tls out"
)


class Tls:
    """What connections are wrapped in. Raises Refused when the files hold no certificate with its key."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._read_at = self._changed()
        self._now, self.shown = self._load()
        self.context = _context(*self._files)
        # The context of a server cannot be replaced, but it lets each connection have another.
        self.context.sni_callback = self._choose

    def fingerprint(self) -> str:
        """Look at the files again. The SHA-256 of the certificate that the next connection is shown, in hexadecimal digits."""
        changed = self._changed()
        if changed != self._read_at:
            try:
                self._now, self.shown = self._load()
                log.info("the certificate in %s has changed; its SHA-256 is %s", self._files[0], self.shown)
            except Refused as error:
                log.warning("%s; the master goes on with the certificate of before", error)
            self._read_at = changed
        return self.shown

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._now

    def _load(self) -> tuple[ssl.SSLContext, str]:
        try:
            shown = sha256(self._files[0].read_text())
        except (OSError, ValueError) as error:
            raise Refused(f"{self._files[0]} cannot be used: {error}") from None
        return _context(*self._files), shown

    def _changed(self) -> tuple[object, ...]:
        """Differs once a file was written or replaced."""
        try:
            return tuple((status.st_ino, status.st_mtime_ns, status.st_size) for status in map(os.stat, self._files))
        except OSError:
            return ()


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        raise Refused(f"{certificate} and {key} are no certificate and its key in PEM: {error}") from None
    return context


def _no_password() -> str:
    raise ValueError("the key has a password, which nobody could give to a master that starts by itself")


def tls_of(home: Home, site: Master, host: str, name: str) -> Tls | None:
    """What a master needs that listens on ``host`` and is known to other machines as ``name``; None: it speaks plain HTTP.

    Raises Refused when the site's certificate cannot be used, OSError.
    """
    local = _is_loopback(host)
    if site.tls == "off" and not local:
        log.warning("%s", PLAIN)
    if site.tls == "off" or (site.tls == "auto" and local):
        return None
    names = [name, socket.getfqdn(), socket.gethostname(), "localhost", "127.0.0.1", "::1"]
    return Tls(*certificate_of(home, site, [one for one in dict.fromkeys(names) if one.isascii()]))


def _is_loopback(host: str) -> bool:
    """Whether only this machine reaches who listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
