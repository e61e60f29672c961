"""Header fields on their way through the proxy: neither those between two neighbours nor credentials of the master go on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.types import Scope

Fields = list[tuple[bytes, bytes]]

_BETWEEN_NEIGHBOURS = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_OF_PROXIES = (b"x-forwarded-", b"forwarded", b"x-real-ip")
TOKENS = frozenset({b"authorization", b"grpc-metadata-x-allocation-token", b"cookie"})
"""What may hold a credential of the master."""

_OF_THE_ORIGIN = frozenset(
    {
        b"set-cookie2",
        b"strict-transport-security",
        b"clear-site-data",
        b"service-worker-allowed",
        b"alt-svc",
    }
)
"""What a response says about the whole origin that it comes from."""


COOKIE = b"dethpc_proxy"
"""The name of the cookie by which a browser shows that it was let in. Services neither see nor set it."""


class Front(NamedTuple):
    """How a client sees the service. ``prefix``: the beginning of paths that the service does not see, "" for none.
    ``cookies``: the path below which the service may have cookies: "/" on an origin of its own, "" for none."""

    scheme: str
    host: str
    client: str
    prefix: str = ""
    cookies: str = ""


def of_request(scope: Scope, front: Front, without: Collection[bytes] = ()) -> Fields:
    """What the service gets, but for fields ``without``."""
    named = _named(scope["headers"])
    fields: Fields = [(b"host", front.host.encode("latin-1"))]
    chunked = False
    for name, value in scope["headers"]:
        chunked = chunked or (name == b"transfer-encoding" and value.lower().endswith(b"chunked"))
        if name != b"host" and name not in without and name not in named and not name.startswith(_OF_PROXIES):
            fields.append((name, value))
    if chunked:
        fields = [field for field in fields if field[0] != b"content-length"]
        fields.append((b"transfer-encoding", b"chunked"))
    fields += [
        (b"x-forwarded-for", front.client.encode("latin-1")),
        (b"x-forwarded-proto", front.scheme.encode("latin-1")),
        (b"x-forwarded-host", front.host.encode("latin-1")),
    ]
    if front.prefix:
        fields.append((b"x-forwarded-prefix", front.prefix.encode("latin-1")))
    return fields


def of_response(headers: Iterable[tuple[bytes, bytes]], front: Front) -> Fields:
    """What the client gets. Of an origin that is not its own, the service says nothing."""
    headers = list(headers)
    named = _named(headers)
    if any(name == b"transfer-encoding" for name, _ in headers):
        named.add(b"content-length")  # which counts for nothing beside it
    fields: Fields = []
    for name, value in headers:
        if name in named or (name in _OF_THE_ORIGIN and front.cookies != "/"):
            continue
        if name == b"set-cookie":
            if not front.cookies or value.partition(b"=")[0].strip() == COOKIE:
                continue
            value = _confined(value, front.cookies)
        if name in (b"location", b"content-location", b"refresh") and front.prefix:
            value = _prefixed(value, front)
        fields.append((name, value))
    if not front.cookies:
        fields.append((b"content-security-policy", b"sandbox"))
    return fields


def _named(headers: Iterable[tuple[bytes, bytes]]) -> set[bytes]:
    """Those between neighbours, also those that ``Connection`` names."""
    named = set(_BETWEEN_NEIGHBOURS)
    for name, value in headers:
        if name == b"connection":
            named.update(token.strip().lower() for token in value.split(b","))
    return named


def cookies(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """The values of ``COOKIE``: a neighbouring site can add another one."""
    pairs = [pair.strip().partition(b"=") for name, value in headers if name == b"cookie" for pair in value.split(b";")]
    return [value.strip(b'"').decode("latin-1") for name, _, value in pairs if name == COOKIE]


def without_cookie(headers: Iterable[tuple[bytes, bytes]]) -> Fields:
    """What a client sends, without ``COOKIE``."""
    fields: Fields = []
    for name, value in headers:
        if name == b"cookie":
            pairs = [pair.strip() for pair in value.split(b";")]
            value = b"; ".join(pair for pair in pairs if pair and pair.partition(b"=")[0] != COOKIE)
        if value or name != b"cookie":
            fields.append((name, value))
    return fields


def _confined(cookie: bytes, path: str) -> bytes:
    """For the host alone that sets it, and none of its neighbours, and below ``path``."""
    parts = [part for part in cookie.split(b";") if part.partition(b"=")[0].strip().lower() != b"domain"]
    if path != "/":
        parts = [part for part in parts if part.partition(b"=")[0].strip().lower() != b"path"]
        parts.append(f" Path={path}".encode("latin-1"))
    return b";".join(parts)


def _prefixed(value: bytes, front: Front) -> bytes:
    """A path or an address of the service, as the client has it."""
    before, equals, target = value.rpartition(b"=") if b"=/" in value[:20] else (b"", b"", value)
    parts = urlsplit(target.decode("latin-1"))
    if parts.netloc and parts.netloc.lower() != front.host.lower():
        return value
    if not parts.path.startswith("/"):
        return value
    path = parts._replace(scheme="", netloc="").geturl()
    return before + equals + f"{front.prefix}{path}".encode("latin-1")
