"""A browser's requests to a served master's pages, without a browser."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from dethpc.client import Session
from dethpc.domain.states import State
from dethpc.master.durable import contexts
from tests.context_archives import packed
from tests.master.conftest import Served, experiment, launched, served, site, trained, trial  # noqa: F401
from tests.waiting import LONG_ENOUGH

HOSTILE = "<script>alert(1)</script><b>&\"'"


@dataclass
class Got:
    status: int
    headers: Mapping[str, str]
    text: str


class Visitor:
    """Keeps the cookie and the proof that it is given, as a browser would."""

    def __init__(self, url: str) -> None:
        self._where = urlsplit(url)
        self.url, self.cookie, self.proof = url, "", ""
        self.host = self._where.netloc
        self.named = f"dethpc_session_{Session(url).get('/api/v1/master')['clusterId'][:8]}"

    def get(self, path: str, **headers: str) -> Got:
        return self._ask("GET", path, None, headers)

    def post(self, path: str, form: Mapping[str, str] | list[tuple[str, str]], **headers: str) -> Got:
        """As a form of our own page is sent, unless ``headers`` say otherwise."""
        usual = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
        if self.proof:
            usual["X-Dethpc-Proof"] = self.proof
        return self._ask("POST", path, urlencode(form), {**usual, **headers})

    def enter(self, served: Served) -> Visitor:  # noqa: F811
        made = served.session.post("/api/v1/auth/code")
        self.named_by(made["host"])
        assert self.get(f"enter?code={made['code']}").status == 200 and self.cookie and self.proof
        return self

    def named_by(self, host: str) -> Visitor:
        """Ask for pages under this host name."""
        self.host = f"{host}:{self._where.port}"
        return self

    def _ask(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> Got:
        connection = http.client.HTTPConnection(str(self._where.hostname), self._where.port, timeout=LONG_ENOUGH)
        try:
            cookie = {"Cookie": f"{self.named}={self.cookie}"} if self.cookie else {}
            connection.request(method, f"/det/{path}", body, {"Host": self.host, **cookie, **headers})
            answer = connection.getresponse()
            found = Got(
                answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode("utf-8", "replace")
            )
        finally:
            connection.close()
        if proof := re.search(r'data-proof="([^"]+)"', found.text):
            self.proof = proof[1]
        if given := found.headers.get("set-cookie", ""):
            self.cookie = given.partition(";")[0].partition("=")[2].strip('"')
        return found


def log_in(served: Served, page: Any) -> None:  # noqa: F811
    """Enter the pages in a browser's tab, which gets their address as ``page.root``."""
    page.set_default_timeout(LONG_ENOUGH * 1000)
    made = served.session.post("/api/v1/auth/code")
    page.root = f"{served.url}/det/".replace("127.0.0.1", made["host"])
    page.goto(f"{page.root}enter?code={made['code']}")
    page.wait_for_url(f"{page.root}experiments")


@contextlib.contextmanager
def entered(served: Served, chromium: Any) -> Iterator[Any]:  # noqa: F811
    """A tab of a browser in which somebody has entered. Its scripts must not have failed when it is closed."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    log_in(served, page)
    try:
        yield page
    finally:
        context.close()
    assert errors == []


@pytest.fixture
def stranger(served: Served) -> Visitor:  # noqa: F811
    return Visitor(served.url)


@pytest.fixture
def visitor(served: Served) -> Visitor:  # noqa: F811
    """The owner's browser, on an installation with two experiments; markup stands wherever users write text."""
    home = served.daemon.installation.home
    notebook = json.dumps({"cells": [{"cell_type": HOSTILE, "source": [HOSTILE], "outputs": [{"text": HOSTILE}]}]})
    files = {HOSTILE: HOSTILE, "train.py": f"x = 1\n{HOSTILE}\n", "look.ipynb": notebook, "binary": "\0"}
    archive = packed({name: text.encode() for name, text in files.items()})
    hostile = experiment(
        2,
        name=HOSTILE,
        description=HOSTILE,
        notes=HOSTILE,
        labels=[HOSTILE],
        reason=HOSTILE,
        warning=HOSTILE,
        state=State.ERROR,
        original_config=HOSTILE,
        parent_id=1,
        context_sha256=contexts.keep(home, archive),
    )
    served.put([experiment(1, context_sha256=contexts.keep(home, packed({"train.py": b"x = 1\n"}))), hostile])
    served.put([row for number in (1, 2, 3) for row in trained(trial(number))])
    served.put(trained(trial(4, 2, index=0, hparams={HOSTILE: HOSTILE}, reason=HOSTILE, warning=HOSTILE)))
    served.put([launched("broken", name=HOSTILE, reason=HOSTILE, owner=HOSTILE, state=State.ERROR)])
    return Visitor(served.url).enter(served)
