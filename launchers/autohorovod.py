"""``python3 -m determined.launch.autohorovod ...``: as ``horovod``, but a trial of one slot runs its script plainly, and a trial
class goes by torchrun where Horovod is not installed."""

from __future__ import annotations

from typing import Sequence

from . import _task, horovod

NAME = "autohorovod"


def main(arguments: Sequence[str]) -> int:
    """As ``horovod.main``."""
    return horovod.main(arguments, NAME)


if __name__ == "__main__":
    _task.main(NAME, main)
