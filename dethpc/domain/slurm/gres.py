"""Generic resources (GRES) and trackable resources (TRES) in Slurm's notation, of requests and of nodes. Pure.

A request's entry is ``name[[:type]:count]``. Slurm takes a last part that begins with a digit or a sign for the count, so
``gpu:3090`` asks for 3090 GPUs of any type and ``gpu:3090:4`` for four of type 3090; ``gpu:2080ti`` it refuses, as dethpc does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, Iterable, List, Mapping

from dethpc.errors import GresError

GPU = "gpu"

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_COUNT = re.compile(r"\+?(\d+)([KMGTP]?)", re.ASCII | re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_][\w.+-]*", re.ASCII)
_TYPE = re.compile(r"[^\s:=,()/]+")
_STARTS_A_COUNT = frozenset("0123456789+-")
_ABSENT = frozenset({"", "(null)", "none", "n/a"})  # as a whole text: no GRES


@dataclass(frozen=True)
class Gres:
    """So many of one resource. ``type`` "": of any type. ``name`` may be a TRES, such as ``cpu`` or ``license/matlab``."""

    name: str
    type: str = ""
    count: int = 1

    def __str__(self) -> str:
        return ":".join(part for part in (self.name, self.type, str(self.count)) if part)


def is_type(text: str) -> bool:
    """Whether a site can name a kind of resource so."""
    return _TYPE.fullmatch(text) is not None


def requested(text: str) -> List[Gres]:
    """What ``--gres`` asks for on each node; ``none`` asks for nothing. Raises GresError."""
    if text.strip().lower() == "none":
        return []
    return _distinct([_entry(item.strip(), text) for item in text.split(",")], text)


def requested_gpus(text: str) -> List[Gres]:
    """What ``--gpus`` and its kind ask for: ``4``, ``a100:2``, ``a100:2,v100:1``. Raises GresError."""
    return _distinct([_entry(f"{GPU}:{item.strip()}", text) for item in text.split(",")], text)


def requested_tres(text: str) -> List[Gres]:
    """What ``--tres-per-task`` asks for: ``cpu=4,gres/gpu:a100=2``; GRES are without their prefix. Raises GresError."""
    return _distinct([_entry(item.strip(), text) for item in text.split(",")], text)


def of_node(text: str) -> List[Gres]:
    """What a node has or has in use: ``gpu:a100:4(S:0-1),tmp:no_consume:100G`` or ``cpu=8,gres/gpu:a100=4``. Never raises: what
    cannot be read is left out, but a GPU is never."""
    if text.strip().lower() in _ABSENT:
        return []
    resources = []
    for item in _without_brackets(text).split(","):
        parts = [part for part in re.split("[:=]", _bare(item.strip())) if part and part != "no_consume"]
        if not parts:
            continue
        number = _COUNT.fullmatch(parts[-1]) if len(parts) > 1 else None
        kind = parts[1:-1] if number else parts[1:]
        resources.append(Gres(parts[0], ":".join(kind), _number(number) if number else 1))
    return resources


def gpus_of_node(text: str) -> Dict[str, int]:
    """GPUs by type, "" where the type has no name."""
    return by_type(gres for gres in of_node(text) if gres.name == GPU)


def by_type(resources: Iterable[Gres]) -> Dict[str, int]:
    counts: Dict[str, int] = {}
    for gres in resources:
        counts[gres.type] = counts.get(gres.type, 0) + gres.count
    return counts


def written(resources: Iterable[Gres]) -> str:
    """As ``--gres`` takes them."""
    return ",".join(map(str, resources))


def gpus_of_names(counts: Mapping[str, int]) -> Dict[str, int]:
    """The same of pyslurm's ``{"gpu:a100": 4, "tmp": 1}``."""
    gpus: Dict[str, int] = {}
    for key, count in counts.items():
        name, _, kind = _bare(key).partition(":")
        if name == GPU:
            gpus[kind] = gpus.get(kind, 0) + count
    return gpus


def _entry(item: str, text: str) -> Gres:
    name, *rest = re.split("[:=]", _bare(item))
    if not _NAME.fullmatch(name.partition("/")[0]) or len(rest) > 2 or re.search(r"\s", item):
        raise GresError(f"{item or text!r} is not name[[:type]:count]")
    if not rest:
        return Gres(name)
    number = _COUNT.fullmatch(rest[-1])
    if number is None and (len(rest) == 2 or rest[0][:1] in _STARTS_A_COUNT or not _TYPE.fullmatch(rest[0])):
        of_digits = len(rest) == 1 and _TYPE.fullmatch(rest[0])
        hint = f"; write {name}:{rest[0]}:1 for one of type {rest[0]}" if of_digits else ""
        raise GresError(f"{rest[-1]!r} in {item!r} is not a count{hint}")
    if len(rest) == 2 and not _TYPE.fullmatch(rest[0]):
        raise GresError(f"{rest[0]!r} in {item!r} is not a type")
    kind = rest[0] if len(rest) == 2 or number is None else ""
    return Gres(name, kind, _number(number) if number else 1)


def _distinct(resources: List[Gres], text: str) -> List[Gres]:
    """A resource that is named twice counts as it was named last, as in Slurm."""
    last = {(gres.name, gres.type): gres for gres in resources}
    for gres in last.values():
        if gres.type and (gres.name, "") in last:
            raise GresError(f"{text!r} asks for {gres.name} both with and without a type")
    return list(last.values())


def _bare(item: str) -> str:
    """Without the prefixes by which Slurm tells GRES from other TRES."""
    return re.sub(r"^gres[/:]", "", item)


def _number(match: re.Match[str]) -> int:
    return int(match[1]) * _UNITS[match[2].upper()]


def _without_brackets(text: str) -> str:
    """``(S:0-1)`` and ``(IDX:0,2-3)`` say where the devices are, with commas of their own."""
    return re.sub(r"\([^()]*\)?", "", text)
