"""Rows in a file, one JSON line each: ``{"table": ..., "key": [...], "row": {...}, "crc": "..."}``. The last line with a key
counts; a row that is null was dropped. ``crc`` is the CRC-32 of what stands before it."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import fields
from enum import Enum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from zlib import crc32

from dethpc.domain import facts, records
from dethpc.rundir.files import left_by_writers, replacement

_KEYS: dict[type, tuple[str, ...]] = {**facts.KEYS, **records.KEYS}
_KINDS: dict[str, type] = {kind.__name__: kind for kind in _KEYS}
_UNIONS = (Union, UnionType)
_ROW = b'"row": '
_CRC = b', "crc": "'
_WITHOUT_CRC = {"table", "key", "row"}
_WITH_CRC = _WITHOUT_CRC | {"crc"}
_encode = json.JSONEncoder(default=str).encode  # one for all lines: json.dumps would make one for each


def to_line(row: Any, *, dropped: bool = False) -> str:
    text = to_text(row, dropped=dropped)
    return f'{text}, "crc": "{crc32(text.encode()):08x}"}}\n'


def to_text(row: Any, *, dropped: bool = False) -> str:
    """What a line says, without its checksum."""
    kind: Any = type(row)
    names, _ = _fields(kind)
    held = None if dropped else {name: getattr(row, name) for name in names}
    if held is not None:
        for name, default in _sparse(kind):
            if held[name] == default:
                del held[name]
    return _encode({"table": kind.__name__, "key": key_of(row), "row": held})[:-1]


def key_of(row: Any) -> tuple[Any, ...]:
    """What tells ``row`` apart from the others of its kind."""
    return tuple(getattr(row, name) for name in _KEYS[type(row)])


def from_line(line: str | bytes) -> tuple[type, tuple[Any, ...], Any]:
    """Kind, key and row of a line. Raises ValueError when the line is damaged: no database has to be asked whether it takes the
    row."""
    line = line.encode() if isinstance(line, str) else line
    try:
        obj = json.loads(line)
        if not _is_whole(line, obj.keys()):
            raise ValueError("its checksum is another")
        kind, key = _KINDS[obj["table"]], tuple(obj["key"])
        if not all(isinstance(part, (str, int)) for part in key):
            raise ValueError("its key is no key")
        if obj["row"] is None:
            return kind, key, None
        _, hints = _fields(kind)
        row = kind(**{name: _restore(hints[name], value) for name, value in obj["row"].items() if name in hints})
        if key != key_of(row):
            raise ValueError("the row has another key")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"damaged line: {line[:80]!r}: {error}") from None
    return kind, key, row


def _is_whole(line: bytes, fields: Collection[str] = _WITH_CRC) -> bool:
    """Whether the line says what was written. One that an early release wrote has no checksum: ``fields`` tells."""
    if fields == _WITHOUT_CRC:
        return True
    text, _, crc = line.rpartition(_CRC)
    return fields == _WITH_CRC and crc.rstrip() == b'%08x"}' % crc32(text)


def _text(line: bytes) -> bytes:
    """What ``to_text`` gave, of a line that is whole; of another something else."""
    text, crc, _ = line.rpartition(_CRC)
    if not crc:
        return line.rstrip()[:-1]
    return text if _is_whole(line) else line


@cache
def _fields(kind: type) -> tuple[tuple[str, ...], dict[str, Any]]:
    return tuple(field.name for field in fields(kind)), get_type_hints(kind)


@cache
def _sparse(kind: type) -> tuple[tuple[str, Any], ...]:
    """See ``facts.SPARSE``: names and defaults."""
    return tuple((field.name, field.default) for field in fields(kind) if field.metadata.get("sparse"))


def _restore(hint: Any, value: Any) -> Any:
    """``value`` as the field has it. Raises ValueError when the field cannot have it."""
    expected = _expected(hint)
    if Any in expected:
        return value
    for kind in expected:
        if issubclass(kind, Enum):
            return None if value is None and type(None) in expected else kind(value)
    if type(value) not in expected or (type(value) is int and not -(2**63) <= value < 2**63):
        raise ValueError(f"{value!r} is no {hint}")
    return value


@cache
def _expected(hint: Any) -> tuple[Any, ...]:
    """The types that JSON may give for a field."""
    types = [get_origin(kind) or kind for kind in (get_args(hint) if get_origin(hint) in _UNIONS else (hint,))]
    return (*types, int) if float in types else tuple(types)


class RowFile:
    """One thread writes. A line that was being written when the machine stopped is skipped by its readers.

    Another process may write all the same: a master that was frozen after its look at the lease, and thawed. What it wrote may be
    older than the lines before it, and counts, for it is the last: ``is_strange`` tells, and ``insist`` mends.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._size: int | None = None  # bytes, with what was written here and nothing else; None: nothing was

    def append(self, rows: Sequence[Any], *, dropped: bool = False) -> bool:
        """Returns whether the file begins with them. Raises: OSError; some of the rows may be in the file then, and all may be
        appended again."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The empty line ends what a writer that was killed left behind, so that it spoils no line but its own.
        text = ("\n" + "".join(to_line(row, dropped=dropped) for row in rows)).encode()
        with open(os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as file:
            before = os.fstat(file.fileno()).st_size
            file.write(text)
        if self._size in (None, before):
            self._size = before + len(text)
        return not before

    @property
    def begun(self) -> bool:
        """Whether a line was written from here."""
        return self._size is not None

    def is_strange(self) -> bool:
        """Whether another process has written to the file since its first line from here, or removed it."""
        try:
            return self._size is not None and self.path.stat().st_size != self._size
        except FileNotFoundError:
            return True

    def insist(self, rows: Sequence[Any]) -> None:
        """Append those of ``rows`` that are not what the file says, after another process wrote to it. Raises: OSError; it is as
        strange as before then."""
        strange, size = self._size, self.path.stat().st_size
        try:
            missing = self.missing(rows)
            self._size = size
            if missing:
                self.append(missing)
        except OSError:
            self._size = strange
            raise

    def become(self, rows: Sequence[Any]) -> None:
        """Hold these rows and no other line: in one step, on disk when this returns. Nothing happens when it does already.

        Raises: OSError; the file is what it was then.
        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = "".join(map(to_line, rows)).encode()
        with contextlib.suppress(FileNotFoundError):
            if self.path.read_bytes() == text:
                self._size = len(text)
                return
        self._replace(text)

    def compact(self, check_lease: Callable[[], None] = lambda: None) -> None:
        """Leave out lines that a later one with their key replaces, and damaged ones that it repeats.

        ``check_lease`` raises when another master may have appended since the file was read: then it stays as it is. Raises: that,
        and as ``become``.
        """
        with open(self.path, "rb") as file:
            lines = list(file)
        if self._size not in (None, sum(map(len, lines))):
            return  # it is strange: the last line of a key need not be the one that counts
        latest: list[bytes] = []
        seen: set[bytes] = set()
        for line in reversed(lines):
            key, row, _ = line.partition(_ROW)
            if (row and key in seen) or not line.strip():
                continue
            latest.append(line)
            if row and _is_readable(line):  # before a damaged line, an earlier one of its key still counts
                seen.add(key)
        if len(latest) < len(lines):
            self._replace(b"".join(reversed(latest)), check_lease)

    def _replace(self, text: bytes, check_lease: Callable[[], None] = lambda: None) -> None:
        # The second pattern is that of 0.1.0.
        before_0_2 = self.path.parent.glob(f".{glob.escape(self.path.name)}.*")
        for staged in (*map(Path, left_by_writers(self.path)), *before_0_2):
            staged.unlink(missing_ok=True)
        with replacement(self.path, check=check_lease) as file:
            file.write(text)
        self._size = len(text)

    def missing(self, rows: Sequence[Any]) -> list[Any]:
        """Those rows that are not what the file's last line of their key says. Raises: OSError."""
        return self.compare(rows)[0]

    def compare(self, rows: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """``missing`` rows, and the file's rows whose keys none of ``rows`` has. Raises: OSError."""
        last: dict[int, int] = {}  # hashes, for a file may have a million lines
        try:
            with open(self.path, "rb") as file:
                for line in file:
                    if (end := line.find(_ROW)) >= 0:
                        last[hash(line[:end])] = hash(_text(line))
        except FileNotFoundError:
            return list(rows), []
        missing, keys = [], set()
        for row in rows:
            text = to_text(row).encode()
            beginning = hash(text[: text.find(_ROW)])
            keys.add(beginning)
            if last.get(beginning) != hash(text):
                missing.append(row)
        return missing, [] if last.keys() <= keys else self._unknown(rows)

    def _unknown(self, rows: Sequence[Any]) -> list[Any]:
        keys = {(type(row), key_of(row)) for row in rows}
        last = {(kind, key): row for kind, key, row in self.lines()}
        return [row for key, row in last.items() if key not in keys and row is not None]

    def rows(self, damaged: list[int] | None = None) -> Iterator[Any]:
        """Every row, in order: some several times. Nothing when there is no file. Raises: OSError."""
        return (row for _, _, row in self.lines(damaged) if row is not None)

    def lines(self, damaged: list[int] | None = None) -> Iterator[tuple[type, tuple[Any, ...], Any]]:
        """As ``rows``, each with its kind and key; None for one that was dropped.

        ``damaged`` gets, at the end, the numbers of the lines that could not be read; not of those that a later line repeats:
        the next master writes again what the last one was killed over.
        """
        bad: dict[Any, int] = {}
        try:
            with open(self.path, "rb") as file:
                for number, line in enumerate(file, 1):
                    if not line.strip():
                        continue
                    try:
                        entry = from_line(line)
                    except ValueError:
                        bad[_damaged_key(line) or number] = number
                        continue
                    if bad:
                        bad.pop(_CUT_OFF, None)
                        bad.pop(entry[:2], None)
                    yield entry
        except FileNotFoundError:
            return
        if damaged is not None:
            damaged += sorted(bad.values())


def _is_readable(line: bytes) -> bool:
    if _is_whole(line):
        return True
    try:
        from_line(line)
    except ValueError:
        return False
    return True


_CUT_OFF = "cut off"
_BEGINNING = re.compile(rb'\{"table": "(\w+)", "key": (\[[^]]*\]), "row": ')


def _damaged_key(line: bytes) -> Any:
    """Which row a damaged line is of; ``_CUT_OFF`` for one that was never finished; None when it does not say."""
    if match := _BEGINNING.match(line):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return _KINDS[match[1].decode()], tuple(json.loads(match[2]))
    return _CUT_OFF if line.startswith(b'{"table"'[: len(line.rstrip())]) and not line.rstrip().endswith(b"}") else None
