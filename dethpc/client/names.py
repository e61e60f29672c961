"""What a text means where an id, its beginning or a name may be given."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, NamedTuple, Sequence

from dethpc.errors import NotFound, Refused

_SHORTEST = 4  # letters of an id that name it
_MOST = 10  # candidates in a message
_NEAR = 3  # of those like what was typed
_FEW = 5  # of any noun: all of them are worth a message


class Candidate(NamedTuple):
    """``details``: what tells it from others of its name."""

    id: str
    name: str = ""
    details: str = ""

    def __str__(self) -> str:
        rest = ", ".join(filter(None, (self.name, self.details)))
        return f"{self.id} ({rest})" if rest else self.id


def choose(
    noun: str, text: str, candidates: Iterable[Candidate], *, beginnings: bool = False, command: str = ""
) -> str:
    """The id of the candidate that ``text`` names: an id, else a name, or with ``beginnings`` the beginning of an id.
    ``command`` shows all of them; "": ``det NOUN list``. Raises NotFound, with names like it; Refused, with the candidates,
    where there are several."""
    rows = list(candidates)
    chosen = [row for row in rows if row.id == text] or [
        row for row in rows if row.name == text or (beginnings and len(text) >= _SHORTEST and row.id.startswith(text))
    ]
    if not chosen:
        raise NotFound(f"there is no {noun} {text!r}{_near(text, rows)}; {command or f'det {noun} list'} shows them")
    if len(chosen) > 1:
        raise Refused(f"{len(chosen)} {noun}s are called {text!r}; give an id: {listed(chosen)}")
    return chosen[0].id


def find(
    noun: str, text: str, rows: Sequence[Dict[str, Any]], *, id: str = "id", name: str = "name", command: str = ""
) -> Dict[str, Any]:
    """The row of this name, else of this id, for nouns that are called by their names. ``id`` and ``name``: the fields of the rows
    that have them. Raises NotFound, with names like it; Refused, with the candidates, where there are several."""
    named = [row for row in rows if row[name] == text]
    if len(named) == 1:
        return named[0]
    by_id = {str(row[id]): row for row in rows}
    candidates = (Candidate(key, row[name], row.get("workspaceName", "")) for key, row in by_id.items())
    return by_id[choose(noun, text, candidates, command=command)]


def listed(candidates: Sequence[Candidate]) -> str:
    more = f", and {len(candidates) - _MOST} more" if len(candidates) > _MOST else ""
    return f"{', '.join(map(str, candidates[:_MOST]))}{more}"


def _near(text: str, candidates: Sequence[Candidate]) -> str:
    """``, but there is digits (id 12)``: those whose name contains ``text`` or is like it; all, where they are few."""
    import difflib

    names: List[str] = [row.name for row in candidates if row.name]
    like = [name for name in names if text.lower() in name.lower()] or difflib.get_close_matches(text, names)
    near = [row for row in candidates if row.name in like][:_NEAR] or (candidates if len(names) <= _FEW else [])
    shown = [
        f"{row.name} ({', '.join(filter(None, (f'id {row.id}', row.details)))})" if row.name else row.id for row in near
    ]
    return f", but there {'is' if len(shown) == 1 else 'are'} {', '.join(shown)}" if shown else ""
