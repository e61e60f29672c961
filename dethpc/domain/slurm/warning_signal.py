"""The signal that a user asks for by sbatch's ``--signal``, some time before the time limit."""

from __future__ import annotations

import re
import signal
from typing import NamedTuple

SECONDS = 60
LONGEST = 65535


class WarningSignal(NamedTuple):
    """``script``: for the batch script alone, else for the steps. ``reservation``: the job may overlap with a reservation."""

    number: int
    seconds: int = SECONDS
    script: bool = False
    reservation: bool = False

    @classmethod
    def parse(cls, text: str) -> WarningSignal:
        """``[{R|B}:]SIGNAL[@SECONDS]``. Raises ValueError, which says what is allowed."""
        match = re.fullmatch(r"(?:([RB]{1,2}):)?(?:SIG)?([A-Z]+\d*|\d+)(?:@(\d+))?", text.strip(), re.I)
        if match is None:
            raise ValueError("[{R|B}:]SIGNAL[@SECONDS], such as B:USR1@120")
        flags, name, seconds = match[1] or "", match[2].upper(), int(match[3] or SECONDS)
        numbers = {number.name[len("SIG") :]: int(number) for number in signal.Signals}
        value = int(name) if name.isdigit() else numbers.get(name, 0)
        if value not in signal.valid_signals():
            raise ValueError("the name or number of a signal, such as USR1")
        if seconds > LONGEST:
            raise ValueError(f"at most {LONGEST} seconds before the time limit")
        return cls(value, seconds, "B" in flags.upper(), "R" in flags.upper())

    def __str__(self) -> str:
        flags = "R" * self.reservation + "B" * self.script
        names = {int(number): number.name[len("SIG") :] for number in signal.Signals}
        return f"{flags}{':' if flags else ''}{names.get(self.number, self.number)}@{self.seconds}"
