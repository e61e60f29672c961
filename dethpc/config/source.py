"""YAML text to plain data, remembering where each value stands.

Scalars follow YAML 1.2's core schema, as the configurations in circulation expect: ``1e-3`` is a number, ``yes`` and ``05:00``
are strings. Keys are always text. Anchors and merge keys work; a key that stands twice is a mistake.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from dethpc.config.wording import show
from dethpc.domain.reports import MOST_LEVELS
from dethpc.errors import Path, Problem, dotted

MAX_BYTES = 256 << 10
"""Bound on the text of one document, looked at before it is parsed: that takes some ten seconds for each megabyte."""

MAX_VALUES = 100_000
"""Bound on the values of one document, aliases expanded: a small text can otherwise unfold into gigabytes."""

_TAG = "tag:yaml.org,2002:"
_INT = re.compile(r"[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+")


class _CoreLoader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[Any, Any] = {}


_PATTERNS = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": _INT.pattern,
    "float": r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    "merge": r"<<",
}


class _CoreDumper(yaml.SafeDumper):
    """Quotes what any generation of YAML would take for something else than text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        # YAML's rarer line breaks do not survive outside double quotes.
        style = '"' if any(mark in data for mark in "\x85\u2028\u2029\ufeff") else None
        return self.represent_scalar(_TAG + "str", data, style)


_CoreDumper.add_representer(str, _CoreDumper.represent_str)


for _name, _pattern in _PATTERNS.items():
    for _class in (_CoreLoader, _CoreDumper):
        _class.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), None)


def dump(data: Any) -> str:
    """Plain data as YAML that ``read`` understands, keys in their order."""
    return yaml.dump(data, Dumper=_CoreDumper, sort_keys=False, allow_unicode=True)


class Place(NamedTuple):
    """Where a value was written. ``line`` is 1-based; None where lines mean nothing."""

    file: str
    line: int | None


@dataclass
class Source:
    """Plain data (mappings, lists, scalars) and the place of each of its values."""

    data: dict[str, Any]
    places: dict[Path, Place] = field(default_factory=dict)

    def place(self, path: Path) -> Place:
        """The place of ``path``, or of the nearest thing above it that was written."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.places:
                return self.places[path[:end]]
        return Place("config", None)

    def get(self, path: Path) -> Any:
        """The value at ``path``, None when there is none."""
        value: Any = self.data
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def placed(self, problem: Problem) -> Problem:
        """The problem, told where its value was written."""
        return problem.at(*self.place(problem.path))


def _malformed(error: yaml.MarkedYAMLError) -> tuple[str, str | None]:
    """What is wrong for a parser, in words for who wrote it, and a hint."""
    message, inside = str(error.problem), str(error.context or "")
    message = message.replace("'<scalar>'", "more text").replace("<block end>", "a new line")
    if "'\\t'" in message:
        return "the line is indented with a tab; YAML needs spaces", None
    if "flow" in inside and "'<stream end>'" in message:
        mapping = "mapping" in inside
        return (
            f"the file ends inside {'{ ... }' if mapping else '[ ... ]'}: add the closing {'}' if mapping else ']'}",
            None,
        )
    if message == "found unexpected end of stream":
        return "the file ends inside quotes: add the closing one", None
    if message == "mapping values are not allowed here":
        return (
            "': ' stands where no key can be: indent the line like those beside it, or put a text with ': ' in quotes",
            None,
        )
    if start := re.fullmatch(r"found character ('.') that cannot start any token", message):
        return f"a value that begins with {start[1]} must be in quotes", None
    if expected := re.fullmatch(r"expected (.+?),? but (?:got|found) (.+)", message):
        return f"there must be {expected[1]} here, not {expected[2]}", error.context
    return f"this is no YAML: {message}", error.context


def read_value(text: str, file: str) -> tuple[Any, dict[Path, Place], list[Problem]]:
    """Any YAML document as plain data, the places of its values, and what is wrong with it."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        message = f"{size >> 10} KiB of text; at most {MAX_BYTES >> 10} KiB: put large lists into files in the context directory"
        return None, {}, [Problem("YAML", message).at(file)]
    try:
        node = yaml.compose(text, Loader=_CoreLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        return None, {}, [Problem("YAML", *_malformed(error)).at(file, line)]
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        return (
            None,
            {},
            [Problem("YAML", f"YAML cannot hold the character #x{error.character:04x}").at(file, line)],
        )
    except RecursionError:
        return None, {}, [Problem("YAML", f"values are nested more than {MOST_LEVELS} levels deep").at(file)]
    if node is None:
        return None, {(): Place(file, 1)}, []
    reader = _Reader(file)
    try:
        value = reader.value(node, ())
    except _TooMuch:
        return None, {}, [Problem("YAML", f"there are more than {MAX_VALUES:,} values").at(file)]
    except RecursionError:
        return None, {}, [Problem("YAML", f"values are nested more than {MOST_LEVELS} levels deep").at(file)]
    return value, reader.places, reader.problems


def read(text: str, file: str) -> tuple[Source, list[Problem]]:
    """A YAML document whose top is a mapping, without its keys that begin with ``x-``: they hold what anchors stand at. An empty
    document is an empty mapping."""
    data, places, problems = read_value(text, file)
    places.setdefault((), Place(file, 1))
    if not isinstance(data, dict):
        if data is not None:
            problems.append(Problem.of_value("config", show(data), "a mapping of fields to values").at(file, 1))
        data = {}
    return Source({key: value for key, value in data.items() if not str(key).startswith("x-")}, places), problems


class _TooMuch(Exception):
    pass


class _Reader:
    """Turns composed nodes into data, noting places and mistakes on the way."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.places: dict[Path, Place] = {}
        self.problems: list[Problem] = []
        self._open: set[int] = set()  # the nodes above the present one: meeting one again is a cycle
        self._count = 0

    def value(self, node: yaml.Node, path: Path) -> Any:
        self._count += 1
        if self._count > MAX_VALUES:
            raise _TooMuch
        if len(path) > MOST_LEVELS:
            raise RecursionError
        self.places.setdefault(path, self._place(node))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._open:
            self._wrong(node, path, "the alias stands inside what it stands for")
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                self._check_tag(node, path, "seq")
                return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
            self._check_tag(node, path, "map")
            return self._mapping(node, path)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.Node, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        written: dict[str, int] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                merged += value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self._wrong(key_node, path, "a key must be text")
                continue
            line = key_node.start_mark.line + 1
            key = self._text(key_node, path)
            if key in written:
                self._wrong(key_node, (*path, key), f"the key is there twice, also on line {written[key]}")
                continue
            written[key] = line
            here = (*path, key)
            self.places[here] = Place(self.file, line)
            values[key] = self.value(value_node, here)
        for base in merged:
            if not isinstance(base, yaml.MappingNode) or id(base) in self._open:
                self._wrong(base, path, "<<: can merge mappings only")
                continue
            self._open.add(id(base))
            for key, value in self._mapping(base, path).items():
                values.setdefault(key, value)
            self._open.discard(id(base))
            # What was written here stands where it was written here, not where the anchor is.
            self.places.update({(*path, key): Place(self.file, line) for key, line in written.items()})
        return values

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        kind, text = node.tag.removeprefix(_TAG), self._text(node, path)
        try:
            if kind in ("str", "merge"):
                return text
            if kind == "null":
                return None
            if kind == "bool":
                return {"true": True, "false": False}[text.lower()]
            if kind == "int" and _INT.fullmatch(text):
                plain = text.replace("_", "")
                return int(plain, {"0x": 16, "0o": 8}.get(plain[:2], 10))
            if kind == "float":
                number = float(text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
                if math.isfinite(number):
                    return number
                self._wrong(node, path, f"must be a finite number, not {show(text)}")
                return None
        except (KeyError, ValueError):
            pass
        else:
            if kind != "int":
                self._wrong(node, path, _no_tag(node))
                return None
        self._wrong(node, path, f"must be a value of type {kind}, not {show(text)}")
        return None

    def _text(self, node: yaml.ScalarNode, path: Path) -> str:
        """What a scalar spells. JSON escapes an emoji as a pair that makes one character; half a pair spells nothing, and no file,
        database or answer could hold it."""
        text = str(node.value)
        if text.isascii():
            return text
        try:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            self._wrong(node, path, f"{show(text)} cannot be written in UTF-8")
            return text.encode("utf-8", "replace").decode()

    def _check_tag(self, node: yaml.Node, path: Path, kind: str) -> None:
        if node.tag != _TAG + kind:
            self._wrong(node, path, _no_tag(node))

    def _place(self, node: yaml.Node) -> Place:
        return Place(self.file, node.start_mark.line + 1)

    def _wrong(self, node: yaml.Node, path: Path, message: str) -> None:
        self.problems.append(Problem(dotted(path), message).at(self.file, self._place(node).line))


def _no_tag(node: yaml.Node) -> str:
    return f"tags such as {node.tag} have no meaning here; write the plain value"
