"""One change to a configuration: a field makes room for others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dethpc.errors import Path, dotted


class Edit(NamedTuple):
    """The field at ``path``, which had the value ``was``, makes room for ``fields``, in its mapping and in its place."""

    path: Path
    was: Any
    fields: Mapping[str, Any]
    why: str = ""

    def paths(self) -> list[Path]:
        return [(*self.path[:-1], name) for name in self.fields]

    def __str__(self) -> str:
        now = ", ".join(f"{dotted((*self.path[:-1], name))}: {spell(value)}" for name, value in self.fields.items())
        return f"{dotted(self.path)}: {spell(self.was)} -> {now}" + (f" ({self.why})" if self.why else "")


def spell(value: Any) -> str:
    """A number, a word or a mapping of them, as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {spell(inner)}" for name, inner in value.items()) + "}"
    return str(value)


def edited(data: Mapping[str, Any], edits: Iterable[Edit]) -> dict[str, Any]:
    """``data`` with the edits made, as new mappings where something changed. The order of keys is kept."""
    out = dict(data)
    for edit in edits:
        out = _edited(out, edit.path, edit.fields)
    return out


def _edited(data: Mapping[str, Any], path: Path, fields: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in data.items():
        if name != path[0]:
            out[name] = value
        elif len(path) == 1:
            out.update(fields)
        else:
            out[name] = _edited(value, path[1:], fields)
    return out
