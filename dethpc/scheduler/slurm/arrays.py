"""The batch script of a job array: each element goes on as the script of one run, which is a script of its own.

Element ``i`` finds its run by a link named ``i`` in the array's folder, so that Slurm writes its output to the run's log from the
first word on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from dethpc.domain.ids import element_id, element_of
from dethpc.scheduler.slurm.script import directive, literal_path, sh

NOT_SHARED = re.compile(r"^#SBATCH --(?:job-name|output)=")

# A dependency on the array's name or number would mean all elements, and Slurm writes one mail for an array.
_ALONE = re.compile(r"(?:^|\s)(?:--(?:dep|mail)|-[A-Za-z]*d)")

_ELEMENT = "DETHPC_ELEMENT"  # a site's own template that does not know it would claim the run under another id

_BODY = """
# One element of a job array: it goes on as the script of its run, to whose directory the link of its number leads.
umask 077
export DETHPC_ELEMENT="$SLURM_JOB_ID=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
run={folder}/$SLURM_ARRAY_TASK_ID
unset "${{!SLURM_ARRAY_@}}"
exec {interpreter} "$run/job.sbatch"
"""


def alike(script: str, comment: str) -> str:
    """The first line and the directives of a run's script, but for what names the run. Runs for which that is the same, and the
    environment of their submission, may be elements of one array. Empty: this one may not be.

    ``comment``: the one that tells whose the job is.
    """
    first, *lines = script.splitlines()
    directives = [first]
    ours = f"#SBATCH {directive('comment', comment)}" if comment else None
    for line in lines:
        if line.startswith("#SBATCH"):
            if not NOT_SHARED.match(line) and line != ours:
                directives.append(line)
        elif line.strip() and not line.startswith("#"):
            break
    if _ELEMENT not in script or any(_ALONE.search(line.removeprefix("#SBATCH")) for line in directives[1:]):
        return ""
    return "\n".join(directives)


def script(shared: str, name: str, comment: str, folder: Path) -> str:
    """The array's script. ``shared``: what ``alike`` found of its elements; ``folder`` holds a link for each."""
    first, *directives = shared.splitlines()
    own = [directive("job-name", name), directive("comment", comment), f"--output={literal_path(folder)}/%a/slurm.log"]
    lines = [first, *(f"#SBATCH {option}" for option in own), *directives]
    interpreter = first.removeprefix("#!").strip() or "/bin/bash"
    return "\n".join(lines) + "\n" + _BODY.format(folder=sh(folder), interpreter=interpreter)


def id_ranges(job_ids: Iterable[str]) -> list[str]:
    """What names these jobs to Slurm's commands in few words, each of which is a request: elements of one array are one,
    ``57_[0-3,7]``."""
    arguments: list[str] = []
    elements: dict[str, set[int]] = {}
    for job_id in job_ids:
        index = element_of(job_id)
        if index is None:
            arguments.append(job_id)
        else:
            elements.setdefault(job_id.partition("_")[0], set()).add(index)
    return arguments + [_word(array, sorted(indexes)) for array, indexes in elements.items()]


def _word(array: str, indexes: Sequence[int]) -> str:
    if len(indexes) == 1:
        return element_id(array, indexes[0])
    runs: list[list[int]] = []
    for index in indexes:
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return f"{array}_[{','.join(str(a) if a == b else f'{a}-{b}' for a, b in runs)}]"
