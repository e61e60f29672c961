"""Commands of an experiment that would install into an interpreter that its jobs must not change: what to tell its owner."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.entrypoint import STARTUP_HOOK, batch_script
from dethpc.errors import NotFound
from dethpc.master.durable import contexts

_INSTALLS = re.compile(r"(?:^|[\s;&|(])(?:pip3?|conda|mamba)(?:\s+-\S+)*\s+install\b")
_ELSEWHERE = re.compile(r"^\s*#|\s(?:--target|--prefix|--root|--python|-t|-p|-n|--name)\b")
_ANOTHER = re.compile(r"\bactivate\b|\bvenv\b|\bvirtualenv\b")
"""From here on it is another interpreter, as far as one can tell."""


_DETS = (
    f"jobs cannot install into {sys.prefix}, which serves det; environment.venv: per-experiment gives the experiment an "
    f"environment of its own, into which {STARTUP_HOOK} installs"
)
_OWN = f"only {STARTUP_HOOK} can install into the experiment's environment"


def notes(config: ExperimentConfig, context_targz: bytes, python: str | None = None) -> list[str]:
    """One for each file that needs one. ``python``: the jobs' interpreter, None: that of the master. Raises ContextError."""
    own, script = config.environment.venv is not None, batch_script(config.entrypoint)
    wanted = config.environment.python or python
    if not own and (config.environment.setup or (wanted and not _is_dets(wanted))):
        return []
    texts = {} if own else {STARTUP_HOOK: _content(context_targz, STARTUP_HOOK)}
    if script is not None:
        texts[script.path] = _content(context_targz, script.path)
    else:
        texts["entrypoint"] = config.entrypoint if isinstance(config.entrypoint, str) else " ".join(config.entrypoint)
    found = {file: next(_installing(text), None) for file, text in texts.items()}
    return [f"{file}:{line}: {_OWN if own else _DETS}" for file, line in found.items() if line is not None]


def _is_dets(python: str) -> bool:
    """Whether it serves det."""
    return os.path.realpath(os.path.dirname(os.path.dirname(python))) == os.path.realpath(sys.prefix)


def _installing(text: str) -> Iterator[int]:
    """Numbers of lines."""
    for number, line in enumerate(text.splitlines(), 1):
        if _ANOTHER.search(line):
            return
        if _INSTALLS.search(line) and not _ELSEWHERE.search(line):
            yield number


def _content(context_targz: bytes, path: str) -> str:
    with contextlib.suppress(NotFound):
        return contexts.content(context_targz, path).decode("utf-8", "replace")
    return ""
