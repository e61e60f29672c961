"""Getting in: one-time links, passwords, cookies, and requests that other sites send."""

from __future__ import annotations

import html
import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dethpc.client import Session
from dethpc.client.in_process import InProcess
from dethpc.client.nouns import tokens, users
from dethpc.errors import DethpcError, Unauthorized
from dethpc.master.http import codes, page_sessions
from dethpc.master.http.app import create_app
from dethpc.master.http.auth import Auth
from dethpc.web.access import May
from dethpc.web.pages import ROUTES
from tests.master.conftest import Served, experiment
from tests.waiting import LONG_ENOUGH
from tests.web.conftest import Visitor


def test_a_link_logs_in_once(served: Served, stranger: Visitor) -> None:
    made = served.session.post("/api/v1/auth/code")
    stranger.named_by(made["host"])
    got = stranger.get(f"enter?code={made['code']}")
    assert got.status == 200 and 'href="./experiments"' in got.text and stranger.proof
    cookie = got.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "domain" not in cookie
    assert "expires" not in cookie and "max-age" not in cookie, "it ends with the browser, too"
    assert stranger.get("experiments").status == 200
    second = Visitor(served.url).named_by(made["host"])
    assert second.get(f"enter?code={made['code']}").status == 401 and not second.cookie


def test_a_link_under_another_name_of_loopback_leads_to_the_pages_own(served: Served, stranger: Visitor) -> None:
    for name in ("127.0.0.1", "localhost", "[::1]", "another.localhost"):
        made = served.session.post("/api/v1/auth/code")
        got = stranger.named_by(name).get(f"enter?code={made['code']}&next=queue")
        assert "set-cookie" not in got.headers and made["host"] in got.text, name
        again = html.unescape(re.search(r'url=([^"]+)"', got.text)[1])  # type: ignore[index]
        there = urlsplit(again)
        assert there.hostname == made["host"] and there.port == urlsplit(served.url).port
        arrived = stranger.named_by(made["host"]).get(again.partition("/det/")[2])
        assert arrived.headers["set-cookie"] and 'href="./queue"' in arrived.text


def test_nobody_learns_the_name_of_the_pages_who_cannot_come_in(served: Served, stranger: Visitor) -> None:
    host = served.session.post("/api/v1/auth/code")["host"]
    for page in ("", "login", "enter?code=wrong", "experiments", "nowhere"):
        got = stranger.get(page)
        assert host not in got.text and host not in str(got.headers), page
    assert host not in stranger.post("login", {"username": served.owner, "password": "wrong"}).text


def test_a_cookie_counts_under_the_name_alone_that_it_was_given_for(visitor: Visitor) -> None:
    assert visitor.get("experiments").status == 200
    for name in ("localhost", "127.0.0.1", "0123456789abcdef0123456789abcdef.localhost"):
        assert visitor.named_by(name).get("experiments").status == 303, name


def test_a_link_that_was_used_leads_who_is_logged_in_to_the_pages(visitor: Visitor, served: Served) -> None:
    code = served.session.post("/api/v1/auth/code")["code"]
    assert visitor.get(f"enter?code={code}").status == 200
    got = visitor.get(f"enter?code={code}")
    assert got.status == 303 and "experiments" in got.headers["location"]
    assert "used" in got.headers["location"] and visitor.get("experiments").status == 200


def test_who_only_looks_at_what_a_link_leads_to_has_not_used_it(served: Served, stranger: Visitor) -> None:
    made = served.session.post("/api/v1/auth/code")
    stranger.named_by(made["host"])
    looked = stranger._ask("HEAD", f"enter?code={made['code']}", None, {})
    assert looked.status == 200 and "set-cookie" not in looked.headers
    assert stranger.get(f"enter?code={made['code']}").headers["set-cookie"]


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to be another user")
def test_another_user_of_this_machine_gets_in_by_no_link(served: Served, stranger: Visitor) -> None:
    """Whose connection it is, the kernel says. The link stays good for the one who asked for it."""
    made = served.session.post("/api/v1/auth/code")
    asked = [
        sys.executable,
        "-c",
        OTHER_USER,
        str(urlsplit(served.url).port),
        f"/det/enter?code={made['code']}",
        made["host"],
    ]
    answer = subprocess.run(asked, capture_output=True, text=True, timeout=LONG_ENOUGH, check=True).stdout
    assert answer.startswith("401") and "belongs to another user" in answer and "set-cookie" not in answer.lower()
    assert stranger.named_by(made["host"]).get(f"enter?code={made['code']}").headers["set-cookie"]


OTHER_USER = """
import http.client, os, sys
'x'.encode('idna'); os.setuid(12345)
port, path, host = sys.argv[1:]
connection = http.client.HTTPConnection('127.0.0.1', int(port))
connection.request('GET', path, headers={'Host': host})
answer = connection.getresponse()
print(answer.status, answer.getheaders(), answer.read().decode())
"""


def test_a_link_ends_after_a_while(served: Served, stranger: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "LIFESPAN", -1.0)
    code = served.session.post("/api/v1/auth/code")["code"]
    assert stranger.get(f"enter?code={code}").status == 401


def test_a_form_of_somebody_whose_login_has_ended_leads_to_the_login(stranger: Visitor) -> None:
    got = stranger.post("experiments/1/act", {"action": "pause"})
    assert got.status == 401 and re.search(r'href="[./]*login">Log in', got.text)


def test_the_oldest_codes_go_when_there_are_too_many(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "MOST", 2)
    made = [served.session.post("/api/v1/auth/code")["code"] for _ in range(3)]
    assert [Visitor(served.url).get(f"enter?code={code}").status for code in made] == [401, 200, 200]


@pytest.mark.parametrize("page", ["", "experiments", "experiments/1", "trials/1/series.json", "sessions"])
def test_a_stranger_is_sent_to_the_login_and_from_there_where_it_wanted_to_go(
    served: Served, stranger: Visitor, page: str
) -> None:
    served.put([experiment(1)])
    got = stranger.get(page)
    assert got.status == 303 and "login?next=" in got.headers["location"]
    form = {"username": served.owner, "password": served.token, "next": page}
    entered = stranger.named_by(served.session.post("/api/v1/auth/code")["host"]).post("login", form)
    assert entered.headers["set-cookie"] and f'href="./{page or "experiments"}"' in entered.text
    assert stranger.get(page or "experiments").status == 200


def test_nobody_is_sent_to_another_site(served: Served, stranger: Visitor) -> None:
    stranger.named_by(served.session.post("/api/v1/auth/code")["host"])
    for where in ("//evil.example", "https://evil.example", "\\\\evil", "javascript:alert(1)"):
        form = {"username": served.owner, "password": served.token, "next": where}
        assert 'href="./experiments"' in stranger.post("login", form).text


def test_a_wrong_password_is_said_and_sets_no_cookie(served: Served, stranger: Visitor) -> None:
    got = stranger.post("login", {"username": served.owner, "password": "wrong"})
    assert got.status == 401 and "invalid credentials" in got.text and not stranger.cookie


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "", "Origin": "http://evil"},
    ],
)
def test_a_form_of_another_site_does_nothing(visitor: Visitor, served: Served, headers: dict[str, str]) -> None:
    assert visitor.post("experiments/1/act", {"action": "archive"}, **headers).status == 403
    assert not served.session.get("/api/v1/experiments/1")["experiment"]["archived"]


def test_nothing_that_a_browser_has_opens_the_api(visitor: Visitor, served: Served) -> None:
    """Neither cookie nor proof nor what renews a session, in any form in which tokens are shown."""
    renewal = json.loads(visitor.post("renewal", {}).text)
    for secret in (visitor.cookie, visitor.proof, *renewal.values()):
        for headers in (
            {"Authorization": f"Bearer {secret}"},
            {"Grpc-Metadata-X-Allocation-Token": f"Bearer {secret}"},
            {"Cookie": f"{visitor.named}={secret}"},
            {"Cookie": f"auth={secret}"},
            {"X-Dethpc-Proof": secret},
        ):
            for method, path in (("GET", "experiments"), ("POST", "tokens"), ("POST", "auth/code"), ("GET", "me")):
                connection = http.client.HTTPConnection(served.url.removeprefix("http://"))
                connection.request(method, f"/api/v1/{path}", headers={"Host": visitor.host, **headers})
                assert connection.getresponse().status == 401, (method, path, headers)
                connection.close()


FORMS = [
    ("experiments/act", {"action": "archive", "id": "1"}),
    ("experiments/1/act", {"action": "archive"}),
    ("experiments/1/edit", {"notes": "changed"}),
    ("experiments/1/fork", {"action": "create", "config": "name: x"}),
    ("experiments/1/continue", {"action": "create", "config": ""}),
    ("trials/1/act", {"action": "kill", "confirmed": "1"}),
    ("trials/1/continue", {"action": "create", "config": "name: x"}),
    ("checkpoints/0123/act", {"action": "delete", "confirmed": "1"}),
    ("tasks/broken/act", {"action": "kill", "confirmed": "1"}),
    ("tasks/new", {"action": "launch", "program": "true", "slots": "0"}),
    ("tensorboards", {"action": "launch", "experiment": "1"}),
    ("queue/act", {"action": "ahead", "job": "1", "other": "2"}),
    ("doctor/act", {}),
    ("sessions/act", {"action": "end-all", "confirmed": "1"}),
    ("webhooks/new", {"action": "create", "name": "x", "url": "https://x.example", "ERROR": "1"}),
    ("webhooks/1/act", {"action": "test"}),
]


def test_there_is_a_form_for_each_page_that_changes_something() -> None:
    changing = {path.partition("/{")[0].strip("/").partition("/")[0] for method, path, _ in ROUTES if method == "POST"}
    assert changing - {"login", "logout"} == {path.partition("/")[0] for path, _ in FORMS}


@pytest.mark.parametrize("path, form", FORMS)
def test_a_cookie_alone_changes_nothing(visitor: Visitor, served: Served, path: str, form: dict[str, str]) -> None:
    proof, visitor.proof = visitor.proof, ""
    before = served.session.get("/api/v1/experiments")
    for wrong in ("", "wrong", visitor.cookie):
        got = visitor.post(path, {**form, "proof": wrong})
        assert got.status == 403 and "Is it you?" in got.text and 'name="proof"' not in got.text
    assert visitor.post("renewal", {}).status == 401
    assert served.session.get("/api/v1/experiments") == before and visitor.get("experiments").status == 200
    assert "Is it you?" not in visitor.post(path, {**form, "proof": proof}).text


def test_without_javascript_a_password_or_a_link_does_what_the_form_wants(visitor: Visitor, served: Served) -> None:
    visitor.proof = ""
    archived = lambda: served.session.get("/api/v1/experiments/1")["experiment"]["archived"]  # noqa: E731
    asked = visitor.post("experiments/1/act", {"action": "archive"})
    assert 'name="action" value="archive"' in asked.text and 'name="confirm-by"' in asked.text
    got = visitor.post("experiments/1/act", {"action": "archive", "confirm-by": "wrong"})
    assert got.status == 403 and "invalid credentials" in got.text and not archived()
    assert "wrong" not in re.findall(r'value="([^"]*)"', got.text), "what was typed is not sent back"
    assert visitor.post("experiments/1/act", {"action": "archive", "confirm-by": served.token}).status == 303
    assert archived()
    link = f"http://x.localhost:1/det/enter?code={served.session.post('/api/v1/auth/code')['code']}"
    assert visitor.post("experiments/1/act", {"action": "unarchive", "confirm-by": link}).status == 303
    assert not archived()
    assert visitor.post("experiments/1/act", {"action": "archive", "confirm-by": link}).status == 403, "once"


def test_what_runs_code_asks_again_when_the_login_is_old(
    visitor: Visitor, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork = {"action": "create", "config": CONFIG, "paused": "1"}
    assert visitor.post("experiments/1/fork", fork).status == 303
    monkeypatch.setattr(page_sessions, "FRESH", -1.0)
    count = len(served.session.get("/api/v1/experiments")["experiments"])
    for path in ("experiments/1/fork", "experiments/1/continue", "trials/1/continue"):
        assert "Is it you?" in visitor.post(path, fork).text, path
        assert "Is it you?" not in visitor.post(path, {**fork, "action": "check"}).text, path
    assert len(served.session.get("/api/v1/experiments")["experiments"]) == count
    assert visitor.post("experiments/1/act", {"action": "archive"}).status == 303, "which runs nothing"
    assert visitor.post("experiments/1/fork", {**fork, "confirm-by": served.token}).status == 303
    monkeypatch.setattr(page_sessions, "FRESH", 3600.0)
    assert visitor.post("experiments/1/fork", fork).status == 303, "not again for some minutes"


CONFIG = """
name: forked
entrypoint: python3 train.py
searcher: {name: single, metric: loss, max_length: 1}
"""


def test_the_api_refuses_a_page_what_it_has_not_shown_enough_for(visitor: Visitor, served: Served) -> None:
    """Behind the pages' own question, for a handler that forgets it."""
    pages = served.daemon.services.auth.pages
    login = pages.find(visitor.cookie, visitor.host.partition(":")[0])
    assert login is not None
    app, loop = create_app(served.daemon.services), None
    forbidden = {
        May.READ: [
            "POST experiments/1/archive",
            "PATCH experiments/1",
            "DELETE experiments/1",
            "POST auth/code",
            CREATE,
        ],
        May.ACT: ["POST auth/code", "POST tokens", "POST experiments/continue", "POST users/1/password", CREATE],
        May.RUN: [],
    }
    for may, requests in forbidden.items():
        transport = InProcess(app, loop, state={"grant": pages.grant(login, may)})
        session = Session(transport, None, retries=0)
        assert session.get("/api/v1/me")["user"]["username"] == served.owner
        for request in requests:
            method, path = request.split()
            with pytest.raises(DethpcError, match="a page has to"):
                session.request(method, f"/api/v1/{path}", json={"config": CONFIG} if request == CREATE else {})
        transport.close()


CREATE = "POST experiments"


def test_a_page_reads_by_post_what_only_a_post_can_ask(visitor: Visitor, served: Served) -> None:
    pages = served.daemon.services.auth.pages
    login = pages.find(visitor.cookie, visitor.host.partition(":")[0])
    assert login is not None
    transport = InProcess(create_app(served.daemon.services), None, state={"grant": pages.grant(login, May.READ)})
    session = Session(transport, None, retries=0)
    assert session.post("/api/v1/experiments-search", {})["experiments"]
    assert session.post("/api/v1/runs", {})["runs"]
    assert session.post("/api/v1/roles/search", {})["roles"]
    transport.close()


def test_two_masters_on_one_host_have_cookies_of_their_own(visitor: Visitor, served: Served) -> None:
    """Browsers tell them apart by name, and by no port."""
    assert visitor.named.endswith(served.daemon.installation.cluster_id[:8])
    visitor.named = "dethpc_session_of_another"
    assert visitor.get("experiments").status == 303


def test_another_site_puts_no_words_into_our_mouth(visitor: Visitor) -> None:
    assert "trust evil.example" in visitor.get("experiments?said=trust+evil.example").text
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    assert "trust evil.example" not in visitor.get("login?said=trust+evil.example", **elsewhere).text
    assert "trust evil.example" not in visitor.get("experiments?said=trust+evil.example", **elsewhere).text
    stranger = Visitor(visitor.url).get("experiments?said=trust+evil.example&name=a", **elsewhere)
    assert "experiments?name=a&amp;followed=1" in stranger.text, "the page is asked for again, without them"


def test_logging_out_ends_the_login(visitor: Visitor) -> None:
    kept = visitor.cookie
    assert visitor.post("logout", {}).status == 303
    visitor.cookie = kept
    assert visitor.get("experiments").status == 303


def test_a_run_cannot_look_at_pages(served: Served) -> None:
    from tests.master.conftest import run_of, trial

    served.put([experiment(1), trial(1)])
    token = "det-run:1.1.1:x"
    served.as_run(run_of(trial(1), ended_at=None), token)
    run = Visitor(served.url)
    run.cookie = token
    assert run.get("experiments").status == 303


def test_answers_forbid_what_they_do_not_need(visitor: Visitor) -> None:
    headers = visitor.get("experiments").headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
    static = visitor.get("experiments").text.partition('href="./static/')[2].partition('"')[0]
    assert "immutable" in visitor.get(f"static/{static}").headers["cache-control"]
    assert visitor.get("static/other/style.css").status == 404
    assert visitor.get(f"static/{static.partition('/')[0]}/../app.py").status == 404


def test_each_login_is_listed_and_ended(visitor: Visitor, served: Served) -> None:
    firefox = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:115.0) Gecko/20100101 Firefox/115.0"}
    code = served.session.post("/api/v1/auth/code")["code"]
    other = Visitor(visitor.url)
    other.host = visitor.host
    assert other.get(f"enter?code={code}", **firefox).status == 200
    shown = visitor.get("sessions").text
    assert "Firefox on Linux" in shown and shown.count(">this browser<") == 1
    (theirs,) = [each["id"] for each in users.logins(served.session) if "Firefox" in each["program"]]
    assert visitor.post("sessions/act", {"action": "end", "login": str(theirs), "confirmed": "1"}).status == 303
    assert other.get("experiments").status == 303 and visitor.get("experiments").status == 200
    assert "Firefox" not in visitor.get("sessions").text
    token = tokens.create(served.session, users.me(served.session)["id"])["tokenId"]
    got = visitor.post("sessions/act", {"action": "end", "login": str(token), "confirmed": "1"})
    assert "login" in got.text and got.status == 404, "an access token is no login"


def test_a_login_ends_its_streams_too(visitor: Visitor) -> None:
    assert visitor.post("logout", {}).status == 303
    for stream in ("events?of=experiments", "trials/1/logs/follow"):
        assert visitor.get(stream).status == 401


def test_what_another_page_of_this_host_sends_does_nothing(visitor: Visitor, served: Served) -> None:
    """A proxied task has the portal's origin or a port of its own: a form of it is same-site, never same-origin, without scripts of
    ours; its requests carry no cookie that opens the API."""
    for headers in ({"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "", "Origin": "http://127.0.0.1:1"}):
        assert visitor.post("sessions/act", {"action": "end-all"}, **headers).status == 403
    assert visitor.get("experiments").status == 200


def test_behind_tls_the_cookie_travels_over_tls_alone(served: Served) -> None:
    for scheme, secure in (("https", True), ("http", False)):
        code = served.session.post("/api/v1/auth/code")["code"]
        forwarded = {"X-Forwarded-Proto": scheme, "X-Forwarded-Host": "portal.site"}
        got = Visitor(served.url).get(f"enter?code={code}", **forwarded)
        assert ("secure" in got.headers["set-cookie"].lower()) is secure


def test_a_session_ends_with_its_master_process(visitor: Visitor, served: Served) -> None:
    """The next one has neither its cookie, nor its proof, nor its host name."""
    auth = served.daemon.services.auth
    again = Auth(served.daemon.installation.home.root, served.owner, served.daemon.store, auth._records)
    assert again.pages.local != auth.pages.local
    assert auth.pages.find(visitor.cookie, auth.pages.local) is not None
    assert again.pages.find(visitor.cookie, auth.pages.local) is None


def test_a_page_goes_on_with_the_next_master_which_proves_itself(visitor: Visitor, served: Served) -> None:
    auth, home = served.daemon.services.auth, served.daemon.installation.home.root
    pass_ = json.loads(visitor.post("renewal", {}).text)
    assert opened(pass_, auth.pages.successor(pass_["name"], NONCE, HERE, "x")) == {"server": "loopback 1"}
    again = Auth(home, served.owner, served.daemon.store, auth._records)
    answer = again.pages.successor(pass_["name"], NONCE, HERE, again.pages.local)
    message = opened(pass_, answer)
    assert message["server"] == "loopback 1", "a relay to the master at another port is seen"
    assert message["host"] == again.pages.local not in str(answer) and message["code"] not in str(answer)
    begun = again.pages.begin(again.pages.redeem(message["code"], "", ""), again.pages.local)
    login = again.pages.find(begun.cookie, again.pages.local)
    assert login is not None and again.pages.may(login, begun.proof) is May.ACT, "which proves no password"
    assert [row["current"] for row in users.logins(served.session)] == [False], "the same login"


def test_a_login_that_was_ended_is_not_renewed(visitor: Visitor, served: Served) -> None:
    auth, home = served.daemon.services.auth, served.daemon.installation.home.root
    pass_ = json.loads(visitor.post("renewal", {}).text)
    auth.end_all()
    for pages in (auth.pages, Auth(home, served.owner, served.daemon.store, auth._records).pages):
        for name in (pass_["name"], "1." + "0" * 64, "x", ""):
            with pytest.raises(Unauthorized):
                pages.successor(name, NONCE, HERE, "x")


NONCE, HERE = "0" * 64, ("127.0.0.1", 1)


def opened(pass_: dict[str, str], answer: Mapping[str, str]) -> dict[str, str]:
    """As session.js does."""
    key, iv, sealed = (bytes.fromhex(text) for text in (pass_["key"], answer["iv"], answer["sealed"]))
    message: dict[str, str] = json.loads(AESGCM(key).decrypt(iv, sealed, NONCE.encode()))
    return message
