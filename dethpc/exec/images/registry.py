"""Client of image registries (OCI distribution API): manifests, and blobs, whose interrupted transfers are resumed."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from dethpc.errors import ImageError

ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
DOCKER_HUB, ITS_HOST = "docker.io", "registry-1.docker.io"
TRIES, TIMEOUT, LONGEST_REST = 6, 60.0, 30.0
MOST_MANIFEST = 4 << 20
SLOWEST, PATIENCE = 1000.0, 120.0
"""Bytes a second that a registry has to give, over so many seconds: one that hands out a byte now and then would hold
a pull for ever."""
_PIECE = 1 << 20
_LOOPBACK = re.compile(r"(localhost|127\.[\d.]+|\[::1\])(:\d+)?")

Progress = Callable[[int], None]
"""Hears how many bytes more are there."""


class Credentials(NamedTuple):
    """Of one registry: a name with its password, or a token in the place of both."""

    username: str = ""
    password: str = ""
    identity: str = ""  # is exchanged for a token
    token: str = ""  # is a token already


class Place(NamedTuple):
    """Where a registry is asked. ``prefix`` comes before each repository, as mirrors of several registries have it."""

    host: str
    prefix: str
    credentials: Optional[Credentials]
    plain: bool  # by http

    @property
    def url(self) -> str:
        host = ITS_HOST if self.host == DOCKER_HUB else self.host
        return f"{'http' if self.plain else 'https'}://{host}"


class Manifest(NamedTuple):
    content: Dict[str, Any]
    digest: str
    media_type: str
    raw: bytes


def may_be_plain(host: str, insecure: List[str]) -> bool:
    """As other tools have it, a registry on this machine may speak http, and those that the site names."""
    return host in insecure or _LOOPBACK.fullmatch(host) is not None


class Registry:
    """One repository, asked at the first of its ``places`` that has it. Secrets go to the place that they are for, and to whom that
    names to give tokens, and nowhere else: not to where it sends for a blob."""

    def __init__(self, repository: str, places: List[Place], insecure: List[str]) -> None:
        self._repository, self._places, self._insecure = repository, places, insecure
        self._tokens: Dict[str, str] = {}
        self._opener = urllib.request.build_opener(_Redirects(insecure))

    def manifest(self, reference: str) -> Manifest:
        """Of a tag or a digest. Raises ImageError in the registry's words."""
        failed: List[str] = []
        for place in list(self._places):
            try:
                with self._get(place, f"manifests/{reference}", {"Accept": ACCEPT}) as answer:
                    raw = b"".join(_pieces(answer, MOST_MANIFEST + 1))
                    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip()
                manifest = _manifest(raw, kind, reference)
            except ImageError as error:
                failed.append(str(error))
                continue
            except (OSError, http.client.HTTPException) as error:
                failed.append(f"{place.host} broke off: {error}")
                continue
            self._places = [place, *(other for other in self._places if other != place)]
            return manifest
        raise ImageError("; ".join(failed))

    def blob(self, digest: str, size: int, target: Path, progress: Progress) -> None:
        """Bring a blob to ``target``, which appears when all its bytes are right. What is there of it already is not asked for
        again. Raises ImageError, OSError."""
        part = target.with_name(f"{target.name}.part")
        why = ""
        for attempt in range(TRIES):
            place = self._places[min(attempt // 2, len(self._places) - 1)]
            if attempt:
                time.sleep(min(LONGEST_REST, 2.0**attempt / 2))
            try:
                self._transfer(place, digest, size, part, progress)
            except (http.client.HTTPException, ConnectionError, TimeoutError, urllib.error.URLError) as error:
                why = f"{place.host} broke off: {error}"
                continue
            if part.stat().st_size < size:
                why = f"{place.host} broke off after {part.stat().st_size} of {size} bytes"
                continue
            if _sha256(part) == digest:
                os.replace(part, target)
                return
            why = f"{place.host} gave other bytes than {digest} stands for"
            progress(-part.stat().st_size)
            part.unlink()
        raise ImageError(f"layer {digest[:19]} could not be had: {why}")

    def _transfer(self, place: Place, digest: str, size: int, part: Path, progress: Progress) -> None:
        there = part.stat().st_size if part.exists() else 0
        if there > size:
            part.unlink()
            there = 0
        if size and there == size:
            return
        headers = {"Range": f"bytes={there}-"} if there else {}
        with self._get(place, f"blobs/{digest}", headers) as answer:
            if there and answer.status != 206:
                progress(-there)
                there = 0
            with open(part, "r+b" if there else "wb") as file:
                file.seek(there)
                for piece in _pieces(answer, size - there + 1):
                    there += len(piece)
                    if there > size:
                        raise ImageError(f"{place.host} gives more than the {size} bytes of {digest[:19]}")
                    file.write(piece)
                    progress(len(piece))
                file.flush()
                os.fsync(file.fileno())

    # --- one question

    def _get(self, place: Place, what: str, headers: Dict[str, str]) -> http.client.HTTPResponse:
        """Raises ImageError."""
        repository = f"{place.prefix}/{self._repository}" if place.prefix else self._repository
        url = f"{place.url}/v2/{repository}/{what}"
        asked_for_token = False
        why = ""
        for attempt in range(TRIES):
            request = urllib.request.Request(url, headers=headers)
            if place.host in self._tokens:
                request.add_unredirected_header("Authorization", self._tokens[place.host])
            try:
                return self._opener.open(request, timeout=TIMEOUT)  # type: ignore[no-any-return]
            except urllib.error.HTTPError as error:
                with error:
                    # Of another, to whom this one has sent us, no word about passwords counts.
                    own = urllib.parse.urlsplit(error.url or url).netloc == urllib.parse.urlsplit(url).netloc
                    why = f"{place.host} says {error.code} {_reason(error)}"
                    if error.code == 401 and own and not asked_for_token:
                        asked_for_token = True
                        self._tokens[place.host] = self._authorization(place, repository, error.headers, why)
                        continue
                    if error.code not in (408, 429) and error.code < 500:
                        raise ImageError(f"{why} (asked for {repository}, {what.partition('/')[2]})") from None
                    rest = error.headers.get("Retry-After", "")
                time.sleep(min(LONGEST_REST, float(rest) if rest.isdigit() else 2.0**attempt / 2))
            except (OSError, http.client.HTTPException) as error:
                why = f"{place.host} cannot be reached: {getattr(error, 'reason', error)}"
                if attempt >= 2:
                    break
                time.sleep(2.0**attempt / 2)
        raise ImageError(why)

    def _authorization(self, place: Place, repository: str, headers: Any, why: str) -> str:
        """What ``place`` wants to hear, given what it answered. Raises ImageError."""
        credentials = place.credentials
        if credentials is not None and credentials.token:
            return f"Bearer {credentials.token}"
        challenges = headers.get_all("WWW-Authenticate") or []
        bearer = next((challenge for challenge in challenges if challenge.lower().startswith("bearer ")), None)
        if bearer is not None:
            return f"Bearer {self._token(place, repository, bearer)}"
        basic = any(challenge.lower().startswith("basic") for challenge in challenges)
        if basic and credentials is not None and credentials.username:
            return _basic(credentials)
        raise ImageError(f"{why}: it wants a name and a password; set environment.registry_auth")

    def _token(self, place: Place, repository: str, challenge: str) -> str:
        fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        realm = urllib.parse.urlsplit(fields.get("realm", ""))
        if not _may_go(place.host, realm, self._insecure):
            raise ImageError(f"{place.host} wants a token of {fields.get('realm')!r}, which is not reached by https")
        query = {"scope": fields.get("scope") or f"repository:{repository}:pull"}
        if fields.get("service"):
            query["service"] = fields["service"]
        data, login = None, place.credentials
        if login is not None and login.identity:
            form = {**query, "grant_type": "refresh_token", "client_id": "dethpc", "refresh_token": login.identity}
            data, query = urllib.parse.urlencode(form).encode(), {}
        whole = f"{realm.query}&{urllib.parse.urlencode(query)}".strip("&")
        request = urllib.request.Request(urllib.parse.urlunsplit(realm._replace(query=whole)), data=data)
        if login is not None and login.username and data is None:
            request.add_unredirected_header("Authorization", _basic(login))
        try:
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                reply = json.loads(b"".join(_pieces(answer, _PIECE)))
            return str(reply.get("token") or reply["access_token"])
        except urllib.error.HTTPError as error:
            with error:
                hint = "" if login else ": it may want a name and a password; set environment.registry_auth"
                raise ImageError(f"{realm.netloc} says {error.code} {_reason(error)}{hint}") from None
        except (OSError, http.client.HTTPException, ValueError, KeyError, AttributeError) as error:
            raise ImageError(f"{realm.netloc} gives no token: {error}") from None


class _Redirects(urllib.request.HTTPRedirectHandler):
    def __init__(self, insecure: List[str]) -> None:
        self._insecure = insecure

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        to = urllib.parse.urlsplit(newurl)
        here = urllib.parse.urlsplit(req.full_url).netloc
        if not _may_go(here, to, self._insecure):
            raise ImageError(f"{here} sends to {to.netloc or newurl[:80]!r}, not by https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _may_go(here: str, to: urllib.parse.SplitResult, insecure: List[str]) -> bool:
    """Whether ``here`` may send there. To what listens on this machine alone only a registry on this machine may."""
    if to.scheme == "https":
        return True
    local = _LOOPBACK.fullmatch(here) is not None and _LOOPBACK.fullmatch(to.netloc) is not None
    return to.scheme == "http" and (local or to.netloc in insecure)


def _pieces(answer: http.client.HTTPResponse, most: int) -> Iterator[bytes]:
    """At most so many bytes, as they come. Raises TimeoutError for what comes too slowly, OSError, HTTPException."""
    began, there = time.monotonic(), 0
    while there < most and (piece := answer.read1(min(_PIECE, most - there))):
        there += len(piece)
        yield piece
        if (spent := time.monotonic() - began) > PATIENCE:
            if there < SLOWEST * spent:
                raise TimeoutError(f"only {there} bytes in {spent:.0f} s")
            began, most, there = time.monotonic(), most - there, 0


def _basic(credentials: Credentials) -> str:
    return "Basic " + base64.b64encode(f"{credentials.username}:{credentials.password}".encode()).decode()


def _reason(error: urllib.error.HTTPError) -> str:
    """The registry's own, or HTTP's. One line, of what may be shown."""
    try:
        problem = json.loads(error.read(1 << 16))["errors"][0]
        text = f"{problem.get('code', '')}: {problem.get('message', '')}"
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, http.client.HTTPException):
        text = str(error.reason)
    return "".join(c for c in text if c.isprintable())[:200]


def _manifest(raw: bytes, kind: str, reference: str) -> Manifest:
    digest = "sha256:" + hashlib.sha256(raw).hexdigest()
    if len(raw) > MOST_MANIFEST:
        raise ImageError(f"its manifest is larger than {MOST_MANIFEST >> 20} MiB")
    if reference.startswith("sha256:") and digest != reference:
        raise ImageError(f"its registry gives {digest} for {reference}")
    try:
        content = json.loads(raw)
    except ValueError:
        content = None
    if not isinstance(content, dict) or content.get("schemaVersion") != 2:
        raise ImageError("its registry gives a manifest of a kind that is not known (OCI and Docker's second are)")
    return Manifest(content, digest, str(content.get("mediaType") or kind), raw)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return "sha256:" + digest.hexdigest()


def credentials_of(auth: Dict[str, Any]) -> Optional[Credentials]:
    """Of a ``registry_auth`` section, or of an entry in Docker's ``config.json``."""

    def word(name: str) -> str:
        return str(auth.get(name) or "")

    user, password = word("username"), word("password")
    if not user and word("auth"):
        user, password = _decoded(word("auth"))
    credentials = Credentials(user, password, word("identitytoken"), word("registrytoken"))
    return credentials if any(credentials) else None


def _decoded(text: str) -> Tuple[str, str]:
    try:
        user, _, password = base64.b64decode(text).decode().partition(":")
    except ValueError:
        return "", ""
    return user, password
