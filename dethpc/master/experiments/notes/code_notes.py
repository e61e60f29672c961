"""Notes for the owner about the startup hook and code of an experiment that behave differently in Determined's containers."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Iterator

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain import workdir
from dethpc.domain.entrypoint import STARTUP_HOOK
from dethpc.domain.trial_config import WORKDIR
from dethpc.master.durable import contexts
from dethpc.master.experiments.notes import setting_warnings

_MOST_BYTES = 32 << 20  # of a context are looked into
_MOST_NOTES = 5
_SHELL = re.compile(rb"#!\s*(?:/usr/bin/env\s+(?:-\S+\s+)*)?(?:\S*/)?(?:ba|da)?sh\b")


def notes(config: ExperimentConfig, context_targz: bytes, *, inside: bool) -> list[str]:
    """``inside``: runs start in a container, where the working directory can have Determined's path."""
    lines: list[str] = []
    if not inside and WORKDIR in json.dumps([config.entrypoint, config.environment.variables("cpu")]):
        lines.append(f"config: names {WORKDIR}: {workdir.ABSENT}")
    for path, content in _code(context_targz):
        if path == STARTUP_HOOK:
            lines += _of_hook(content)
        if not inside and (number := workdir.line_naming_it(content)):
            lines.append(f"{path}:{number}: {workdir.ABSENT}")
    return lines[:_MOST_NOTES] + (["..."] if len(lines) > _MOST_NOTES else [])


def _of_hook(content: bytes) -> Iterator[str]:
    """Every node sources it, by bash."""
    first = content.split(b"\n", 1)[0]
    if first.startswith(b"#!") and not _SHELL.match(first):
        head = first.decode("utf-8", "replace").strip()
        yield f"{STARTUP_HOOK}:1: bash reads it, whatever its first line says ({head})"
    elif b"\r\n" in content:
        number = content.count(b"\n", 0, content.find(b"\r\n")) + 1
        yield (
            f"{STARTUP_HOOK}:{number}: has DOS line ends, which bash takes for a part of its words: no trial can start. "
            f"sed -i 's/\\r$//' {STARTUP_HOOK} removes them"
        )
    elif mistake := setting_warnings.mistake(content.decode("utf-8", "replace")):
        yield f"{STARTUP_HOOK}: {mistake}: no trial can start"


def _code(context_targz: bytes) -> Iterator[tuple[str, bytes]]:
    """The text files of the context that may be code. A damaged context has none."""
    try:
        with tarfile.open(fileobj=io.BytesIO(context_targz), mode="r:gz") as tar:
            for member in tar:
                if member.offset > _MOST_BYTES:
                    return
                file = tar.extractfile(member) if member.isreg() and workdir.is_code(member.name, member.size) else None
                if file is not None:
                    yield member.name, file.read()
    except (*contexts.DAMAGED, ValueError):
        return
