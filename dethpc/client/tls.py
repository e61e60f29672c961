"""TLS of the client: which certificates it trusts, and the error for others. Imported only for addresses that begin with https."""

from __future__ import annotations

import hashlib
import os
import ssl
from typing import TYPE_CHECKING, NamedTuple, Optional

if TYPE_CHECKING:
    from socket import socket

    from dethpc.client.http1 import Connection

NOVERIFY = "noverify"


class Distrust(Exception):
    """The server does not show a certificate that is trusted; nothing was sent to it. The text goes on from its address."""


class Trust(NamedTuple):
    """Which certificate a server must show.

    ``pin``: the one with this SHA-256, in hexadecimal digits, whatever its names, dates and issuer: a master's own. Without a pin
    one that is verified by the certificates in the file ``cert`` (None: ``DET_MASTER_CERT_FILE``, else the system's), for the
    server's host or for ``name`` (None: ``DET_MASTER_CERT_NAME``); ``cert`` "noverify": any.
    """

    pin: Optional[str] = None
    cert: Optional[str] = None
    name: Optional[str] = None


def wrap(connection: Connection, host: str, trust: Trust) -> None:
    """Speak TLS over a connection to ``host``, once its server has shown a certificate that is trusted, and proved to have its key.

    Raises Distrust, and OSError when the other end speaks no TLS or the connection breaks.
    """
    name = trust.name or os.environ.get("DET_MASTER_CERT_NAME") or host
    sock = _context(trust).wrap_socket(connection.sock, server_hostname=name, do_handshake_on_connect=False)
    connection.sock = sock  # from here on who closes the connection closes this
    try:
        sock.do_handshake()
    except ssl.SSLCertVerificationError as error:
        raise Distrust(
            f"shows a certificate that cannot be verified ({error.verify_message}), so it is told nothing.\nSet "
            "DET_MASTER_CERT_FILE to the file of the authority that signed it, and DET_MASTER_CERT_NAME to the name in it "
            "where that is not the address's"
        ) from None
    except ssl.SSLError as error:
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
            raise ConnectionError("what listens there speaks no TLS") from None
        raise
    shown = fingerprint(sock)
    if trust.pin and shown != trust.pin:
        raise Distrust(
            f"shows another certificate than your master, so it is told nothing.\nSHA-256 there:            {shown}\n"
            f"that of your master:      {trust.pin}\n"
            "Somebody else listens there now. Where your master has ended, det master up starts it, at an address of its own"
        )


def fingerprint(sock: socket) -> str:
    """The SHA-256 of the certificate that the server has shown, in hexadecimal digits."""
    assert isinstance(sock, ssl.SSLSocket)
    return hashlib.sha256(sock.getpeercert(binary_form=True) or b"").hexdigest()


def speaks_tls(host: str, port: int, timeout: float = 2.0) -> bool:
    """Whether what listens there speaks TLS, whoever it is."""
    from dethpc.client.http1 import connect

    try:
        connection = connect(host, port, timeout)
    except OSError:
        return False
    try:
        wrap(connection, host, Trust(cert=NOVERIFY))
    except OSError:
        return False
    finally:
        connection.close()
    return True


def _context(trust: Trust) -> ssl.SSLContext:
    cert = trust.cert or os.environ.get("DET_MASTER_CERT_FILE")
    if trust.pin or (cert or "").lower() == NOVERIFY:
        # No authority vouches for a pinned certificate: its key does, which the handshake has proved when the SHA-256 is compared.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        try:
            context = ssl.create_default_context(cafile=cert or None)
        except (OSError, ssl.SSLError) as error:
            raise Distrust(f"cannot be verified: the certificates in {cert} cannot be read: {error}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
