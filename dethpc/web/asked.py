"""A request for a page, and the answers that a page can give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode

from starlette.responses import Response

from dethpc.client.session import Session
from dethpc.web.access import Caller


@dataclass(frozen=True, slots=True)
class PageRequest:
    """``parts``: the variables of the path; ``query`` and ``form``: the last value of each name; ``every`` has all of a name.
    ``since``: what was committed when it was asked."""

    session: Session
    path: str
    parts: Mapping[str, str]
    pairs: tuple[tuple[str, str], ...] = ()
    form_pairs: tuple[tuple[str, str], ...] = ()
    since: str = ""
    who: Caller | None = None

    @property
    def caller(self) -> Caller:
        """Who asks; pages that only say what went wrong have none."""
        assert self.who is not None
        return self.who

    @property
    def query(self) -> dict[str, str]:
        return dict(self.pairs)

    @property
    def form(self) -> dict[str, str]:
        return dict(self.form_pairs)

    def every(self, name: str) -> list[str]:
        return [value for key, value in self.pairs if key == name and value]

    def form_values(self, name: str) -> list[str]:
        """All values of a name in the form."""
        return [value for key, value in self.form_pairs if key == name and value]

    def number(self, name: str) -> int:
        """A variable of the path that is a number."""
        return int(self.parts[name])

    def count(self, name: str, default: int, most: int) -> int:
        """A number from the query, 0 to ``most``; what is none counts as ``default``."""
        text = self.query.get(name, "")
        return min(int(text), most) if text.isdecimal() and len(text) < 10 else default

    def changed(self, **changes: object) -> str:
        """This page's query with changes (None: left out), as text that begins with "?". What is chosen in a list is left out."""
        unchanged = [(name, value) for name, value in self.pairs if name not in {"chosen", *changes} and value]
        fields = [*unchanged, *((name, str(value)) for name, value in changes.items() if value is not None)]
        return "?" + urlencode(fields, safe=",")


@dataclass(frozen=True, slots=True)
class Page:
    """A template and what it shows. ``live``: what a commit has to concern for the page to be made again ("" for nothing)."""

    template: str
    shown: dict[str, object]
    live: str = ""
    status: int = 200


@dataclass(frozen=True, slots=True)
class Goto:
    """To another page, below the root of the pages. ``message`` is shown there once."""

    path: str
    message: str = ""

    def relative_to(self, path: str) -> str:
        page, _, query = self.path.lstrip("/").partition("?")
        fields = [query] * bool(query) + ([f"said={quote(self.message)}"] if self.message else [])
        return up(path) + "?".join(part for part in (page, "&".join(fields)) if part)


@dataclass(frozen=True, slots=True)
class Download:
    """A file, made while it is sent. ``pieces`` may ask the master; closed when the browser goes away."""

    name: str
    pieces: Iterator[str] | Iterator[bytes]
    kind: str = "text/plain; charset=utf-8"


Answer = Page | Goto | Download | Response
Handler = Callable[[PageRequest], Answer]


def up(path: str) -> str:
    """From ``path``, below the root of the pages, to that root: links work under any prefix that a proxy puts before it."""
    return "../" * path.strip("/").count("/") or "./"


def pairs(text: str, most: int = 2000) -> tuple[tuple[str, str], ...]:
    """A query or a form. Raises ValueError when it has more than ``most`` fields."""
    return tuple(parse_qsl(text, keep_blank_values=True, max_num_fields=most))
