"""What a disk can hold after a power failure: all that was synced, and any part of what was not.

``power_loss.c`` keeps the journal. A file's bytes are safe once it is synced; until then each sector of each write may be there or
not. Names (created, renamed, removed) become safe in order, and with any sync, as journaling file systems do it.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512
_HEAD = struct.Struct("<cQQQI")
_SOURCE = Path(__file__).with_name("power_loss.c")


def build(folder: Path) -> Path:
    """The library to preload."""
    made = folder / "power_loss.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", made, _SOURCE, "-ldl"], check=True)
    return made


def preload(library: Path, root: Path, journal: Path) -> dict[str, str]:
    """The environment of a program whose files below ``root`` are watched."""
    return {"LD_PRELOAD": str(library), "POWER_LOSS_ROOT": str(root.resolve()), "POWER_LOSS_LOG": str(journal)}


@dataclass(frozen=True, slots=True)
class Record:
    kind: str  # a letter of power_loss.c, or "said": a line that a program wrote to the journal itself
    inode: int = 0
    at: int = 0
    data: bytes = b""


def records(journal: Path) -> Iterator[Record]:
    rest = memoryview(journal.read_bytes())
    while rest:
        if rest[:1].tobytes().isdigit():
            line = rest[:80].tobytes().partition(b"\n")[0]
            yield Record("said", data=line)
            rest = rest[len(line) + 1 :]
            continue
        if len(rest) < _HEAD.size:
            return
        kind, inode, at, _, size = _HEAD.unpack(rest[: _HEAD.size])
        yield Record(kind.decode(), inode, at, rest[_HEAD.size : _HEAD.size + size].tobytes())
        rest = rest[_HEAD.size + size :]


@dataclass(frozen=True, slots=True)
class Before:
    """A folder, copied before the journal begins."""

    root: Path
    copy: Path
    names: dict[str, int]

    @classmethod
    def of(cls, root: Path, copy: Path) -> Before:
        shutil.copytree(root, copy)
        return cls(root, copy, {str(path): path.stat().st_ino for path in root.rglob("*") if path.is_file()})


@dataclass
class Disk:
    before: Before
    names: dict[str, int] = field(default_factory=dict)
    files: dict[int, bytearray] = field(default_factory=dict)  # what is safe, of those that changed
    waiting: dict[int, list[Record]] = field(default_factory=dict)
    waiting_names: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = dict(self.before.names)

    def take(self, record: Record) -> None:
        if record.kind == "C":
            self.files[record.inode], self.waiting[record.inode] = bytearray(), []
        if record.kind in "WT":
            self.waiting.setdefault(record.inode, []).append(record)
        elif record.kind == "S":
            self._content(record.inode)
            for each in self.waiting.pop(record.inode, []):
                _apply(self.files[record.inode], each)
            self._rename(self.waiting_names)
            self.waiting_names = []
        else:
            self.waiting_names.append(record)

    def fail(self, chance: random.Random, image: Path) -> None:
        """Make ``image`` one of the folders that could be there when the power comes back. Nothing more can be taken."""
        self._rename(self.waiting_names[: chance.randint(0, len(self.waiting_names))])
        for inode, waiting in self.waiting.items():
            content, kept = self._content(inode), chance.choice((0.0, 0.5, 0.9, 1.0))
            for each in waiting:
                for sector in _sectors(each):
                    if chance.random() < kept:
                        _apply(content, sector)
        shutil.copytree(self.before.copy, image)
        there = {Path(name).relative_to(self.before.root): inode for name, inode in self.names.items()}
        for path in list(image.rglob("*")):
            if path.is_file() and path.relative_to(image) not in there:
                path.unlink()
        for name, inode in there.items():
            if inode in self.files:
                (image / name).parent.mkdir(exist_ok=True)
                (image / name).write_bytes(self.files[inode])

    def _content(self, inode: int) -> bytearray:
        if inode not in self.files:
            name = next((name for name, each in self.before.names.items() if each == inode), None)
            old = self.before.copy / Path(name).relative_to(self.before.root) if name else None
            self.files[inode] = bytearray(old.read_bytes() if old else b"")
        return self.files[inode]

    def _rename(self, changes: list[Record]) -> None:
        for each in changes:
            if each.kind == "C":
                self.names[os.fsdecode(each.data)] = each.inode
            elif each.kind == "R":
                old, _, new = os.fsdecode(each.data).partition("\0")
                self._content(each.inode)
                self.names.pop(old, None)
                self.names[new] = each.inode
            elif each.kind == "U":
                self.names.pop(os.fsdecode(each.data), None)


def _apply(content: bytearray, record: Record) -> None:
    end = record.at + len(record.data)
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if record.kind == "T":
        del content[record.at :]
    else:
        content[record.at : end] = record.data


def _sectors(record: Record) -> Iterator[Record]:
    if record.kind == "T":
        yield record
        return
    begin = 0
    while begin < len(record.data):
        end = min(len(record.data), begin + SECTOR - (record.at + begin) % SECTOR)
        yield Record("W", record.inode, record.at + begin, record.data[begin:end])
        begin = end
