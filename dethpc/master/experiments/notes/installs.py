"""Notes for the owner about commands that would install packages into the Python environment that serves det."""

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

_PIP = re.compile(r"(?:^|[\s;&|(])pip[\d.]*(?:\s+-\S+)*\s+install\b")
_UV = re.compile(r"(?:^|[\s;&|(])uv(?:\s+-\S+)*\s+pip(?:\s+-\S+)*\s+install\b")
_CONDA = re.compile(r"(?:^|[\s;&|(])(?:conda|mamba|micromamba)(?:\s+-\S+)*\s+install\b")
_ELSEWHERE = re.compile(r"^\s*#|\s(?:--target|--prefix|--root|--python|-t|-p|-n|--name)\b")
_ANOTHER = re.compile(r"\bactivate\b|\bvenv\b|\bvirtualenv\b")
"""From here on it is another interpreter, as far as one can tell."""

_VENV = "environment.venv: per-experiment gives the experiment an environment of its own"
_AT_NEED = (
    f"what {sys.prefix}, which serves det, does not have yet is installed into a Python environment of the experiment's own, which "
    "its first run makes"
)
_BY_UV = f"uv finds no environment in a job whose python3 serves det; use pip, or {_VENV}, into which uv installs"
_BY_CONDA = (
    f"conda install would change {sys.prefix}, which serves det, under everything that runs in it: install it there from your "
    f"shell, or activate an environment of your own first; {_VENV}, into which pip installs"
)
_BY_ENTRYPOINT = (
    f"jobs cannot install into {sys.prefix}, which serves det; {STARTUP_HOOK} can install into an environment of the "
    "experiment's own"
)
_OWN = f"only {STARTUP_HOOK} can install into the experiment's environment"


def notes(config: ExperimentConfig, context_targz: bytes, python: str | None = None) -> list[str]:
    """One for each file that needs one. ``python``: the jobs' interpreter, None: that of the master. Raises ContextError."""
    own, script = config.environment.venv is not None, batch_script(config.entrypoint)
    python = config.environment.python or python
    if not own and (config.environment.setup or (python and not _is_dets(python))):
        return []
    entry = config.entrypoint if isinstance(config.entrypoint, str) else " ".join(config.entrypoint)
    file, text = ("entrypoint", entry) if script is None else (script.path, _content(context_targz, script.path))
    in_entrypoint = _OWN if own else _BY_ENTRYPOINT
    lines = [] if own else [*_installing(STARTUP_HOOK, _content(context_targz, STARTUP_HOOK), _AT_NEED)]
    return [*lines, *_installing(file, text, in_entrypoint)]


def _is_dets(python: str) -> bool:
    """Whether it serves det."""
    return os.path.realpath(os.path.dirname(os.path.dirname(python))) == os.path.realpath(sys.prefix)


def _installing(file: str, text: str, by_pip: str) -> Iterator[str]:
    """A note on the first line of each kind, ``by_pip`` of those that run pip."""
    kinds = {_UV: _BY_UV, _CONDA: _BY_CONDA, _PIP: by_pip}
    for number, line in enumerate(text.splitlines(), 1):
        if _ANOTHER.search(line):
            return
        kind = None if _ELSEWHERE.search(line) else next((kind for kind in kinds if kind.search(line)), None)
        if kind is not None:
            yield f"{file}:{number}: {kinds.pop(kind)}"


def _content(context_targz: bytes, path: str) -> str:
    with contextlib.suppress(NotFound):
        return contexts.content(context_targz, path).decode("utf-8", "replace")
    return ""
