"""What the pages point to exists: other pages, their headings, files, requests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dethpc.master.http.middleware import PUBLIC
from dethpc.master.http.nouns import ROUTERS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("*.md"))


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub names them."""
    headings = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        path = page.parent / file if file else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target


def test_the_table_of_contents_has_every_page() -> None:
    contents = (DOCS / "index.md").read_text()
    assert not [page.name for page in PAGES if page.name != "index.md" and f"({page.name})" not in contents]


def test_the_requests_of_the_api_page_exist() -> None:
    known = {f"{method} {route.path}" for router in ROUTERS for route in router.routes for method in route.methods}  # type: ignore[attr-defined]
    page = (DOCS / "api.md").read_text()
    said = re.findall(r"`((?:GET|POST|PUT|PATCH|DELETE) /[^`?]*)", page)
    assert said and set(said) <= known
    (public,) = re.findall(r"Every request but those to (.*?) carries a token", page, re.DOTALL)
    assert set(re.findall(r"`([^`]+)`", public)) <= PUBLIC
