"""Shell scripts of an experiment: which of them are submitted with sbatch, and warnings about the others."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.entrypoint import batch_script, named_script, program
from dethpc.errors import ConfigError, ContextError, NotFound, Problem
from dethpc.master.durable import contexts
from dethpc.scheduler.slurm.user_script import UserScript, has_directives, read


def submitted(config: ExperimentConfig, context_targz: bytes) -> tuple[ExperimentConfig, list[str]]:
    """The configuration, whose entrypoint is ``sbatch job.sh`` where it was ``./job.sh`` and the script has ``#SBATCH`` lines; and
    what is to be told about it. Raises ContextError."""
    entrypoint = config.entrypoint
    if batch_script(entrypoint) is not None:
        return config, []
    argv = program(entrypoint)
    if argv and has_directives(_text(context_targz, argv[0])):
        becomes = ["sbatch", *argv] if isinstance(entrypoint, list) else shlex.join(["sbatch", *argv])
        note = f"{argv[0]} has #SBATCH lines: it runs as sbatch {argv[0]} would, not as a plain script"
        return config.model_copy(update={"entrypoint": becomes}), [note]
    name = named_script(entrypoint)
    if name and has_directives(_text(context_targz, name)):
        return config, [
            f"#SBATCH lines in {name} have no effect, as another program runs it; entrypoint: ./{name} submits it as sbatch does"
        ]
    return config, []


def read_script(config: ExperimentConfig, context_targz: bytes) -> UserScript | None:
    """The sbatch script that is the entrypoint. Raises ConfigError, also where the context has no such script; ContextError."""
    script = batch_script(config.entrypoint)
    if script is None:
        return None
    try:
        text = _content(context_targz, script.path)
    except NotFound:
        raise ConfigError([Problem("entrypoint", f"{script.path} is not in the context directory")]) from None
    return read(text, script.path, script.options)


def notes(config: ExperimentConfig, context_targz: bytes) -> Iterator[str]:
    """One for each shell script that a shell would read wrongly. Raises ContextError."""
    if batch_script(config.entrypoint) is not None:
        return
    argv = program(config.entrypoint)
    name = argv[0] if argv else named_script(config.entrypoint)
    text = _text(context_targz, name) if name and not name.endswith(".py") else ""
    if "\r\n" in text:
        yield f"{name} has DOS line breaks (\\r\\n), which shells take for parts of words; try sed -i 's/\\r$//' {name}"


def _text(context_targz: bytes, path: str) -> str:
    """ "" where there is no such file."""
    with contextlib.suppress(NotFound, ContextError):
        return _content(context_targz, path)
    return ""


def _content(context_targz: bytes, path: str) -> str:
    return contexts.content(context_targz, path).decode("utf-8", "surrogateescape")
