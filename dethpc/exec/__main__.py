"""``python3 -m dethpc.exec RUN_DIR``, and the other commands that the batch script calls."""

from __future__ import annotations

import gc
import os
import sys
import time
from typing import Optional

from dethpc.errors import RunDirError
from dethpc.rundir.claim import claim, claimed_by
from dethpc.rundir.files import create_once, read_json
from dethpc.rundir.layout import RunDir

USAGE = """usage: python3 -m dethpc.exec RUN_DIR         run this node's part of the attempt
       python3 -m dethpc.exec claim RUN_DIR   exit 0: the run is this job's; 3: another job has it; 1: cannot say
       python3 -m dethpc.exec next SECONDS RUN_DIR
                                              print the script of the run that follows in this job, if one does in that time
"""
HELD = 3
LOOK_SECONDS = 0.1


def main(arguments: list[str]) -> int:
    umask = os.umask(0o077)
    if len(arguments) == 2 and arguments[0] == "claim":
        return _claim(RunDir(arguments[1]))
    if len(arguments) == 3 and arguments[0] == "next":
        return _next(float(arguments[1]), RunDir(arguments[2]))
    if len(arguments) == 1 and not arguments[0].startswith("-"):
        gc.disable()  # what is imported is not looked through for garbage, now or at the end: a trial waits for both
        from dethpc.exec import node  # a job that claims its run waits for what is imported

        gc.freeze()
        gc.enable()
        return node.run(RunDir(os.path.abspath(arguments[0])), umask)
    sys.stderr.write(USAGE)
    return 0 if arguments in (["-h"], ["--help"]) else 2


def _claim(run: RunDir) -> int:
    job = os.environ.get("DETHPC_JOB_ID") or os.environ.get("SLURM_JOB_ID")
    if not job:
        sys.stderr.write("dethpc: neither DETHPC_JOB_ID nor SLURM_JOB_ID is set\n")
        return 2
    try:
        if claim(run, job):
            return 0
        sys.stderr.write(f"dethpc: job {claimed_by(run)} already trains this run; job {job} has nothing to do\n")
        return HELD
    except (OSError, RunDirError) as error:
        sys.stderr.write(f"dethpc: the run cannot be claimed: {error}\n")
        return 1


def _next(wait: float, run: RunDir) -> int:
    try:
        script = _script_after(run, wait)
    except (OSError, RunDirError) as error:
        sys.stderr.write(f"dethpc: the job's next run cannot be read: {error}\n")
        return 1
    if script is not None:
        print(script)
    return 0


def _script_after(run: RunDir, wait: float) -> Optional[str]:
    """The batch script of the run that follows ``run`` in its job, so that short trials share an allocation; None when none does.

    After ``wait`` seconds without a word from the master the job says itself that nothing follows, and the master will hear that
    when it comes with another run. Raises: OSError, RunDirError.
    """
    until = time.monotonic() + wait
    while True:
        word = read_json(run.next)
        if word is not None:
            return word.get("script")
        if time.monotonic() >= until:
            create_once(run.next, {"script": None})
        else:
            time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
