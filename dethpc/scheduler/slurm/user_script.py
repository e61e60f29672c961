"""An sbatch script of the user's own, as an entrypoint: what its ``#SBATCH`` lines ask for, and what becomes of each.

dethpc submits a script of its own, of one task per node; the user's then runs on the first node, and its ``srun`` starts tasks
within the job. docs/sbatch-args.md has the table of options.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dethpc.errors import ConfigError, Problem
from dethpc.scheduler.slurm.script import REFUSED, directive

# Short options of sbatch that take a value, and those that take none.
_LONG = {
    "a": "array", "A": "account", "b": "begin", "c": "cpus-per-task", "C": "constraint", "d": "dependency", "D": "chdir",
    "e": "error", "F": "nodefile", "G": "gpus", "i": "input", "J": "job-name", "L": "licenses", "m": "distribution",
    "M": "clusters", "n": "ntasks", "N": "nodes", "o": "output", "p": "partition", "q": "qos", "S": "core-spec",
    "t": "time", "w": "nodelist", "x": "exclude",
}  # fmt: skip
_LONG_FLAGS = {
    "H": "hold", "h": "help", "I": "immediate", "k": "no-kill", "O": "overcommit", "Q": "quiet", "s": "oversubscribe",
    "v": "verbose", "V": "version", "W": "wait",
}  # fmt: skip
_CANNOT_BE = ("array", "clusters", "wrap", "wait", "test-only", "help", "usage", "version")
_SHAPE = ("nodes", "gres", "gpus", "gpus-per-node", "gpus-per-task", "ntasks-per-gpu", "gpu-bind")
_TASKS = ("ntasks", "ntasks-per-node", "cpus-per-task")
_ALSO_OURS = {"chdir": "the script starts in a copy of the context directory", "nodefile": "Slurm chooses the nodes"}


@dataclass(frozen=True)
class UserScript:
    """``interpreter`` is the shebang's. Numbers that the script leaves open are None; ``gpus_per_node`` 0 means none."""

    interpreter: list[str]
    kept: list[str] = field(default_factory=list)  # options for sbatch, as they are
    notes: list[str] = field(default_factory=list)  # what is overridden, and by what
    partition: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    gpu_type: str | None = None
    ntasks_per_node: int | None = None
    cpus_per_task: int | None = None

    def slots(self, cpus_per_slot: int = 1) -> int | None:
        """Slots that the script asks for: GPUs, or else cores; None when it says neither."""
        if self.gpus_per_node:
            return (self.nodes or 1) * self.gpus_per_node
        if self.ntasks_per_node is None and self.cpus_per_task is None:
            return self.nodes
        return (self.nodes or 1) * self.slots_per_node(cpus_per_slot)

    def slots_per_node(self, cpus_per_slot: int = 1) -> int:
        if self.gpus_per_node:
            return self.gpus_per_node
        return math.ceil((self.ntasks_per_node or 1) * (self.cpus_per_task or 1) / cpus_per_slot)


def read(text: str, path: str, options: Sequence[str] = ()) -> UserScript:
    """What the script ``text`` asks for; ``options`` are given beside it and win. Raises ConfigError: what cannot be."""
    lines = text.splitlines()
    if not lines or not lines[0].startswith("#!"):
        found = lines[0][:40] if lines else "an empty file"
        raise ConfigError(
            [Problem("entrypoint", f"{path}, which begins with {found!r}", "a script that begins with #!")]
        )
    problems: list[Problem] = []
    asked: dict[str, str | None] = {}
    for name, value in _options(_words(lines, path, problems) + list(options)):
        asked[name] = value
        if name in _CANNOT_BE:
            problems.append(Problem("entrypoint", f"--{name} in {path}", f"a script without it; {REFUSED[name]}"))
    if problems:
        raise ConfigError(problems)
    return _understood(asked, shlex.split(lines[0][2:]), path)


def _words(lines: Sequence[str], path: str, problems: list[Problem]) -> list[str]:
    """The words of all ``#SBATCH`` lines: sbatch reads them up to the first command."""
    words: list[str] = []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        if line.startswith("#SBATCH"):
            try:
                words += shlex.split(line.removeprefix("#SBATCH"), comments=True)
            except ValueError as error:
                problems.append(
                    Problem("entrypoint", repr(line), f"an sbatch option ({error})", file=path, line=number)
                )
    return words


def _options(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """(long name, value) of each option; a value may be a word of its own."""
    left = list(words)
    while left:
        word = left.pop(0)
        value: str | None
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if not equals:
                value = left.pop(0) if left and not left[0].startswith("-") else None
            yield name, value
        elif word.startswith("-") and len(word) > 1:
            if word[1] in _LONG_FLAGS:
                yield _LONG_FLAGS[word[1]], word[2:] or None
            else:
                value = word[2:] or (left.pop(0) if left else None)
                yield _LONG.get(word[1], word[1]), value


def _understood(asked: dict[str, str | None], interpreter: list[str], path: str) -> UserScript:
    nodes = _first_number(asked.get("nodes"))
    gpu_type, per_node = _gpus(asked, nodes)
    ntasks, per = _first_number(asked.get("ntasks")), _first_number(asked.get("ntasks-per-node"))
    if per is None and ntasks is not None:
        per = math.ceil(ntasks / (nodes or 1))
    kept, notes = [], []
    for name, value in asked.items():
        said = f"{path}: --{name}" + ("" if value is None else f"={value}")
        if name in _SHAPE:
            if name == "gres" and "gpu" not in str(value):
                notes.append(f"{said} is left out; say it in slurm.sbatch_args, together with the GPUs")
        elif name in _TASKS or name == "partition":
            continue
        elif name in REFUSED:
            notes.append(f"{said} is left out: {REFUSED[name]}")
        elif name in _ALSO_OURS:
            notes.append(f"{said} is left out: {_ALSO_OURS[name]}")
        else:
            kept.append(directive(name, value))
    return UserScript(
        interpreter=interpreter,
        kept=kept,
        notes=notes,
        partition=asked.get("partition"),
        nodes=nodes,
        gpus_per_node=per_node,
        gpu_type=gpu_type,
        ntasks_per_node=per,
        cpus_per_task=_first_number(asked.get("cpus-per-task")),
    )


def _first_number(value: str | None) -> int | None:
    """``2`` of ``2``, of ``2-4`` and of ``2:1``."""
    found = re.match(r"\d+", value or "")
    return int(found[0]) if found else None


def _gpus(asked: dict[str, str | None], nodes: int | None) -> tuple[str | None, int | None]:
    """(type, number per node) of the GPUs, whichever way they are asked for."""
    for name, text in (("gres", asked.get("gres")), ("gpus-per-node", asked.get("gpus-per-node"))):
        for item in (text or "").split(","):
            found = re.fullmatch(r"gpu(?::([A-Za-z_][^:]*))?(?::(\d+))?", item) if name == "gres" else _typed(item)
            if found:
                return found[1], int(found[2] or 1)
    total = _typed(asked.get("gpus") or "")
    if total:
        return total[1], math.ceil(int(total[2]) / (nodes or 1))
    each, tasks = _typed(asked.get("gpus-per-task") or ""), _first_number(asked.get("ntasks"))
    if each:
        per = _first_number(asked.get("ntasks-per-node")) or math.ceil((tasks or 1) / (nodes or 1))
        return each[1], int(each[2]) * per
    return None, None


def _typed(text: str) -> re.Match[str] | None:
    return re.fullmatch(r"(?:([A-Za-z_][^:]*):)?(\d+)", text)
