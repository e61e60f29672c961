"""Getting in: one-time links, passwords, cookies, and requests that other sites send."""

from __future__ import annotations

import re

import pytest

from dethpc.client import tokens, users
from dethpc.master.http import codes
from tests.master.conftest import Served, experiment
from tests.web.conftest import Visitor


def test_a_link_logs_in_once(served: Served, stranger: Visitor) -> None:
    code = served.session.post("/api/v1/auth/code")["code"]
    got = stranger.get(f"enter?code={code}")
    assert got.status == 303 and got.headers["location"] == "./experiments"
    cookie = got.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert stranger.get("experiments").status == 200
    second = Visitor(served.url)
    assert second.get(f"enter?code={code}").status == 401 and not second.cookie


def test_a_link_that_was_used_leads_who_is_logged_in_to_the_pages(visitor: Visitor, served: Served) -> None:
    code = served.session.post("/api/v1/auth/code")["code"]
    for _ in range(2):
        got = visitor.get(f"enter?code={code}")
        assert got.status == 303 and "experiments" in got.headers["location"]
    assert "used" in got.headers["location"] and visitor.get("experiments").status == 200


def test_who_only_looks_at_what_a_link_leads_to_has_not_used_it(served: Served, stranger: Visitor) -> None:
    code = served.session.post("/api/v1/auth/code")["code"]
    looked = stranger._ask("HEAD", f"enter?code={code}", None, {})
    assert looked.status == 200 and "set-cookie" not in looked.headers
    assert stranger.get(f"enter?code={code}").status == 303


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
    assert [Visitor(served.url).get(f"enter?code={code}").status for code in made] == [401, 303, 303]


@pytest.mark.parametrize("page", ["", "experiments", "experiments/1", "trials/1/series.json", "sessions"])
def test_a_stranger_is_sent_to_the_login_and_from_there_where_it_wanted_to_go(
    served: Served, stranger: Visitor, page: str
) -> None:
    served.put([experiment(1)])
    got = stranger.get(page)
    assert got.status == 303 and "login?next=" in got.headers["location"]
    form = {"username": served.owner, "password": served.token, "next": page}
    entered = stranger.post("login", form)
    assert entered.status == 303 and entered.headers["location"] == f"./{page or 'experiments'}"


def test_nobody_is_sent_to_another_site(served: Served, stranger: Visitor) -> None:
    for where in ("//evil.example", "https://evil.example", "\\\\evil", "javascript:alert(1)"):
        form = {"username": served.owner, "password": served.token, "next": where}
        assert stranger.post("login", form).headers["location"] == "./experiments"


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


def test_a_cookie_is_good_for_pages_alone(visitor: Visitor, served: Served) -> None:
    import http.client

    connection = http.client.HTTPConnection(served.url.removeprefix("http://"))
    connection.request("GET", "/api/v1/experiments", headers={"Cookie": f"{visitor.named}={visitor.cookie}"})
    assert connection.getresponse().status == 401
    connection.close()


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
    assert other.get(f"enter?code={code}", **firefox).status == 303
    shown = visitor.get("sessions").text
    assert "Firefox on Linux" in shown and shown.count(">this browser<") == 1
    (theirs,) = [each["id"] for each in users.logins(served.session) if "Firefox" in each["program"]]
    assert visitor.post("sessions/act", {"action": "end", "login": str(theirs), "sure": "1"}).status == 303
    assert other.get("experiments").status == 303 and visitor.get("experiments").status == 200
    assert "Firefox" not in visitor.get("sessions").text
    token = tokens.create(served.session, users.me(served.session)["id"])["tokenId"]
    got = visitor.post("sessions/act", {"action": "end", "login": str(token), "sure": "1"})
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
        got = Visitor(served.url).get(f"enter?code={code}", **{"X-Forwarded-Proto": scheme})
        assert ("secure" in got.headers["set-cookie"].lower()) is secure
