"""Rows in a file, one JSON line each: ``{"table": ..., "key": [...], "row": {...}}``. The last line with a key counts; a row that
is null was dropped."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import fields
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from dethpc.domain import facts, records

_KEYS: dict[type, tuple[str, ...]] = {**facts.KEYS, **records.KEYS}
_KINDS: dict[str, type] = {kind.__name__: kind for kind in _KEYS}
_encode = json.JSONEncoder(default=str).encode  # one for all lines: json.dumps would make one for each


def to_line(row: Any, *, dropped: bool = False) -> str:
    if dropped:
        return f"{_begin(row)}null}}\n"
    kind: Any = type(row)
    names, _ = _fields(kind)
    values = {name: getattr(row, name) for name in names}
    return f"{_begin(row)}{_encode(values)}}}\n"


def from_line(line: str) -> tuple[type, tuple[Any, ...], Any]:
    """Kind, key and row of a line. Raises ValueError or KeyError when the line is damaged."""
    obj = json.loads(line)
    kind, key = _KINDS[obj["table"]], tuple(obj["key"])
    if obj["row"] is None:
        return kind, key, None
    _, hints = _fields(kind)
    return (
        kind,
        key,
        kind(**{name: _restore(hints[name], value) for name, value in obj["row"].items() if name in hints}),
    )


def _begin(row: Any) -> str:
    """What the lines of one key have in common."""
    return (
        _encode({"table": type(row).__name__, "key": [getattr(row, name) for name in _KEYS[type(row)]]})[:-1]
        + ', "row": '
    )


@cache
def _fields(kind: type) -> tuple[tuple[str, ...], dict[str, Any]]:
    return tuple(field.name for field in fields(kind)), get_type_hints(kind)


def _restore(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    for kind in (hint, *get_args(hint)):
        if isinstance(kind, type) and issubclass(kind, Enum):
            return kind(value)
    return value


class RowFile:
    """One thread writes. A line that was being written when the machine stopped is skipped by whoever reads."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, rows: Sequence[Any], *, dropped: bool = False) -> None:
        """Raises: OSError; some of the rows may be in the file then, and all may be appended again."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a") as file:
            # The empty line ends what a writer that was killed left behind, so that it spoils no line but its own.
            file.write("\n" + "".join(to_line(row, dropped=dropped) for row in rows))

    def become(self, rows: Sequence[Any]) -> None:
        """Hold these rows and no other line: in one step, on disk when this returns. Nothing happens when it does already.

        Raises: OSError; the file is what it was then.
        """
        text = "".join(map(to_line, rows))
        with contextlib.suppress(FileNotFoundError):
            if self.path.read_bytes() == text.encode():
                return
        staged = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with open(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        staged.replace(self.path)

    def missing(self, rows: Sequence[Any]) -> list[Any]:
        """Those rows that are not what the file's last line of their key says. Raises: OSError."""
        last: dict[int, int] = {}  # hashes, for a file may have a million lines
        try:
            with open(self.path, "rb") as file:
                for line in file:
                    last[hash(line[: line.find(b'"row": ')])] = hash(line)
        except FileNotFoundError:
            return list(rows)

        def says(row: Any) -> bool:
            line = to_line(row).encode()
            return last.get(hash(line[: line.find(b'"row": ')])) == hash(line)

        return [row for row in rows if not says(row)]

    def rows(self) -> Iterator[Any]:
        """Every row, in order: some several times. Nothing when there is no file. Raises: OSError."""
        return (row for _, _, row in self.lines() if row is not None)

    def lines(self) -> Iterator[tuple[type, tuple[Any, ...], Any]]:
        """As ``rows``, each with its kind and key; None for one that was dropped."""
        try:
            with open(self.path, encoding="utf-8", errors="replace") as file:
                for line in file:
                    try:
                        yield from_line(line)
                    except (ValueError, KeyError):
                        continue
        except FileNotFoundError:
            return
