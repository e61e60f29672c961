"""Collects the files of a context directory, in the form in which they are sent.

A ``.detignore`` at the top of the directory keeps files out, with the meaning that git gives to the same lines in a
``.gitignore`` there, and brings back what is left out by default. Symbolic links are sent as links and never followed. A home of
dethpc's is never sent, whatever ``.detignore`` says: it holds the key to a master.
"""

from __future__ import annotations

import base64
import os
import stat
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dethpc.context import LIMIT
from dethpc.context.ignore import Ignore
from dethpc.domain.context_files import LEFT_OUT
from dethpc.errors import ContextError
from dethpc.rundir.home import Home, home
from dethpc.rundir.tree import stays

IGNORE_FILE = ".detignore"
_NAMED = 5  # how many culprits an error names
_MARKS = {Home("").token.name, Home("").cluster_file.name}  # of a home, the user's own or another one
_SHOWN = 20  # how many files that cannot be sent are named: a virtual environment of another name may have thousands


@dataclass(frozen=True)
class Entry:
    """One file, directory or link. ``path`` is relative with ``/``; ``type`` a tar type flag; ``source`` where it is read."""

    path: str
    type: bytes
    mode: int
    mtime: int
    size: int
    source: Path
    link: str = ""

    def content(self) -> bytes:
        """What is sent of it: a file's bytes, a link's target. Raises ContextError when the file cannot be read or has grown."""
        if self.type != tarfile.REGTYPE:
            return os.fsencode(self.link)
        try:
            with open(self.source, "rb") as file:
                content = file.read(self.size + 1)
        except OSError as error:
            raise _unreadable(self.source, error) from None
        if len(content) > self.size:
            raise ContextError(f"{self.source} is being written to; try again, or leave it out with {IGNORE_FILE}")
        return content


@dataclass(frozen=True)
class Context:
    """What goes along with an experiment, sorted by path; a directory comes before what is in it.

    ``left_out``: what is not sent because of its name, such as ``.venv``, or by a pattern for the same name. ``homes``: what is not
    because it is a home of dethpc's.
    """

    entries: tuple[Entry, ...]
    left_out: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Bytes of all files together."""
        return sum(entry.size for entry in self.entries)

    def model_definition(self) -> list[dict[str, Any]]:
        """The entries in Determined's wire form; ``content`` is base64, of a link its target. Raises ContextError."""
        return [
            {
                "path": entry.path,
                "type": ord(entry.type),
                "content": base64.b64encode(entry.content()).decode("ascii"),
                "mtime": entry.mtime,
                "mode": entry.mode,
                "uid": 0,
                "gid": 0,
            }
            for entry in self.entries
        ]


def collect(directory: Path | None, includes: Sequence[Path] = (), *, limit: int = LIMIT) -> Context:
    """The files of ``directory``, and each of ``includes`` at the top level under its own name.

    An included directory has its own ``.detignore``. Raises one ContextError for all that is wrong: too large (naming the largest
    files), unreadable, a name that is there twice, a link to outside, a directory that is a home itself.
    """
    search = _Search()
    if directory is not None:
        if not directory.is_dir():
            raise ContextError(f"{directory} is not a directory; a single file is sent with --include")
        search.walk(directory, "")
    for include in includes:
        name = Path(os.path.abspath(include)).name
        if not name:
            raise ContextError(f"{include} has no name to be sent under")
        if include.is_dir():
            search.walk(include, name + "/")
        else:
            search.add(name, include, follow=True)
    problems = [*_all(search.problems), *_same_names(search.entries), *_too_large(search.entries, limit)]
    if problems:
        raise ContextError("\n".join(problems))
    entries = sorted(search.entries, key=lambda entry: entry.path.split("/"))
    return Context(tuple(entries), tuple(search.left_out), tuple(search.homes))


class _Search:
    """What was found so far, and what of it cannot be sent: a walk goes on after a problem, to find the others."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.problems: list[str] = []
        self.left_out: list[str] = []
        self.homes: list[str] = []
        self._home = os.path.realpath(home())

    def walk(self, root: Path, prefix: str) -> None:
        """``prefix``: "", or the name of the directory, to be sent as well, and "/"."""
        ignore, top = Ignore(_patterns(root)), os.path.realpath(root)
        pending = [""]
        while pending:
            below = pending.pop()
            try:
                entries = sorted(os.scandir(root / below), key=lambda entry: entry.name)
            except OSError as error:
                self.problems.append(str(_unreadable(root / below, error)))
                continue
            if _MARKS <= {item.name for item in entries} or os.path.join(top, below[:-1]).rstrip("/") == self._home:
                if below:
                    self.homes.append(prefix + below[:-1])
                else:
                    self.problems.append(
                        f"{root} is a home of dethpc's: it holds the key to its master, which is never sent"
                    )
                continue
            if prefix or below:
                self.add((prefix + below)[:-1], root / below)
            for item in entries:
                path = below + item.name
                is_dir = item.is_dir(follow_symlinks=False)
                if item.name == IGNORE_FILE:
                    continue
                if ignore(path, is_dir):
                    if item.name in LEFT_OUT:
                        self.left_out.append(prefix + path)
                    continue
                if is_dir:
                    pending.append(path + "/")
                    continue
                if not item.is_symlink() and not item.is_file(follow_symlinks=False):
                    continue  # a socket, a pipe, a device: nothing that git would keep
                self.add(prefix + path, Path(item.path), root, path)

    def add(self, name: str, source: Path, root: Path | None = None, path: str = "", *, follow: bool = False) -> None:
        """``path``: the place below ``root``, in which a link has to stay."""
        try:
            entry = _entry(name, source, follow=follow)
            if entry.type == tarfile.SYMTYPE and root is not None:
                entry = _inside(entry, root, path)
        except ContextError as error:
            self.problems.append(str(error))
        else:
            self.entries.append(entry)


def _all(problems: Sequence[str]) -> list[str]:
    """Each of the problems that one can be shown, and how many more there are."""
    more = len(problems) - _SHOWN
    return [*problems[:_SHOWN], *([f"and {more} more like these"] if more > 0 else [])]


def _patterns(root: Path) -> str:
    try:
        return (root / IGNORE_FILE).read_text(encoding="utf-8-sig", errors="surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ContextError(f"{root / IGNORE_FILE} cannot be read ({error.strerror})") from None


def _entry(path: str, source: Path, *, follow: bool = False) -> Entry:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise ContextError(f"the name of {os.fsencode(source)!r} is not UTF-8; rename it, or leave it out") from None
    try:
        status = os.stat(source, follow_symlinks=follow)
        mode, mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime)
        if stat.S_ISLNK(status.st_mode):
            return Entry(path, tarfile.SYMTYPE, 0o777, mtime, 0, source, os.readlink(source))
    except OSError as error:
        raise _unreadable(source, error) from None
    if stat.S_ISDIR(status.st_mode):
        return Entry(path, tarfile.DIRTYPE, mode, mtime, 0, source)
    if not os.access(source, os.R_OK):
        raise ContextError(f"{source} cannot be read (permission denied); leave it out with {IGNORE_FILE}")
    return Entry(path, tarfile.REGTYPE, mode, mtime, status.st_size, source)


def _inside(entry: Entry, root: Path, path: str) -> Entry:
    """The link, relative if it was absolute. Raises ContextError when it leads out of the tree, where a node could not follow."""
    here = os.path.dirname(path)
    target = entry.link
    if os.path.isabs(target):
        target = os.path.relpath(target, os.path.join(os.path.abspath(root), here))
    if not stays(path, target):
        raise ContextError(
            f"{entry.source} is a link to {entry.link}, which points outside the context directory (is "
            f"that the folder of your code?); leave it out with {IGNORE_FILE}, or put a copy in its place"
        )
    return Entry(entry.path, entry.type, entry.mode, entry.mtime, 0, entry.source, target)


def _same_names(entries: Sequence[Entry]) -> Iterator[str]:
    twice = sorted(path for path, count in Counter(entry.path for entry in entries).items() if count > 1)
    if twice:
        yield "more than one of the things to send is named " + ", ".join(map(repr, twice[:_NAMED]))


def _too_large(entries: Sequence[Entry], limit: int) -> Iterator[str]:
    total = sum(entry.size for entry in entries)
    if total <= limit:
        return
    largest = sorted(entries, key=lambda entry: entry.size, reverse=True)[:_NAMED]
    listing = "".join(f"\n  {_mebibytes(entry.size):>12}  {entry.path}" for entry in largest if entry.size)
    over = f" ({total - limit:,} bytes over it)" if _mebibytes(total) == _mebibytes(limit) else ""
    yield (
        f"the files to send come to {_mebibytes(total)}; the limit is {_mebibytes(limit)}{over}. "
        f"Keep data on the shared file system and leave it out with {IGNORE_FILE}. The largest:{listing}"
    )


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB" if size >= 1 << 19 else f"{size} bytes"


def _unreadable(path: Path, error: OSError) -> ContextError:
    return ContextError(f"{path} cannot be read ({error.strerror}); leave it out with {IGNORE_FILE}")
