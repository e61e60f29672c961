"""Column types that keep a Python value exactly, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import json
from enum import Enum
from typing import Any

from sqlalchemy import BigInteger, Boolean, Dialect, Double, Integer, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from dethpc.errors import StoreError

Whole: TypeEngine[int] = BigInteger().with_variant(Integer(), "sqlite")
"""A 64-bit integer. SQLite calls only INTEGER a row id."""

Flag = Boolean

_encode = json.JSONEncoder(separators=(",", ":")).encode


class Words(TypeDecorator[str]):
    """Any text. What no database can hold (NUL, lone surrogates) becomes the replacement character, so that a strange
    message from a job cannot block a transaction for ever."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
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

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        return _encode(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


class Choice(TypeDecorator[Enum]):
    """An enum, by value."""

    impl = Text
    cache_ok = True

    def __init__(self, choices: type[Enum]) -> None:
        super().__init__()
        self.choices = choices

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else self.choices(value).value

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        try:
            return None if value is None else self.choices(value)
        except ValueError:
            raise StoreError(
                f"the state database holds {value!r}, which this release knows of no {self.choices.__name__}: a newer release of "
                "dethpc wrote it; upgrade dethpc, or restore a backup made before the upgrade"
            ) from None
