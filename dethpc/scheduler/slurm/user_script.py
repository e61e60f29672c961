"""An sbatch script of the user's own: its ``#SBATCH`` lines, read as sbatch reads them.

dethpc submits a script of its own, whose lines have the options; the user's then runs on the first node, in the batch script's
place, and its ``srun`` starts tasks within the job. docs/sbatch-args.md has the table of options.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dethpc.errors import ConfigError, Problem
from dethpc.scheduler.slurm import options as known
from dethpc.scheduler.slurm.options import Option, Unreadable, Use

_MAGIC = "#SBATCH"
_OTHERS = ("#PBS", "#BSUB")
_HETEROGENEOUS = ("hetjob", "packjob")


@dataclass(frozen=True)
class UserScript:
    """``options`` in their order, none of them refused; ``notes`` are what its user should know of other lines."""

    path: str
    options: list[Option] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def has_directives(text: str) -> bool:
    """Whether the script is meant for sbatch, which refuses one without ``#!``."""
    return any(line.startswith(_MAGIC) for _, line in _head(text))


def read(text: str, path: str, extra: Sequence[str] = ()) -> UserScript:
    """The script ``text``; ``extra`` are words of options given beside it, which win. Raises ConfigError: what sbatch would refuse,
    and what makes no sense for a trial."""
    problems = list(_unfit(text, path))
    if problems:
        raise ConfigError(problems)
    options: list[Option] = []
    for number, line in _head(text):
        if line.startswith(_MAGIC):
            try:
                options += known.read(tokens(line.removeprefix(_MAGIC)))
            except Unreadable as error:
                problems.append(
                    Problem("entrypoint", f"sbatch would not take {line.strip()!r}: {error}").at(path, number)
                )
    try:
        options += known.read(extra)
    except Unreadable as error:
        problems.append(
            Problem("entrypoint", f"{error}; write sbatch OPTIONS SCRIPT, each option one word (--time=10)")
        )
    for option in options:
        if option.use is Use.REFUSED:
            problems.append(Problem("entrypoint", f"--{option.name} is not possible in {path}: {option.why}"))
    if problems:
        raise ConfigError(problems)
    foreign = sorted({line.split()[0] for _, line in _head(text) if line.startswith(_OTHERS)})
    notes = [f"{path}: {word} lines are not read; say the same in {_MAGIC} lines" for word in foreign]
    return UserScript(path, options, notes)


def _unfit(text: str, path: str) -> Iterator[Problem]:
    """What sbatch itself would refuse, in its words."""
    first = text.partition("\n")[0]
    if not text.startswith("#!"):
        shown = repr(first[:40]) if text else "an empty file"
        yield Problem("entrypoint", f"{path} must begin with #!, such as #!/bin/bash, not with {shown}")
    elif "\r\n" in text or first.endswith("\r"):
        message = f"{path}: Batch script contains DOS line breaks (\\r\\n); convert it with sed -i 's/\\r$//' {path}"
        yield Problem("entrypoint", message)
    elif "\0" in text:
        yield Problem("entrypoint", f"{path} contains a NUL character")
    for number, line in _head(text):
        if line.startswith(_MAGIC) and line.removeprefix(_MAGIC).split()[:1] in [[word] for word in _HETEROGENEOUS]:
            message = f"{line.strip()!r} makes a heterogeneous job, and a trial is one job of equal nodes"
            yield Problem("entrypoint", message).at(path, number)


def _head(text: str) -> Iterator[tuple[int, str]]:
    """(number, line) of the lines above the first command: those sbatch reads."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            return
        yield number, line


def tokens(line: str) -> list[str]:
    """The words of a ``#SBATCH`` line. A ``#`` outside of quotes begins a comment, within a word, too. Raises Unreadable."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters, lexer.escapedquotes = True, "#", "\"'"
    try:
        return list(lexer)
    except ValueError:
        raise Unreadable("a quote is not closed") from None
