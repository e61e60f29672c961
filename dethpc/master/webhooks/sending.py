"""Sending one event: to an HTTP server whose address the site allows, or by ``sendmail``.

A host's name is resolved once, and the connection goes to the address that was checked. Redirects are not followed.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import ipaddress
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from email.message import EmailMessage
from typing import Any, Union
from urllib.parse import unquote, urlsplit

from dethpc.domain.end_report import plain_text
from dethpc.errors import DethpcError, Refused

TIMEOUT, DEADLINE = 10.0, 15.0
"""Seconds without a byte from the receiver, and from the connection to the end of its answer. A master that ends waits for it."""

Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]

_ADDRESS = re.compile(r"[A-Za-z0-9_+][\w.+-]*@[\w-]+(\.[\w-]+)*", re.ASCII)
_THIS_NETWORK = ipaddress.IPv4Network("0.0.0.0/8")
_REFUSED_BY_SENDMAIL = (64, 65, 67, 68)  # usage, data, user, host: EX_* of sysexits.h
_PLACES = "/usr/sbin:/usr/lib"  # of sendmail, which are in the PATH of few


class Unsent(DethpcError):
    """What was not taken, and why. ``final``: it would not be the next time either. ``pause``: seconds that the receiver asks
    for."""

    def __init__(self, why: str, *, final: bool = False, pause: float = 0.0) -> None:
        super().__init__(why)
        self.final, self.pause = final, pause


def check_url(url: str, networks: Sequence[Network]) -> None:
    """Raises Refused where nothing could ever be sent to ``url``."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise Refused(f"{url!r} is no URL: {error}") from None
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        raise Refused(f"{url!r} is no URL: it has blanks")
    if parts.scheme == "mailto":
        mail_addresses(url)
        return
    if parts.scheme not in ("http", "https") or not host:
        raise Refused(f"a webhook needs a URL such as https://HOST/PATH or mailto:NAME@HOST, not {url!r}")
    if parts.username is not None or parts.password is not None:
        raise Refused("the URL of a webhook cannot have a user or password: receivers verify the signature")
    with contextlib.suppress(ValueError):
        if why := refusal(ipaddress.ip_address(host), networks):
            raise Refused(f"webhooks are not sent to {host}: it is {why}; webhooks.allow of site.yaml allows addresses")


def mail_addresses(url: str) -> list[str]:
    """Those of a ``mailto:`` URL. Raises Refused."""
    addresses = [address.strip() for address in unquote(urlsplit(url).path).split(",")]
    for address in addresses:
        if not _ADDRESS.fullmatch(address):
            raise Refused(f"{address!r} is no mail address such as NAME@HOST")
    return addresses


def refusal(address: Address, networks: Sequence[Network]) -> str:
    """What is wrong with an address; "": nothing. ``networks``: those that the site allows all the same."""
    inner = _inner(address)
    if any(inner in network for network in networks if network.version == inner.version):
        return ""
    kinds = {
        "a loopback address": inner.is_loopback,
        "a link-local address": inner.is_link_local,
        "a multicast address": inner.is_multicast,
        "no address of a host": inner.is_unspecified or (inner.version == 4 and inner in _THIS_NETWORK),
        "the broadcast address": inner == ipaddress.IPv4Address("255.255.255.255"),
        "an address of a cloud's own services": inner in _OF_CLOUDS,
    }
    return next((kind for kind, applies in kinds.items() if applies), "")


def _inner(address: Address) -> Address:
    """The IPv4 address that one of IPv6 stands for: mapped, compatible, behind 6to4 or NAT64."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if inner := address.ipv4_mapped or address.sixtofour:
        return inner
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


_NAT64, _COMPATIBLE = ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96")
_OF_CLOUDS = (
    ipaddress.ip_address("fd00:ec2::254"),
    ipaddress.ip_address("100.100.100.200"),
)  # AWS, Alibaba; others: link-local


def signature(key: str, at: int, body: bytes) -> dict[str, str]:
    """The headers by which a receiver knows that this master sent ``body``."""
    digest = hmac.new(key.encode(), f"{at},".encode() + body, hashlib.sha256).hexdigest()
    return {"X-Determined-AI-Signature-Timestamp": str(at), "X-Determined-AI-Signature": digest}


def post(url: str, body: bytes, key: str, networks: Sequence[Network]) -> str:
    """What the receiver answered. Raises Unsent."""
    parts = urlsplit(url)
    host, tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Content-Type": "application/json; charset=UTF-8", "User-Agent": "dethpc"}
    headers |= signature(key, int(time.time()), body)
    try:
        with _connected(host, port, networks) as connected:
            end = ssl.create_default_context().wrap_socket(connected, server_hostname=host) if tls else connected
            connection = http.client.HTTPConnection(host, parts.port)
            connection.sock, connection.auto_open = end, 0
            try:
                connection.request("POST", path, body, headers)
                with connection.getresponse() as response:
                    text = plain_text(response.read(300).decode("utf-8", "replace"))
            finally:
                connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unsent(f"{host} cannot be reached: {error or type(error).__name__}") from None
    answer = f"{response.status} {response.reason}".strip()
    if 200 <= response.status < 300:
        return answer
    if location := response.getheader("Location"):
        answer += f" ({plain_text(location)[:200]}): redirects are not followed"
    elif text.strip():
        answer += f": {' '.join(text.split())}"
    temporary = response.status >= 500 or response.status in (408, 425, 429)
    raise Unsent(f"{host} answers {answer}", final=not temporary, pause=_pause(response.getheader("Retry-After")))


def _pause(header: str | None) -> float:
    return float(header) if header and header.isascii() and header.isdecimal() and len(header) < 6 else 0.0


@contextlib.contextmanager
def _connected(host: str, port: int, networks: Sequence[Network]) -> Iterator[socket.socket]:
    """A connection to the first address that is allowed and answers; it ends after ``DEADLINE``. Raises Unsent, OSError."""
    failure: OSError | None = None
    for family, address in _allowed(host, port, networks):
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.settimeout(TIMEOUT)
        try:
            connection.connect(address)
        except OSError as error:
            connection.close()
            failure = error
            continue
        # A second descriptor of the same connection, which TLS does not take over.
        with connection, socket.socket(fileno=os.dup(connection.fileno())) as same:
            late = threading.Event()
            timer = threading.Timer(DEADLINE, _shut_down, (same, late))
            timer.daemon = True
            timer.start()
            try:
                yield connection
            finally:
                timer.cancel()
                timer.join()
            if late.is_set():  # what is cut off may read as a whole answer
                raise TimeoutError(f"there was no whole answer within {DEADLINE:g} s")
        return
    raise failure or OSError("it has no address")


def _shut_down(connection: socket.socket, late: threading.Event) -> None:
    late.set()
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _allowed(host: str, port: int, networks: Sequence[Network]) -> list[tuple[int, Any]]:
    """Addresses of a host that webhooks may be sent to. Raises Unsent where it has others only, OSError."""
    refused = ""
    allowed: list[tuple[int, Any]] = []
    for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        ip = ipaddress.ip_address(str(address[0]).partition("%")[0])
        if why := refusal(ip, networks):
            refused = f"{host} is {ip}, {why}: webhooks.allow of site.yaml allows addresses"
        else:
            allowed.append((family, address))
    if refused and not allowed:
        raise Unsent(refused, final=True)
    return allowed


def mail(program: str, addresses: Sequence[str], subject: str, text: str, headers: Mapping[str, str]) -> str:
    """Hand a mail to sendmail. Raises Unsent."""
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:{_PLACES}")
    if path is None:
        raise Unsent(f"there is no {program} on this machine; webhooks.sendmail of site.yaml names another")
    message = EmailMessage()
    message["To"] = ", ".join(addresses)
    message["Subject"] = " ".join(subject.split())[:200]
    for name, value in {"Auto-Submitted": "auto-generated", **headers}.items():
        message[name] = value
    message.set_content(text)
    try:
        done = subprocess.run(
            [path, "-i", "--", *addresses], input=bytes(message), capture_output=True, timeout=DEADLINE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unsent(f"{path} failed: {error}") from None
    if done.returncode:
        output = " ".join(plain_text(done.stderr.decode("utf-8", "replace")).split())[:300]
        final = done.returncode in _REFUSED_BY_SENDMAIL
        raise Unsent(f"{path} ended with {done.returncode}: {output or 'it says nothing'}", final=final)
    return "accepted by sendmail"
