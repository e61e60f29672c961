"""Answers of models that were never made: their JSON is put together from texts, some of them as the database holds them.

To check and to write a hundred models takes longer than to read what they say. What comes out is what the model would write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from typing import Any, Generic, TypeVar

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from dethpc.domain.reports import MOST_LEVELS
from dethpc.master.http.wire.base import plain

Model = TypeVar("Model", bound=BaseModel)


class Spliced(Generic[Model]):
    """The JSON of a ``Model``."""

    def __init__(self, text: str) -> None:
        self.text = text


class Template(Generic[Model]):
    """Writes the JSON of a model from its values. Those of ``texts`` are JSON already, whole or in pieces; others are spelled as
    ``base.Plain`` spells them. Fields that have no value have their default."""

    def __init__(self, model: type[Model], texts: Collection[str]) -> None:
        fields = model.model_fields.items()
        self._defaults = {name: field.get_default() for name, field in fields if not field.is_required()}
        aliases = {name: field.serialization_alias or field.alias or name for name, field in fields}
        # What comes one after the other and is no text is written at once.
        self._parts = [
            (is_text, [(aliases[name], name) for name in names])
            for is_text, names in groupby(aliases, key=lambda name: name in texts)
        ]

    def written(self, values: Mapping[str, Any]) -> str:
        values = {**self._defaults, **values}
        parts: list[str] = []  # joined once: a list of a thousand may be megabytes
        for is_text, names in self._parts:
            if is_text:
                for alias, name in names:
                    text = values[name]
                    parts += (",", f'"{alias}":')
                    parts += (text,) if isinstance(text, str) else text
            else:
                parts += (",", _written({alias: values[name] for alias, name in names}))
        parts[0] = "{"
        parts.append("}")
        return "".join(parts)

    def spliced(self, **values: Any) -> Spliced[Model]:
        return Spliced(self.written(values))


def _written(fields: dict[str, Any]) -> str:
    """Without the braces."""
    try:
        text = to_json(fields).decode()
    except PydanticSerializationError:  # half of a surrogate pair
        text = ""
    if not text or "NaN" in text or "Infinity" in text:
        text = to_json(plain(fields)).decode()
    return text[1:-1]


def listed(items: Iterable[str]) -> list[str]:
    """A list, in pieces."""
    pieces = [piece for item in items for piece in (",", item)]
    return ["[", *pieces[1:], "]"]


def stored(text: str) -> str:
    """What ``base.Plain`` makes of the value that a column holds as ``text``."""
    if _TO_BE_SPELLED.search(text) is None and text.count("{") + text.count("[") <= MOST_LEVELS:
        return text
    return to_json(plain(json.loads(text))).decode()


_TO_BE_SPELLED = re.compile(r"\\u|NaN|Infinity|[0-9]e[+-]")
"""What JSON's writers spell in different ways; also where it is a part of a text."""
