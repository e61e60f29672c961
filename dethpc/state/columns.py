"""Column types that keep a Python value exactly, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable
from enum import Enum
from typing import Any

from pydantic_core import from_json, to_json
from sqlalchemy import BigInteger, Boolean, Dialect, Double, Integer, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from dethpc.errors import StoreError

Whole: TypeEngine[int] = BigInteger().with_variant(Integer(), "sqlite")
"""A 64-bit integer. SQLite calls only INTEGER a row id."""

Flag = Boolean

_encode = json.JSONEncoder(separators=(",", ":")).encode


class StorableText(TypeDecorator[str]):
    """Any text. What no database can hold (NUL, lone surrogates) becomes the replacement character, so that a strange
    message from a job cannot block a transaction for ever."""

    impl = Text
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Any:
        return _sound


def _sound(value: Any) -> Any:
    if value is None or (value.isascii() and "\0" not in value):
        return value
    return value.replace("\0", "\ufffd").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Number(TypeDecorator[float]):
    """A float. SQLite would turn NaN into NULL, so it is text there; it sorts above all numbers, as on PostgreSQL."""

    impl = Double
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Any:
        return _nan_as_text if dialect.name == "sqlite" else None

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return _text_as_nan if dialect.name == "sqlite" else None


def _nan_as_text(value: Any) -> Any:
    return value if value is None or value == value else "NaN"


def _text_as_nan(value: Any) -> Any:
    return float(value) if isinstance(value, str) else value


class Json(TypeDecorator[Any]):
    """Lists, dicts and scalars as JSON text; NaN and infinities too, which PostgreSQL's own JSON types refuse."""

    impl = Text
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Any:
        return _encoded

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return decoded


def _encoded(value: Any) -> str:
    """Of reports nearly all are numbers, or mappings of names to numbers: ``json`` takes several times as long to write these."""
    if type(value) is float and math.isfinite(value):
        return repr(value)
    if type(value) is dict and _FLAT.issuperset(map(type, value.values())):
        with contextlib.suppress(ValueError):  # half of a surrogate pair in a name
            text = to_json(value)
            if text.isascii():
                return text.decode()
    return _encode(value)


_FLAT = frozenset((float, int, bool, type(None)))


_read = json.JSONDecoder().raw_decode


def decoded(text: Any) -> Any:
    """A list has thousands of them, most as short as "{}": to look for blanks around each takes longer than to read it."""
    if text is None:
        return None
    value, end = _read(text) if text[:1] > " " else (None, 0)
    return value if end == len(text) else json.loads(text)


def decoded_all(texts: Iterable[str]) -> list[Any]:
    """What a column of JSON holds in many rows: reading each by itself takes several times as long."""
    text = f"[{','.join(texts)}]"
    try:
        return from_json(text)  # type: ignore[no-any-return]
    except ValueError:  # half of a surrogate pair, or lists as deep as only ``json`` reads them
        return json.loads(text)  # type: ignore[no-any-return]


class Choice(TypeDecorator[Enum]):
    """An enum, by value."""

    impl = Text
    cache_ok = True

    def __init__(self, choices: type[Enum]) -> None:
        super().__init__()
        self.choices = choices
        self._by_value = {choice.value: choice for choice in choices}

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else self.choices(value).value

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return self._chosen

    def _chosen(self, value: Any) -> Enum | None:
        try:
            return None if value is None else self._by_value[value]
        except KeyError:
            raise StoreError(
                f"the state database holds {value!r}, which this release knows of no {self.choices.__name__}: a newer release of "
                "dethpc wrote it; upgrade dethpc, or restore a backup made before the upgrade"
            ) from None
