"""Sending one event: to an HTTP server whose address the site allows, or by ``sendmail``.

A host's name is resolved once, and the connection goes to the address that was checked. Redirects are not followed. Where the site
names a proxy, that connects to what this machine cannot reach by itself: names are checked here, as far as they are known here.
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
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Any, Union
from urllib.parse import unquote, urlsplit

import h11

from dethpc.domain.attempts.end_report import plain_text
from dethpc.errors import DethpcError, Refused

TIMEOUT, DEADLINE = 10.0, 15.0
"""Seconds without a byte from the receiver, and from the connection to the end of its answer. A master that ends waits for it."""

Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]

_ADDRESS = re.compile(r"[A-Za-z0-9_+][\w.+-]*@[\w-]+(\.[\w-]+)*", re.ASCII)
_THIS_NETWORK = ipaddress.IPv4Network("0.0.0.0/8")
_REFUSED_BY_SENDMAIL = (64, 65, 67, 68)  # usage, data, user, host: EX_* of sysexits.h
_PLACES = "/usr/sbin:/usr/lib"  # of sendmail, which are in the PATH of few


@dataclass(frozen=True, slots=True)
class Allowlist:
    """``networks`` that ``webhooks.allow`` names in the site configuration, which is ``file``."""

    networks: Sequence[Network] = ()
    file: str = "site.yaml"

    def remedy(self, address: Address) -> str:
        """What allows ``address``, besides those that are already allowed."""
        addresses = ", ".join(f'"{one}"' if ":" in one else one for one in (*map(str, self.networks), str(address)))
        return f"to allow it, put webhooks: {{allow: [{addresses}]}} into {self.file}, then det master down"


class Unsent(DethpcError):
    """What was not taken, and why. ``final``: it would not be the next time either. ``pause``: seconds that the receiver asks
    for."""

    def __init__(self, why: str, *, final: bool = False, pause: float = 0.0) -> None:
        super().__init__(why)
        self.final, self.pause = final, pause


def check_url(url: str, allowlist: Allowlist) -> None:
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
        address = ipaddress.ip_address(host)
        if why := refusal(address, allowlist.networks):
            raise Refused(f"webhooks are not sent to {host}: it is {why}; {allowlist.remedy(address)}")


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


def post(url: str, body: bytes, key: str, allowlist: Allowlist, proxy: str = "") -> str:
    """What the receiver answered. ``proxy``: the URL of the site's, "" for none. Raises Unsent."""
    parts = urlsplit(url)
    host, tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Content-Type": "application/json; charset=UTF-8", "User-Agent": "dethpc"}
    headers |= signature(key, int(time.time()), body)
    try:
        proxied = bool(proxy) and _needs_proxy(host, port, allowlist)
        with _through(proxy, host, port, tls) if proxied else _connected(host, port, allowlist) as connected:
            path = path if tls or not proxied else f"http://{parts.netloc}{path}"
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
        raise Unsent(
            f"{host} cannot be reached: {error or type(error).__name__}{_advice(parts.scheme, proxy)}"
        ) from None
    answer = f"{response.status} {response.reason}".strip()
    if 200 <= response.status < 300:
        return answer
    if location := response.getheader("Location"):
        answer += f" ({plain_text(location)[:200]}): redirects are not followed"
    elif text.strip():
        answer += f": {' '.join(text.split())}"
    temporary = response.status >= 500 or response.status in (408, 425, 429)
    raise Unsent(f"{host} answers {answer}", final=not temporary, pause=_pause(response.getheader("Retry-After")))


def _advice(scheme: str, proxy: str) -> str:
    import urllib.request  # which a master needs for nothing else

    if proxy or scheme not in urllib.request.getproxies():
        return ""
    return f". The environment of this master has {scheme}_proxy, which webhooks do not use: webhooks.proxy of site.yaml names one"


def _needs_proxy(host: str, port: int, allowlist: Allowlist) -> bool:
    """Whether the site's proxy is to connect, and not this machine, as it does to addresses of ``allowlist``. Raises Unsent."""
    try:
        resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:  # of the outside, this machine may know no names
        if host == "localhost" or host.endswith(".localhost"):
            raise Unsent(f"{host} is a name of loopback addresses", final=True) from None
        return True
    addresses = [ipaddress.ip_address(str(address[0]).partition("%")[0]) for *_, address in resolved]
    inner = [_inner(address) for address in addresses]
    if any(one in network for one in inner for network in allowlist.networks if network.version == one.version):
        return False
    for address in addresses:  # it is not known which of them the proxy takes
        if why := refusal(address, ()):
            raise Unsent(f"{host} is {address}, {why}; {allowlist.remedy(address)}", final=True)
    return True


_ALL = Allowlist((ipaddress.IPv4Network("0.0.0.0/0"), ipaddress.IPv6Network("::/0")))


@contextlib.contextmanager
def _through(proxy: str, host: str, port: int, tls: bool) -> Iterator[socket.socket]:
    """A connection to the proxy; with ``tls`` one through it to the host. Raises Unsent, OSError."""
    parts = urlsplit(proxy)
    with contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(_connected(parts.hostname or "", parts.port or 80, _ALL))
            if tls:
                _tunnel(connection, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        except OSError as error:
            raise OSError(f"by the proxy {parts.netloc}: {error or type(error).__name__}") from None
        yield connection


def _tunnel(connection: socket.socket, target: str) -> None:
    """Raises OSError where the proxy refuses."""
    tunnel = h11.Connection(h11.CLIENT)
    connection.sendall(tunnel.send(h11.Request(method="CONNECT", target=target, headers=[("Host", target)])) or b"")
    connection.sendall(tunnel.send(h11.EndOfMessage()) or b"")
    try:
        while not isinstance(event := tunnel.next_event(), h11.Response):
            if event is h11.NEED_DATA:
                tunnel.receive_data(connection.recv(4096))
    except h11.RemoteProtocolError as error:
        raise OSError(f"what it answers is no HTTP: {error}") from None
    if not 200 <= event.status_code < 300:
        raise OSError(f"it answers {event.status_code} {plain_text(event.reason.decode('latin-1'))}".strip())


def _pause(header: str | None) -> float:
    return float(header) if header and header.isascii() and header.isdecimal() and len(header) < 6 else 0.0


@contextlib.contextmanager
def _connected(host: str, port: int, allowlist: Allowlist) -> Iterator[socket.socket]:
    """A connection to the first address that is allowed and answers; it ends after ``DEADLINE``. Raises Unsent, OSError."""
    failure: OSError | None = None
    for family, address in _allowed(host, port, allowlist):
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
                if late.is_set():  # what is cut off may read as a whole answer, and fails in any way
                    raise TimeoutError(f"there was no whole answer within {DEADLINE:g} s")
        return
    raise failure or OSError("it has no address")


def _shut_down(connection: socket.socket, late: threading.Event) -> None:
    late.set()
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _allowed(host: str, port: int, allowlist: Allowlist) -> list[tuple[int, Any]]:
    """Addresses of a host that webhooks may be sent to. Raises Unsent where it has others only, OSError."""
    refused = ""
    allowed: list[tuple[int, Any]] = []
    for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        ip = ipaddress.ip_address(str(address[0]).partition("%")[0])
        if why := refusal(ip, allowlist.networks):
            refused = f"{host} is {ip}, {why}; {allowlist.remedy(ip)}"
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
