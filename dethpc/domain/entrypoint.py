"""What an experiment's entrypoint is: a command, or an sbatch script of the user's own."""

from __future__ import annotations

import shlex
from typing import NamedTuple, Optional, Sequence, Union

SUFFIXES = (".sbatch", ".slurm")


class BatchScript(NamedTuple):
    """``path`` is relative to the context directory. ``options`` are those given to sbatch beside the file's own."""

    path: str
    arguments: list[str]
    options: list[str]


def batch_script(entrypoint: Union[str, Sequence[str]]) -> Optional[BatchScript]:
    """The sbatch script that the entrypoint names: ``train.sbatch ARGS`` or ``sbatch OPTIONS train.sh ARGS``; None for others.

    Options stand as one word each (``--time=10``, ``-t10``), as nobody can tell an option's value from the script otherwise.
    """
    if isinstance(entrypoint, str):
        try:
            words = shlex.split(entrypoint)
        except ValueError:
            return None
    else:
        words = list(entrypoint)
    options: list[str] = []
    submitted = words[:1] == ["sbatch"]
    if submitted:
        words = words[1:]
        while words and words[0].startswith("-"):
            options.append(words.pop(0))
    if not words or not (submitted or words[0].endswith(SUFFIXES)):
        return None
    path = words[0][2:] if words[0].startswith("./") else words[0]
    return BatchScript(path, words[1:], options)
